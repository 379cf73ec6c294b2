//! Ethernet frames made by hand, for tests that attack.
//!
//! Everything is right unless the caller says otherwise: lengths, checksums, hop limits. So a frame
//! that is dropped was dropped for the one thing that is wrong with it, such as its source. A frame
//! is put together from the inside out and sent with [`RawLink`](crate::RawLink):
//!
//! ```no_run
//! use lab::frames::{Ethernet, Icmp, Ipv4};
//! use lab::{Capture, Netns, RawLink};
//! use std::time::Duration;
//!
//! # let node = lab::Node::new("n1")?;
//! # let pod = node.pod("p1")?;
//! let link = RawLink::open(&pod, "eth0")?;
//! let mut seen = Capture::start(&node, "cni0")?;
//! let (forged, gateway) = ([10, 0, 0, 99].into(), [10, 0, 0, 1].into());
//! let packet = Ipv4::new(forged, gateway).icmp(Icmp::echo_request(1, 1, b"hello"));
//! link.send(&Ethernet::new(link.mac(), "02:00:00:00:00:01".parse()?).ipv4(&packet))?;
//! seen.first(Duration::from_secs(5), |frame| frame.ip_source() == Some(forged.into()))?;
//! # anyhow::Ok(())
//! ```

mod arp;
mod dhcp;
mod ethernet;
mod frame;
mod icmp;
mod icmpv6;
mod ipv4;
mod ipv6;
mod mac;
mod segment;

pub use arp::Arp;
pub use dhcp::Dhcp;
pub use ethernet::{EtherType, Ethernet};
pub use frame::{Direction, Frame};
pub use icmp::Icmp;
pub use icmpv6::{Icmpv6, RouterAdvertisement};
pub use ipv4::Ipv4;
pub use ipv6::Ipv6;
pub use mac::Mac;
pub use segment::Protocol;
