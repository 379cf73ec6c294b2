//! The files that container runtimes and the plugin read: the CNI configuration and `subnet.env`.
//!
//! [`desired`] computes their contents, [`ensure`] writes them, [`watch`] reports changes, and
//! [`remove`] deletes them. A conflist that the runtime would refuse is never written. Other CNI
//! configurations are renamed, never deleted.

mod check;
mod desired;
mod document;
mod ensure;
mod error;
mod ledger;
mod others;
mod remove;
mod watch;

pub use desired::{Desired, desired};
pub use ensure::{Ensured, Restored, ensure, restore_after_boot};
pub use error::CniConfError;
pub use remove::remove;
pub use watch::{Watch, watch};
