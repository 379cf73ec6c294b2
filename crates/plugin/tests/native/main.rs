//! The native datapath, as pods and runtimes meet it: real namespaces, real packets.

#![expect(
    clippy::unwrap_used,
    reason = "whatever fails outside the code under test shall end the test"
)]

mod addresses;
mod attacks;
mod bandwidth;
mod check;
mod check_mismatches;
mod connections;
mod del;
mod first_add;
mod first_packet;
mod full_disk;
mod gc;
mod gc_without_records;
mod host_ports;
mod ipam_plugin_faults;
mod kill_sweep;
mod kills;
mod mtu;
mod networks;
mod node_state;
mod outside_node;
mod pod_lifecycle;
mod random_calls;
mod reboots;
mod refused_adds;
mod requests;
mod runtimes;
mod second_interface;
mod seed_001;
mod seeded_random;
mod static_rules;
mod status;
mod syscall_cost;
mod syscall_errors;
mod traffic;
