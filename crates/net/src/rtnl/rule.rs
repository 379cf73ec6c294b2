//! Policy routing rules.

mod destination;

use ipnet::IpNet;

use crate::netlink::{Batch, Message, Writer, attributes, family_of, flag, ip_of, octets, u32_of};
use crate::{NetError, Socket};

pub use destination::{DestinationRule, Mark, RuleAction, destination_rules};

const RTM_NEWRULE: u16 = 32;
const RTM_DELRULE: u16 = 33;
const RTM_GETRULE: u16 = 34;
const FRA_SRC: u16 = 2;
const FRA_PRIORITY: u16 = 6;
const FRA_TABLE: u16 = 15;
const FRA_PROTOCOL: u16 = 21;
const FR_ACT_TO_TBL: u8 = 1;

/// A rule by source: packets from `from` look up `table`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Source of packets.
    pub from: IpNet,
    /// Routing table to look up.
    pub table: u32,
    /// Lower goes first.
    pub priority: u32,
    /// `RTPROT_*`, or a number of one's own.
    pub protocol: u8,
}

impl Rule {
    /// Adds the rule; `EEXIST` if it exists.
    pub fn add_to(&self, batch: &mut Batch) {
        let attempt = format!("add rule from {}", self.from);
        let flags = flag::CREATE | flag::EXCL;
        batch.add(RTM_NEWRULE, flags, attempt, |message| self.write(message));
    }

    /// Removes the rule, whatever its table.
    pub fn remove_in(&self, batch: &mut Batch) {
        let attempt = format!("remove rule from {}", self.from);
        batch.add(RTM_DELRULE, 0, attempt, |message| self.write_key(message));
    }

    fn write(&self, message: &mut Writer<'_>) {
        self.write_key(message);
        message.u32(FRA_TABLE, self.table);
    }

    /// `struct fib_rule_hdr` and the attributes that identify a rule.
    fn write_key(&self, message: &mut Writer<'_>) {
        let family = family_of(self.from.addr());
        let length = self.from.prefix_len();
        message.fixed(&[family, 0, length, 0, 0, 0, 0, FR_ACT_TO_TBL]);
        message.fixed(&[0; 4]);
        message.attribute(FRA_SRC, &octets(self.from.network()));
        message.u32(FRA_PRIORITY, self.priority);
        message.u8(FRA_PROTOCOL, self.protocol);
    }
}

/// All rules by source, of both families.
pub fn rules(socket: &Socket) -> Result<Vec<Rule>, NetError> {
    socket.dump(
        RTM_GETRULE,
        "list rules",
        |message| message.fixed(&[0; 12]),
        read,
    )
}

fn read(message: &Message<'_>) -> Option<Rule> {
    let header = message.payload.get(..12)?;
    let mut rule = Rule {
        from: IpNet::default(),
        table: header[4].into(),
        priority: 0,
        protocol: 0,
    };
    let mut from = None;
    for (kind, payload) in attributes(&message.payload[12..]) {
        match kind {
            FRA_SRC => from = ip_of(payload),
            FRA_PRIORITY => rule.priority = u32_of(payload)?,
            FRA_TABLE => rule.table = u32_of(payload)?,
            FRA_PROTOCOL => rule.protocol = *payload.first()?,
            _ => {}
        }
    }
    rule.from = IpNet::new(from?, header[2]).ok()?;
    Some(rule)
}
