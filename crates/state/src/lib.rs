//! What headcni remembers of an attachment, for the plugin that makes it and the daemon that looks
//! after it.
//!
//! [`Store`] keeps a [`Record`] per attachment, [`Held`] is the right to work on one. [`link`] has
//! what follows from the names of an attachment alone. Synchronous; it touches files and nothing
//! else, and decides on nothing.

pub mod link;
pub mod netns;
#[cfg(target_os = "linux")]
mod ports;
mod record;
mod store;

#[cfg(target_os = "linux")]
pub use ports::Ports;
pub use record::{OWN_TYPE, Progress, Record, RecordedStep, addresses_in, boot_id};
pub use store::{
    Content, Held, STAMP_VARIABLE, Sight, Stamp, StateError, Store, for_each_settled, networks,
};
