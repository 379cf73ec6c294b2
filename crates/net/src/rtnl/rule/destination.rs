//! Rules by where packets go.

use ipnet::IpNet;

use super::{
    FR_ACT_TO_TBL, FRA_PRIORITY, FRA_PROTOCOL, FRA_TABLE, RTM_DELRULE, RTM_GETRULE, RTM_NEWRULE,
};
use crate::netlink::{Batch, Message, attributes, family_of, flag, ip_of, octets, u32_of};
use crate::{NetError, Socket};

/// Attributes and actions of rules, `include/uapi/linux/fib_rules.h`.
const FRA_DST: u16 = 1;
const FRA_FWMARK: u16 = 10;
const FRA_FWMASK: u16 = 16;
const FR_ACT_UNREACHABLE: u8 = 7;

/// What becomes of packets to `to`, wherever they come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DestinationRule {
    /// The packets' destination.
    pub to: IpNet,
    /// The mark that they must have, if any.
    pub mark: Option<Mark>,
    /// What becomes of them.
    pub action: RuleAction,
    /// Its place among the rules: the lower, the earlier.
    pub priority: u32,
    /// Whose it is.
    pub protocol: u8,
}

/// A mark that programs and firewalls put on packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The bits that must be set.
    pub value: u32,
    /// The bits that are looked at.
    pub mask: u32,
}

/// What a rule does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleAction {
    /// Their way is looked up in this table.
    Lookup(u32),
    /// Whoever sent them is told that there is no way.
    Unreachable,
}

impl DestinationRule {
    /// Adds making the rule; refused with `EEXIST` if it is there.
    pub fn add_to(&self, batch: &mut Batch) {
        let attempt = format!("add a rule for packets to {}", self.to);
        self.request(batch, RTM_NEWRULE, flag::CREATE | flag::EXCL, attempt);
    }

    /// Adds removing the rule; refused with `ENOENT` if it isn't there.
    pub fn remove_in(&self, batch: &mut Batch) {
        let attempt = format!("remove the rule for packets to {}", self.to);
        self.request(batch, RTM_DELRULE, 0, attempt);
    }

    /// `struct fib_rule_hdr`, and the attributes.
    fn request(&self, batch: &mut Batch, kind: u16, flags: u16, attempt: String) {
        let (action, table) = match self.action {
            RuleAction::Lookup(table) => (FR_ACT_TO_TBL, Some(table)),
            RuleAction::Unreachable => (FR_ACT_UNREACHABLE, None),
        };
        batch.add(kind, flags, attempt, |message| {
            let family = family_of(self.to.addr());
            message.fixed(&[family, self.to.prefix_len(), 0, 0, 0, 0, 0, action]);
            message.fixed(&[0; 4]);
            message.attribute(FRA_DST, &octets(self.to.network()));
            message.u32(FRA_PRIORITY, self.priority);
            message.u8(FRA_PROTOCOL, self.protocol);
            if let Some(mark) = self.mark {
                message.u32(FRA_FWMARK, mark.value);
                message.u32(FRA_FWMASK, mark.mask);
            }
            if let Some(table) = table {
                message.u32(FRA_TABLE, table);
            }
        });
    }
}

/// All rules, of both families, that ask a table for packets to somewhere, or refuse them.
pub fn destination_rules(socket: &Socket) -> Result<Vec<DestinationRule>, NetError> {
    socket.dump(
        RTM_GETRULE,
        "list the rules",
        |message| message.fixed(&[0; 12]),
        read,
    )
}

fn read(message: &Message<'_>) -> Option<DestinationRule> {
    let header = message.payload.get(..12)?;
    let mut table = header[4].into();
    let mut mark = Mark { value: 0, mask: 0 };
    let (mut to, mut priority, mut protocol) = (None, 0, 0);
    for (kind, payload) in attributes(&message.payload[12..]) {
        match kind {
            FRA_DST => to = ip_of(payload),
            FRA_PRIORITY => priority = u32_of(payload)?,
            FRA_TABLE => table = u32_of(payload)?,
            FRA_PROTOCOL => protocol = *payload.first()?,
            FRA_FWMARK => mark.value = u32_of(payload)?,
            FRA_FWMASK => mark.mask = u32_of(payload)?,
            _ => {}
        }
    }
    Some(DestinationRule {
        to: IpNet::new(to?, header[1]).ok()?,
        mark: (mark.mask != 0).then_some(mark),
        action: match header[7] {
            FR_ACT_TO_TBL => RuleAction::Lookup(table),
            FR_ACT_UNREACHABLE => RuleAction::Unreachable,
            _ => return None,
        },
        priority,
        protocol,
    })
}
