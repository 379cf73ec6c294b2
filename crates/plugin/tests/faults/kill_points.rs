//! kill -9 at a chosen system call, and a quick look at what remains.

use lab::scenario::PluginNode;
use std::fs;

use lab::{Call, Moment, Netns, Syscalls};

use crate::networks::{LEASE_DIR, headcni, succeeded};

/// Runs a call of headcni, which must succeed, and returns these of its system calls.
pub(crate) fn moments(plugin: &PluginNode, call: &Call, which: Syscalls) -> Vec<Moment> {
    let trace = call.trace(&plugin.node, headcni(), which).unwrap();
    succeeded(trace.outcome);
    trace.moments
}

/// Runs a call of headcni and kills it at a moment. Returns whether that moment came: how often
/// headcni looks whether a plugin has ended is not the same each time.
pub(crate) fn kill_at(plugin: &PluginNode, call: &Call, moment: &Moment) -> bool {
    call.kill_at(&plugin.node, headcni(), moment).unwrap()
}

/// What a container leaves, as far as it can be seen without much ado.
#[derive(Debug, PartialEq)]
pub(crate) struct Traces {
    links: Vec<String>,
    leases: Vec<String>,
    records: Vec<String>,
    rules: Vec<String>,
}

impl Traces {
    pub(crate) fn of(plugin: &PluginNode) -> Self {
        let holder = plugin.node.holder_pid();
        let devices = fs::read_to_string(format!("/proc/{holder}/net/dev")).unwrap();
        let names = devices.lines().filter_map(|line| line.split_once(':'));
        let rules = plugin.node.run(["iptables-save"]).unwrap().stdout;
        let rules = rules.lines().filter(|line| line.starts_with("-A"));
        let mut leases = plugin.files(LEASE_DIR);
        leases.retain(|name| name != "last_reserved_ip.0");
        let mut traces = Self {
            links: names.map(|(name, _)| name.trim().to_owned()).collect(),
            leases,
            records: plugin.records(),
            rules: rules.map(str::to_owned).collect(),
        };
        traces.links.sort();
        traces.rules.sort();
        traces
    }
}
