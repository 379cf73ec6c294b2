//! rtnetlink: links, addresses, routes, rules, neighbours, qdiscs.

mod addr;
mod link;
mod mac;
mod neigh;
mod qdisc;
mod route;
mod rule;

pub use addr::{Address, addresses, usable_addresses};
pub use link::{
    Ipv4Conf, Link, LinkSettings, VethEnd, VethPair, count_bridge_ports, delete_group, delete_link,
    link, links, move_to_group,
};
pub use mac::{Mac, ParseMacError};
pub use neigh::{Neighbour, permanent_neighbours};
pub use qdisc::TokenBucket;
pub use route::{PROTO_HEADCNI, PROTO_RA, Route, RouteKind, TABLE_MAIN, routes};
pub use rule::{DestinationRule, Mark, Rule, RuleAction, destination_rules, rules};
