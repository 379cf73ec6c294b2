//! What pods leave behind: all of it, and what can be seen of it without much ado.

use lab::scenario::PluginNode;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use lab::{Ignore, Snapshot};

/// Everything that could remain, with whichever IPAM.
pub(crate) fn snapshot(plugin: &PluginNode) -> Snapshot {
    let ignore = Ignore::new().host_local("/var/lib/cni/networks/net");
    plugin.snapshot().ignoring(ignore)
}

/// What pods leave, as far as it can be seen without much ado, a line for each thing.
#[derive(PartialEq)]
pub(crate) struct Traces(BTreeSet<String>);

impl Traces {
    pub(crate) fn of(plugin: &PluginNode) -> Self {
        let mut lines: BTreeSet<String> = BTreeSet::new();
        lines.extend(plugin.ruleset().lines().map(|line| format!("nft {line}")));
        for file in ["dev", "route", "ipv6_route", "arp"] {
            let path = format!("/proc/{}/net/{file}", plugin.node.holder_pid());
            let text = fs::read_to_string(path).unwrap();
            lines.extend(text.lines().map(|line| {
                match file {
                    // Counters are no traces.
                    "dev" => line
                        .split(':')
                        .take(1)
                        .collect::<String>()
                        .trim()
                        .to_owned(),
                    "ipv6_route" => {
                        let words: Vec<_> = line.split_whitespace().collect();
                        [words[0], words[1], words[4], words[9]].join(" ")
                    }
                    _ => line.to_owned(),
                }
            }));
        }
        // Link-local and multicast: they come and go with their link.
        lines.retain(|line| !line.starts_with("ff0") && !line.starts_with("fe80"));
        list(&plugin.node.path("/var/lib/cni"), "", &mut lines);
        Self(lines)
    }

    /// What is gone (`-`) and what is new (`+`) in `later`.
    pub(crate) fn difference(&self, later: &Self) -> String {
        let gone = self
            .0
            .difference(&later.0)
            .map(|line| format!("- {line}\n"));
        let new = later
            .0
            .difference(&self.0)
            .map(|line| format!("+ {line}\n"));
        gone.chain(new).collect()
    }
}

/// All files in a directory, but for what is kept for the next lease and the next record.
fn list(dir: &Path, name: &str, lines: &mut BTreeSet<String>) {
    for entry in fs::read_dir(dir).into_iter().flatten() {
        let path = entry.unwrap().path();
        let file = path.file_name().unwrap().to_string_lossy();
        let name = format!("{name}/{file}");
        if path.is_dir() {
            list(&path, &name, lines);
        } else if !["lock", "last_reserved", "used.", "new.", "pending"]
            .iter()
            .any(|kept| file.starts_with(kept))
        {
            let text = fs::read(&path).unwrap();
            lines.insert(format!("{name} {}", String::from_utf8_lossy(&text)));
        }
    }
}
