//! rtnetlink: links, addresses, routes, rules, neighbours, qdiscs.

mod addr;
mod link;
mod mac;
mod neigh;
mod qdisc;
mod route;
mod rule;

pub use addr::{Address, addresses, settled_addresses};
pub use link::{
    End, Ipv4Conf, Link, NewVeth, Settings, delete_group, delete_link, link, links, move_to_group,
    ports_of,
};
pub use mac::{Mac, NoMac};
pub use neigh::{Neighbour, permanent_neighbours};
pub use qdisc::TokenBucket;
pub use route::{PROTO_HEADCNI, PROTO_ROUTER, Route, RouteKind, TABLE_MAIN, routes};
pub use rule::{DestinationRule, Mark, Rule, RuleAction, destination_rules, rules};
