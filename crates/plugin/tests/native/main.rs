//! The native datapath, as pods and runtimes meet it: real namespaces, real packets.

#![expect(
    clippy::unwrap_used,
    reason = "whatever fails outside the code under test shall end the test"
)]

mod addresses;
mod attacks;
mod bandwidth;
mod cost;
mod damages;
mod dice;
mod disks;
mod failing;
mod first_packet;
mod garbage;
mod host_ports;
mod kill;
mod killing;
mod lives;
mod mtu;
mod once;
mod reboots;
mod refusing;
mod requests;
mod rounds;
mod runtimes;
mod scene;
mod scripts;
mod second;
mod seed;
mod static_rules;
mod statuses;
mod talk;
mod traces;
mod traffic;
mod undoing;
mod verbs;
mod wiped;
mod world;
