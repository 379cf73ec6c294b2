//! Rules by destination.

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

/// A rule by destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DestinationRule {
    /// Destination of packets.
    pub to: IpNet,
    /// Firewall mark to match, if any.
    pub mark: Option<Mark>,
    /// What it does with packets.
    pub action: RuleAction,
    /// Lower goes first.
    pub priority: u32,
    /// `RTPROT_*`, or a number of one's own.
    pub protocol: u8,
}

/// A firewall mark with its mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Value of the masked bits.
    pub value: u32,
    /// Bits to compare.
    pub mask: u32,
}

/// What a rule does with packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleAction {
    /// Look up this routing table.
    Lookup(u32),
    /// Reject with ICMP unreachable.
    Unreachable,
}

impl DestinationRule {
    /// Adds the rule; `EEXIST` if it exists.
    pub fn add_to(&self, batch: &mut Batch) {
        let attempt = format!("add rule to {}", self.to);
        self.request(batch, RTM_NEWRULE, flag::CREATE | flag::EXCL, attempt);
    }

    /// Removes the rule; `ENOENT` if it does not exist.
    pub fn remove_in(&self, batch: &mut Batch) {
        let attempt = format!("remove rule to {}", self.to);
        self.request(batch, RTM_DELRULE, 0, attempt);
    }

    /// `struct fib_rule_hdr` and attributes.
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

/// All rules by destination, of both families, that look up a table or reject packets.
pub fn destination_rules(socket: &Socket) -> Result<Vec<DestinationRule>, NetError> {
    socket.dump(
        RTM_GETRULE,
        "list rules",
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
