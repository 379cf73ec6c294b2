//! Nodes and pods as network namespaces, for tests.
//!
//! A [`Node`] looks like a machine to what runs in it: its own network, `/run`, `/etc`, `/opt` and
//! `/var`. A [`Pod`] is a network namespace on a node. Both end with the test process, even when
//! that is killed, and nothing of them has a name outside, so runs do not collide.
//!
//! Needs root, iproute2 and util-linux. It is for development only: nothing that ships links it.

mod files;
mod ignore;
mod netns;
mod node;
mod pod;
mod process;
mod rules;
mod snapshot;
pub mod tools;
mod traffic;
mod wait;

pub use ignore::Ignore;
pub use netns::{Address, Netns};
pub use node::Node;
pub use pod::Pod;
pub use process::{DEADLINE, Output, Running, attempt, run};
pub use snapshot::Snapshot;
pub use traffic::{EchoServer, Family};
pub use wait::eventually;
