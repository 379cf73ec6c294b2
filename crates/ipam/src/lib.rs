//! IP address management for containers, with leases in host-local's directory layout.
//!
//! [`Verbs`] runs the CNI verbs of an IPAM plugin; the binary `headcni-ipam` and the native
//! datapath of `headcni` call it. [`LeaseStore`] is the store on disk; README.md describes its
//! design.

mod bitmap;
mod conf;
mod lock;
mod range;
mod retry;
mod store;
mod strategy;
mod verbs;

pub use conf::IpamConf;
pub use range::{Range, RangeError, RangeSet};
pub use retry::retry;
pub use store::{LeaseOwner, LeaseSnapshot, LeaseStore, LockedStore, StoreError, StorePresence};
pub use strategy::{AllocationStrategy, UnknownStrategy};
pub use verbs::Verbs;
