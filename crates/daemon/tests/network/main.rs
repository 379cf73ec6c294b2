//! The network that all pods share, on lab nodes: made, wiped by others, and back.
//!
//! Pods are made by the real plugin; wipes are the commands that administrators and other programs
//! use. Everything happens in namespaces of the lab.

#![expect(
    clippy::unwrap_used,
    reason = "whatever fails outside the code under test shall end the test"
)]

mod firewalls;
mod flaps;
mod kept;
mod made;
mod mesh;
mod removed;
mod scene;
mod wiped;
