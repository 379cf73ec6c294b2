//! Nodes and pods as network namespaces, for tests. See README.md.
//!
//! A [`Node`] looks like a machine to the programs in it: its own netns, `/run`, `/etc`, `/opt` and `/var`. A
//! [`Pod`] is a netns on a node. Both end with the test process, even if it is killed, and so do all
//! processes in them. They have no names on the host, so runs do not collide.
//!
//! ```no_run
//! use lab::{Call, Netns, Node, tools};
//!
//! let node = Node::new("n1")?;
//! let pod = node.pod("p1")?;
//! let before = node.snapshot(&["/var/lib/cni"])?;
//! let call = Call::new("ADD").pod(&pod).path(tools::cni_plugin_dir());
//! let result = call.run(&node, tools::cni_plugin_dir().join("bridge"))?.ok_json()?;
//! pod.ping("10.0.0.1")?;
//! node.assert_unchanged(&before);
//! # anyhow::Ok(())
//! ```
//!
//! [`scenario`] has whole set-ups. Needs root, iproute2 and util-linux. For development only: nothing
//! that ships links it.

#![allow(
    missing_docs,
    reason = "a crate for tests; names and types say what it is"
)]

mod authority;
mod call;
mod capture;
mod cnitool;
mod environment;
mod fake;
mod files;
pub mod frames;
mod headscale;
mod http;
mod ignore;
pub mod kubernetes;
mod measure;
mod metrics_client;
mod moments;
mod netns;
mod node;
mod noop;
mod ping_stream;
mod pod;
mod process;
mod processes;
mod proxy;
mod raw_link;
mod rules;
pub mod scenario;
mod snapshot;
mod sniffer;
mod tailscaled;
pub mod tools;
mod traffic;
mod underlay;
mod wait;

pub use authority::{Certified, certify};
pub use call::{Call, Outcome};
pub use capture::Capture;
pub use cnitool::CniTool;
pub use environment::with_clean_environment;
pub use fake::{Fake, http_answer};
pub use headscale::{Headscale, open_policy};
pub use http::{Response, http_get};
pub use ignore::Ignore;
pub use measure::{Latency, Load, Throughput, latency, throughput};
pub use metrics_client::ScrapedMetrics;
pub use moments::{Injection, Moment, Syscalls, Trace};
pub use netns::{Address, Netns};
pub use node::Node;
pub use noop::{Noop, Seen};
pub use ping_stream::{Lost, PingStream};
pub use pod::Pod;
pub use process::{DEADLINE, Output, Running, attempt, run};
pub use proxy::Proxy;
pub use raw_link::RawLink;
pub use rules::without_dynamic_elements;
pub use rustix::process::Signal;
pub use snapshot::Snapshot;
pub use sniffer::{Sniffer, SnifferReport};
pub use tailscaled::{Join, TAILSCALED_SOCKET, Tailscaled};
pub use traffic::{EchoServer, Family};
pub use underlay::{Nat, NatKind, Port, UPLINK, Underlay};
pub use wait::{eventually, eventually_slowly};
