//! [`localapi`] talks to a tailscaled over its unix socket; [`supervisor`] runs one as a process.
//!
//! Both are async and decide nothing about the node. Everything that comes from tailscaled or a peer
//! is parsed, never trusted.

#![allow(missing_docs, reason = "not a library for others")]

mod backoff;
pub mod localapi;
pub mod supervisor;
