//! Addresses for containers: leased, remembered, released.
//!
//! [`Store`] is the lease store on disk, in host-local's own layout; [`Session`] is exclusive
//! access to it; [`Settings`] is what an `ipam` configuration says. The plugin `headcni-ipam` is
//! a thin program around them; whoever else needs leases links this library.

mod bitmap;
mod conf;
mod lock;
mod range;
mod store;
mod strategy;
mod verbs;

pub use conf::Settings;
pub use range::{Range, RangeError, RangeSet};
pub use store::{
    Lease, LeaseRequest, Owner, Presence, SeenLease, Session, Store, StoreError, Usage,
};
pub use strategy::{Strategy, UnknownStrategy};
pub use verbs::{InBoot, add, check, collect_garbage, del, in_boot, status};
