//! rtnetlink notifications.

use super::{Change, bit};
use crate::netlink::{Message, attribute, ip_of, text_of, u32_of};

/// `RTNLGRP_*`, `include/uapi/linux/rtnetlink.h`.
pub(super) const GROUPS: u32 = bit(LINK)
    | bit(IPV4_IFADDR)
    | bit(IPV6_IFADDR)
    | bit(IPV4_ROUTE)
    | bit(IPV6_ROUTE)
    | bit(IPV4_RULE)
    | bit(IPV6_RULE)
    | bit(IPV4_NETCONF)
    | bit(IPV6_NETCONF);
const LINK: u32 = 1;
const IPV4_IFADDR: u32 = 5;
const IPV4_ROUTE: u32 = 7;
const IPV4_RULE: u32 = 8;
const IPV6_IFADDR: u32 = 9;
const IPV6_ROUTE: u32 = 11;
const IPV6_RULE: u32 = 19;
const IPV4_NETCONF: u32 = 24;
const IPV6_NETCONF: u32 = 25;

const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;
const RTM_DELROUTE: u16 = 25;
const RTM_DELRULE: u16 = 33;
const RTM_NEWNETCONF: u16 = 80;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFLA_IFNAME: u16 = 3;
const IFLA_GROUP: u16 = 27;
const IFF_UP: u32 = 1;
const FRA_PROTOCOL: u16 = 21;
const NETCONFA_IFINDEX: u16 = 1;
const NETCONFA_FORWARDING: u16 = 2;
const NETCONFA_IFINDEX_ALL: i32 = -1;

pub(super) fn read(message: &Message<'_>) -> Option<Change> {
    let payload = message.payload;
    match message.kind {
        RTM_NEWLINK | RTM_DELLINK => link(message),
        RTM_NEWADDR => {
            let attrs = payload.get(8..)?;
            // On a point-to-point link IFA_ADDRESS is the peer's.
            let own = attribute(attrs, IFA_LOCAL).or_else(|| attribute(attrs, IFA_ADDRESS));
            Some(Change::Address {
                address: ip_of(own?)?,
            })
        }
        RTM_DELADDR => Some(Change::AddressGone {
            link: u32_of(payload.get(4..)?)?,
        }),
        RTM_DELROUTE => Some(Change::RouteGone {
            protocol: *payload.get(5)?,
        }),
        RTM_DELRULE => {
            let protocol = attribute(payload.get(12..)?, FRA_PROTOCOL)?;
            Some(Change::RuleGone {
                protocol: *protocol.first()?,
            })
        }
        RTM_NEWNETCONF => {
            // After `struct netconfmsg`: one byte and padding.
            let attrs = payload.get(4..)?;
            let index = u32_of(attribute(attrs, NETCONFA_IFINDEX)?)?.cast_signed();
            let value = u32_of(attribute(attrs, NETCONFA_FORWARDING)?)?;
            (index == NETCONFA_IFINDEX_ALL).then_some(Change::Forwarding { is_on: value != 0 })
        }
        _ => None,
    }
}

fn link(message: &Message<'_>) -> Option<Change> {
    let attrs = message.payload.get(16..)?;
    // A bridge reports its ports in the same kind of message, without a group.
    let group = u32_of(attribute(attrs, IFLA_GROUP)?)?;
    let name = attribute(attrs, IFLA_IFNAME).map(text_of)?;
    if message.kind == RTM_DELLINK {
        return Some(Change::LinkGone { name, group });
    }
    Some(Change::Link {
        index: u32_of(message.payload.get(4..)?)?,
        name,
        group,
        is_up: u32_of(message.payload.get(8..)?)? & IFF_UP != 0,
    })
}
