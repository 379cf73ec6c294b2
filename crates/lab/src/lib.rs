//! Nodes and pods as network namespaces, for tests.
//!
//! A [`Node`] looks like a machine to what runs in it: its own network, `/run`, `/etc`, `/opt` and
//! `/var`. A [`Pod`] is a network namespace on a node. Both end with the test process, even when
//! that is killed, and so does all that runs in them. Nothing of them has a name outside, so runs do
//! not collide.
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
//! Needs root, iproute2 and util-linux. It is for development only: nothing that ships links it.

mod authority;
mod call;
mod capture;
mod cluster;
mod cnitool;
mod environment;
mod fake;
mod files;
pub mod frames;
mod headscale;
mod http;
mod ignore;
mod inhabitants;
pub mod kubernetes;
mod measure;
mod mesh_path;
mod moments;
mod netns;
mod node;
mod noop;
mod pod;
mod process;
mod proxy;
mod pulse;
mod raw_link;
mod readings;
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
pub use cluster::{Attached, Cluster, Grounds, JOINED, Member, POD_NETWORKS, Site, TAG};
pub use cnitool::CniTool;
pub use environment::with_clean_environment;
pub use fake::Fake;
pub use headscale::{Headscale, open_policy};
pub use http::{Response, http_answer, http_get};
pub use ignore::Ignore;
pub use measure::{Latency, Load, Throughput, latency, throughput};
pub use mesh_path::MeshPath;
pub use moments::{Injection, Moment, Syscalls, Trace};
pub use netns::{Address, Netns};
pub use node::Node;
pub use noop::{Noop, Seen};
pub use pod::Pod;
pub use process::{DEADLINE, Output, Running, attempt, run};
pub use proxy::Proxy;
pub use pulse::{Lost, Pulse};
pub use raw_link::RawLink;
pub use readings::Readings;
pub use rules::without_learnt;
pub use rustix::process::Signal;
pub use snapshot::Snapshot;
pub use sniffer::{Account, Sniffer};
pub use tailscaled::{Join, TAILSCALED_SOCKET, Tailscaled};
pub use traffic::{EchoServer, Family};
pub use underlay::{Nat, NatKind, Port, UPLINK, Underlay};
pub use wait::{eventually, eventually_and_gently};
