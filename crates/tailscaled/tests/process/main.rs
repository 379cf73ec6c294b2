//! A real tailscaled and a real Headscale in lab nodes.

#![expect(clippy::unwrap_used, reason = "a failed setup ends the test")]

mod harness;
mod join;
mod localapi_errors;
mod log_rotation;
mod no_calls_home;
mod packet_filter;
mod peers;
mod prefs;
mod supervisor;
