//! The host's cgroups on a node: a runtime wants some, and a node has none of its own.
//!
//! What a runtime makes there, the host has. So each test gives it a name of its own, and takes it
//! away again.

use std::fs;

use lab::{Netns, Node};

/// Shows the host's cgroup hierarchies on the node: its own sysfs has none.
pub(crate) fn mount(node: &Node) {
    let flags = ["rw", "relatime", "nosuid", "nodev", "noexec"];
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    let mounts = mounts
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>());
    let mut is_first = true;
    for mount in mounts.filter(|mount| ["cgroup", "cgroup2"].contains(&mount[2])) {
        let (place, kind) = (mount[1], mount[2]);
        if is_first && place != "/sys/fs/cgroup" {
            node.run(["mount", "-t", "tmpfs", "tmpfs", "/sys/fs/cgroup"])
                .unwrap();
        }
        is_first = false;
        let options = mount[3].split(',').filter(|option| !flags.contains(option));
        let options: Vec<_> = match kind {
            // A hierarchy without a controller has a name, and wants to hear that it has none.
            "cgroup" if mount[3].contains("name=") => options.chain(["none"]).collect(),
            "cgroup" => options.collect(),
            _ => vec!["rw"],
        };
        node.run(["mkdir", "-p", place]).unwrap();
        let line = ["mount", "-t", kind, "-o", &options.join(","), kind, place];
        node.run(line).unwrap();
    }
}

/// Takes away a cgroup, which must be empty, from all hierarchies that the node shows.
pub(crate) fn remove(node: &Node, name: &str) {
    let root = node.path("/sys/fs/cgroup");
    let hierarchies = fs::read_dir(&root).into_iter().flatten().flatten();
    let places = hierarchies.map(|entry| entry.path()).chain([root]);
    for place in places {
        // Most often because it is not in this hierarchy, or because this is none.
        let _ = fs::remove_dir(place.join(name));
    }
}
