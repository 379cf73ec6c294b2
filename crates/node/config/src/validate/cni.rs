//! What runtimes and other plugins must be able to take.

use std::collections::BTreeSet;

use cni::{IfName, NetworkName, PluginType};

use crate::path::KeyPath;
use crate::problem::Problem;
use crate::schema::{Cni, Config, Mode};

/// A name becomes a directory's; nobody needs more.
const LONGEST_NAME: usize = 128;
/// Interfaces that are not a bridge of ours to make.
const TAKEN: [&str; 2] = ["lo", "headcni01"];

pub(super) fn problems(config: &Config) -> Vec<Problem> {
    let cni = &config.cni;
    let mut problems = Vec::new();
    if NetworkName::new(&cni.name).is_err() || cni.name.len() > LONGEST_NAME {
        problems.push(Problem::new(
            "cni.name",
            "not a network's name: up to 128 letters, digits, \"_\", \".\" and \"-\", as headcni",
        ));
    }
    let bridge = &cni.bridge.name;
    if IfName::new(bridge).is_err() {
        problems.push(Problem::new(
            "cni.bridge.name",
            "not an interface's name: up to 15 bytes without \"/\", \":\" and blanks, as headcni0",
        ));
    } else if TAKEN.contains(&bridge.as_str()) {
        problems.push(Problem::new(
            "cni.bridge.name",
            format!("{bridge} is another interface: take a name of its own, as headcni0"),
        ));
    }
    problems.extend(plugins(cni));
    problems.extend(only_native(config));
    problems.extend(conf_dir(cni));
    problems
}

fn plugins(cni: &Cni) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut seen = BTreeSet::new();
    for (index, plugin) in cni.cni_plugins.iter().enumerate() {
        let key = KeyPath::from("cni.cniPlugins").item(index).key("type");
        let kind = plugin.get("type").and_then(|kind| kind.as_str());
        let kind = kind.and_then(|kind| PluginType::new("type", kind).ok());
        let text = match &kind {
            None => "every plugin needs a type, the name of its program: as \"tuning\"".to_owned(),
            Some(kind) if matches!(kind.as_str(), "headcni" | "headcni-ipam") => {
                format!("{kind} is in the configuration already: take this one away")
            }
            Some(kind) if !seen.insert(kind.clone()) => {
                format!("{kind} stands here a second time: put all its settings into one")
            }
            Some(_) => continue,
        };
        problems.push(Problem::new(key, text));
    }
    problems
}

/// Keys that nobody reads in bridge mode, though somebody relies on them.
fn only_native(config: &Config) -> Vec<Problem> {
    if config.cni.mode == Mode::Native {
        return Vec::new();
    }
    let keys = [
        ("cni.logFile", config.cni.log_file.is_some()),
        ("cni.statusStrict", config.cni.status_strict),
        ("dns.magicDNS.enable", config.dns.magic_dns.enable),
    ];
    let said = keys.into_iter().filter(|(_, is_said)| *is_said);
    let problem = |(key, _)| {
        Problem::new(
            key,
            "the plugin headcni has it, and in bridge mode it takes no part: set cni.mode to \
             native, or take the key away",
        )
    };
    said.map(problem).collect()
}

/// In an exclusive directory, all other configurations are renamed: it must be CNI's alone.
fn conf_dir(cni: &Cni) -> Option<Problem> {
    let dir = cni.conf_dir.as_deref()?;
    let is_shallow = dir.is_absolute() && dir.components().count() < 3;
    (cni.exclusive && is_shallow).then(|| {
        Problem::new(
            "cni.confDir",
            "is the system's, and files in it would be renamed: name a directory that is CNI's \
             alone, as /etc/cni/net.d, or set cni.exclusive to false",
        )
    })
}
