//! Netlink: sockets, batches of messages, attributes.

mod attr;
mod batch;
mod socket;

pub(crate) use attr::{AF_INET, AF_INET6, attribute, attributes, family_of, text_of, u32_of};
pub use attr::{ip_of, octets};
pub use batch::Batch;
pub(crate) use batch::{Message, Writer, flag, messages};
pub use socket::{Socket, Tolerated};
