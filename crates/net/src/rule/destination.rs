//! Rules by where packets go.

use ipnet::IpNet;

use super::{
    FR_ACT_TO_TBL, FRA_PRIORITY, FRA_PROTOCOL, FRA_TABLE, RTM_DELRULE, RTM_GETRULE, RTM_NEWRULE,
};
use crate::batch::{Batch, Message, flag};
use crate::family::{family_of, octets};
use crate::read::{attributes, ip_of, u32_of};
use crate::{NetError, Socket};

const FRA_DST: u16 = 1;

/// Packets to `to`, wherever they come from, look their way up in `table`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DestinationRule {
    /// The packets' destination.
    pub to: IpNet,
    /// The table to ask.
    pub table: u32,
    /// Its place among the rules: the lower, the earlier.
    pub priority: u32,
    /// Whose it is.
    pub protocol: u8,
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
        batch.add(kind, flags, attempt, |message| {
            let family = family_of(self.to.addr());
            message.fixed(&[family, self.to.prefix_len(), 0, 0, 0, 0, 0, FR_ACT_TO_TBL]);
            message.fixed(&[0; 4]);
            message.attribute(FRA_DST, &octets(self.to.network()));
            message.u32(FRA_PRIORITY, self.priority);
            message.u8(FRA_PROTOCOL, self.protocol);
            message.u32(FRA_TABLE, self.table);
        });
    }
}

/// All rules, of both families, that ask a table for packets to somewhere.
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
    let mut rule = DestinationRule {
        to: IpNet::default(),
        table: header[4].into(),
        priority: 0,
        protocol: 0,
    };
    let mut to = None;
    for (kind, payload) in attributes(&message.payload[12..]) {
        match kind {
            FRA_DST => to = ip_of(payload),
            FRA_PRIORITY => rule.priority = u32_of(payload)?,
            FRA_TABLE => rule.table = u32_of(payload)?,
            FRA_PROTOCOL => rule.protocol = *payload.first()?,
            _ => {}
        }
    }
    rule.to = IpNet::new(to?, header[1]).ok()?;
    (header[7] == FR_ACT_TO_TBL).then_some(rule)
}
