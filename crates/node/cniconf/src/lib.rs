//! The files that container runtimes and the plugin read: the CNI configuration and `subnet.env`.
//!
//! [`desired`] says what they should be, [`ensure`] makes them so, [`watch`] tells when somebody has
//! changed them, [`remove`] takes them away. A document that runtimes would refuse is never
//! written, and nothing is withdrawn because somebody can't be reached. Configurations of others are
//! set aside, never deleted.

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
