//! An attacker and a victim on one wire.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use lab::frames::{Ethernet, Mac};
use lab::{Capture, Netns, Node, RawLink};

pub(crate) const LINK: &str = "up0";
pub(crate) const TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) const ATTACKER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
pub(crate) const VICTIM: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
pub(crate) const ATTACKER6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
pub(crate) const VICTIM6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);

/// An unused MAC address.
pub(crate) const FORGED: Mac = Mac([2, 0, 0, 0xba, 0xd0, 1]);

pub(crate) struct Wire {
    pub(crate) attacker: Node,
    pub(crate) victim: Node,
    /// The attacker's end.
    pub(crate) link: RawLink,
    victim_mac: Mac,
}

impl Wire {
    pub(crate) fn new() -> Self {
        let (attacker, victim) = (Node::new("attacker").unwrap(), Node::new("victim").unwrap());
        let cidr = |address| format!("{address}/24");
        attacker
            .wire(LINK, &cidr(ATTACKER), &victim, &cidr(VICTIM))
            .unwrap();
        for (node, address) in [(&attacker, ATTACKER6), (&victim, VICTIM6)] {
            let cidr = format!("{address}/64");
            node.run(["ip", "address", "add", &cidr, "dev", LINK, "nodad"])
                .unwrap();
        }
        let link = RawLink::open(&attacker, LINK).unwrap();
        let victim_mac = RawLink::open(&victim, LINK).unwrap().mac();
        Self {
            attacker,
            victim,
            link,
            victim_mac,
        }
    }

    /// From attacker to victim.
    pub(crate) fn ethernet(&self) -> Ethernet {
        Ethernet::new(self.link.mac(), self.victim_mac)
    }

    pub(crate) fn victim_mac(&self) -> Mac {
        self.victim_mac
    }

    pub(crate) fn send(&self, frame: &[u8]) {
        self.link.send(frame).unwrap();
    }

    /// Captures at the attacker's end.
    pub(crate) fn capture(&self) -> Capture {
        Capture::start(&self.attacker, LINK).unwrap()
    }

    /// The victim's neighbour entry of an address.
    pub(crate) fn neighbour(&self, address: &str) -> String {
        let line = ["ip", "neighbour", "show", address, "dev", LINK];
        self.victim.run(line).unwrap().stdout
    }

    /// The victim's route to an address.
    pub(crate) fn route(&self, address: &str) -> String {
        self.victim
            .attempt(["ip", "route", "get", address])
            .unwrap()
            .stdout
    }
}
