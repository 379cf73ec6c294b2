//! Names and options of the CNI configuration.

use std::collections::BTreeSet;

use cni::{IfName, NetworkName, PluginType};

use crate::path::KeyPath;
use crate::problem::Problem;
use crate::schema::{Cni, Config, Mode};

/// The name becomes a directory name.
const MAX_NAME: usize = 128;
/// Interfaces that can't be the bridge.
const RESERVED: [&str; 2] = ["lo", "headcni01"];

pub(super) fn problems(config: &Config) -> Vec<Problem> {
    let cni = &config.cni;
    let mut problems = Vec::new();
    if NetworkName::new(&cni.name).is_err() || cni.name.len() > MAX_NAME {
        problems.push(Problem::new(
            "cni.name",
            "not a network name: use up to 128 letters, digits, \"_\", \".\" and \"-\", as in headcni",
        ));
    }
    let bridge = &cni.bridge.name;
    if IfName::new(bridge).is_err() {
        problems.push(Problem::new(
            "cni.bridge.name",
            "not an interface name: use up to 15 bytes without \"/\", \":\" and spaces, as in headcni0",
        ));
    } else if RESERVED.contains(&bridge.as_str()) {
        problems.push(Problem::new(
            "cni.bridge.name",
            format!("{bridge} is another interface: use an unused name such as headcni0"),
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
            None => {
                "every plugin needs a type, the name of its program, such as \"tuning\"".to_owned()
            }
            Some(kind) if matches!(kind.as_str(), "headcni" | "headcni-ipam") => {
                format!("{kind} is in the configuration already: remove this one")
            }
            Some(kind) if !seen.insert(kind.clone()) => {
                format!("{kind} is a duplicate: merge its settings into one entry")
            }
            Some(_) => continue,
        };
        problems.push(Problem::new(key, text));
    }
    problems
}

/// Keys that would have no effect in bridge mode.
fn only_native(config: &Config) -> Vec<Problem> {
    if config.cni.mode == Mode::Native {
        return Vec::new();
    }
    let keys = [
        ("cni.logFile", config.cni.log_file.is_some()),
        ("cni.statusStrict", config.cni.status_strict),
        ("dns.magicDNS.enable", config.dns.magic_dns.enable),
    ];
    let set = keys.into_iter().filter(|(_, is_set)| *is_set);
    let problem = |(key, _)| {
        Problem::new(
            key,
            "only the headcni plugin supports it, and bridge mode does not use that: set cni.mode to \
             native, or remove the key",
        )
    };
    set.map(problem).collect()
}

/// All other files of an exclusive directory are renamed: it must contain only CNI configurations.
fn conf_dir(cni: &Cni) -> Option<Problem> {
    let dir = cni.conf_dir.as_deref()?;
    let is_shallow = dir.is_absolute() && dir.components().count() < 3;
    (cni.exclusive && is_shallow).then(|| {
        Problem::new(
            "cni.confDir",
            "is a system directory, and its files would be renamed: use a directory for CNI only, \
             such as /etc/cni/net.d, or set cni.exclusive to false",
        )
    })
}
