//! Which plugins to execute, in which order, with which configuration.
//!
//! Pure: the caller passes in the function that reads the subnet file.

use std::path::PathBuf;

use api::paths;
use attachment::{PLUGIN_TYPE, RecordedPlugin};
use cni::{Call, Error, Keys, PluginType, Verb};
use serde_json::{Map, Value};

use crate::conf::{Conf, Mode, path_setting};
use crate::delegate::{CompleteError, LoadSubnets, agreed, complete};
use crate::native_conf;
use crate::result_overrides::ResultOverrides;

#[derive(Debug)]
pub(crate) struct PlannedStep {
    pub(crate) plugin: RecordedPlugin,
    pub(crate) overrides: ResultOverrides,
}

#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) steps: Vec<PlannedStep>,
    pub(crate) warnings: Vec<String>,
}

impl Plan {
    pub(crate) fn into_plugins(self) -> Vec<RecordedPlugin> {
        self.steps.into_iter().map(|step| step.plugin).collect()
    }
}

pub(crate) fn plan(call: &Call, conf: &Conf, load: LoadSubnets<'_>) -> Result<Plan, CompleteError> {
    match conf.mode.as_ref().map_err(Clone::clone)? {
        Mode::Chain(members) => chain(call, members, load),
        Mode::Delegate(delegate) => {
            let step = delegate_step(call, call.conf.keys(), "", delegate, load)?;
            Ok(Plan {
                steps: vec![step],
                warnings: Vec::new(),
            })
        }
        Mode::Native => {
            let keys = call.conf.keys();
            let step = native_step(call, keys, "", load)?;
            Ok(Plan {
                steps: vec![step],
                warnings: native_conf::warnings(Keys::new(keys, "")),
            })
        }
    }
}

fn chain(
    call: &Call,
    members: &[Map<String, Value>],
    load: LoadSubnets<'_>,
) -> Result<Plan, CompleteError> {
    let outer = Keys::new(call.conf.keys(), "");
    let mut plan = Plan::default();
    for (index, member) in members.iter().enumerate() {
        let path = format!("plugins[{index}]");
        let keys = Keys::new(member, &path);
        let kind = keys.text("type")?.ok_or_else(|| {
            Error::config(format!(
                "{} is missing: name the plugin to execute",
                keys.name("type")
            ))
        })?;
        let kind = PluginType::new(&keys.name("type"), kind)?;
        check_ipam_type(keys)?;
        plan.warnings.extend(unreachable_capabilities(outer, keys)?);

        let mut member = member.clone();
        let makes_interface = index == 0 || kind.as_str() == PLUGIN_TYPE;
        let inherited: &[&str] = match kind.as_str() {
            PLUGIN_TYPE => &[
                "args",
                "ipam",
                "mtu",
                "subnetFile",
                "enable_ipv6",
                "enable_network_policy",
                "guard_pod_cidr",
                "headscale_url",
                "hostport_localhost",
                "pod_cidr",
                "policy_fail_mode",
                "service_cidr",
                "status_strict",
                "tailscale_socket",
            ],
            _ if makes_interface => &["args", "mtu"],
            _ => &["args"],
        };
        for key in inherited {
            let value = match *key {
                "ipam" | "mtu" => agreed(outer, key, keys, key)?,
                _ => keys.value(key).or_else(|| outer.value(key)),
            };
            if let Some(value) = value {
                member.insert((*key).to_owned(), value.clone());
            }
        }
        let step = if kind.as_str() == PLUGIN_TYPE {
            let keys = Keys::new(&member, &path);
            if keys.value("delegate").is_none() {
                plan.warnings.extend(native_conf::warnings(keys));
            }
            own_member(call, &member, &path, load)?
        } else {
            let given = runtime_config(call, Keys::new(&member, &path), Undeclared::Hidden)?;
            PlannedStep {
                plugin: RecordedPlugin::Delegate {
                    kind,
                    config: protocol_keys(call, member, given),
                },
                overrides: ResultOverrides::default(),
            }
        };
        plan.steps.push(step);
    }
    Ok(plan)
}

/// The member executes its IPAM plugin, whose type must not lead out of `CNI_PATH`.
fn check_ipam_type(member: Keys<'_>) -> Result<(), Error> {
    if let Some(ipam) = member.object("ipam")? {
        let path = member.name("ipam");
        let keys = Keys::new(ipam, &path);
        if let Some(kind) = keys.text("type")?.filter(|kind| !kind.is_empty()) {
            PluginType::new(&keys.name("type"), kind)?;
        }
    }
    Ok(())
}

/// A member of type `headcni`: its delegate, or the native datapath, becomes the step.
fn own_member(
    call: &Call,
    member: &Map<String, Value>,
    path: &str,
    load: LoadSubnets<'_>,
) -> Result<PlannedStep, CompleteError> {
    let keys = Keys::new(member, path);
    if keys.value("plugins").is_some() {
        return Err(Error::config(format!(
            "{} is a chain within a chain: list its members in the outer plugins",
            keys.name("plugins")
        ))
        .into());
    }
    match keys.object("delegate")? {
        Some(delegate) => delegate_step(call, member, path, delegate, load),
        None => native_step(call, member, path, load),
    }
}

fn native_step(
    call: &Call,
    entry: &Map<String, Value>,
    path: &str,
    load: LoadSubnets<'_>,
) -> Result<PlannedStep, CompleteError> {
    let keys = Keys::new(entry, path);
    let given = runtime_config(call, keys, undeclared(path))?;
    let mut conf = match native_conf::resolve(call, keys, &given, &subnet_file(call, keys)?, load) {
        // The names of the attachment are enough to undo it.
        Err(_) if matches!(call.verb, Verb::Del | Verb::Gc) => {
            native_conf::for_cleanup(keys, &given)
        }
        resolved => resolved?,
    };
    conf.keys.insert("type".to_owned(), PLUGIN_TYPE.into());
    conf.keys = protocol_keys(call, conf.keys, given);
    let mut overrides = step_overrides(keys, path)?;
    overrides.mtu_bytes = Some(conf.mtu).filter(|mtu| *mtu > 0);
    Ok(PlannedStep {
        plugin: RecordedPlugin::Native(Box::new(conf)),
        overrides,
    })
}

/// Overrides of a step; `magic_dns` of a sole plugin is applied to the result of the call.
fn step_overrides(keys: Keys<'_>, path: &str) -> Result<ResultOverrides, Error> {
    let mut overrides = ResultOverrides::parse(keys)?;
    if path.is_empty() {
        overrides.magic_dns = None;
    }
    Ok(overrides)
}

fn subnet_file(call: &Call, keys: Keys<'_>) -> Result<PathBuf, Error> {
    path_setting(
        call,
        keys,
        "subnetFile",
        "HEADCNI_SUBNET_FILE",
        paths::SUBNET_FILE,
    )
}

/// A member of a chain sees the capabilities that it declares, a sole plugin sees all.
fn undeclared(path: &str) -> Undeclared {
    if path.is_empty() {
        Undeclared::Shown
    } else {
        Undeclared::Hidden
    }
}

fn delegate_step(
    call: &Call,
    entry: &Map<String, Value>,
    path: &str,
    delegate: &Map<String, Value>,
    load: LoadSubnets<'_>,
) -> Result<PlannedStep, CompleteError> {
    let keys = Keys::new(entry, path);
    let subnet_file = subnet_file(call, keys)?;
    let delegate_path = keys.name("delegate");
    let declaring = [Keys::new(delegate, &delegate_path), keys]
        .into_iter()
        .find(|keys| keys.value("capabilities").is_some())
        .unwrap_or(keys);
    let given = runtime_config(call, declaring, undeclared(path))?;
    let (kind, conf) = complete(keys, delegate, &given, &subnet_file, load)?;
    let mut overrides = step_overrides(keys, path)?;
    overrides.mtu_bytes = Keys::new(&conf, &delegate_path).mtu("mtu")?;
    Ok(PlannedStep {
        plugin: RecordedPlugin::Delegate {
            kind,
            config: protocol_keys(call, conf, given),
        },
        overrides,
    })
}

/// `runtimeConfig` for a plugin without `capabilities`.
#[derive(Clone, Copy, PartialEq)]
enum Undeclared {
    Shown,
    Hidden,
}

/// The part of the call's `runtimeConfig` for the capabilities of a plugin.
fn runtime_config(
    call: &Call,
    keys: Keys<'_>,
    undeclared: Undeclared,
) -> Result<Map<String, Value>, Error> {
    let given = Keys::new(call.conf.keys(), "").object("runtimeConfig")?;
    let declared = keys.object("capabilities")?;
    let is_seen = |name: &str| match declared {
        Some(declared) => declared.get(name).and_then(Value::as_bool) == Some(true),
        None => undeclared == Undeclared::Shown,
    };
    Ok(given
        .into_iter()
        .flatten()
        .filter(|(name, _)| is_seen(name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect())
}

/// Sets the keys that the protocol requires, and removes those that a delegate must not get.
fn protocol_keys(
    call: &Call,
    mut conf: Map<String, Value>,
    runtime_config: Map<String, Value>,
) -> Map<String, Value> {
    conf.remove("capabilities");
    conf.remove("prevResult");
    conf.remove("runtimeConfig");
    conf.retain(|key, _| !key.starts_with("cni.dev/"));
    conf.insert("name".to_owned(), call.conf.name().as_str().into());
    conf.insert("cniVersion".to_owned(), call.conf.version().as_str().into());
    if !runtime_config.is_empty() {
        conf.insert("runtimeConfig".to_owned(), Value::Object(runtime_config));
    }
    if call.verb == Verb::Gc {
        let lists = call
            .conf
            .keys()
            .iter()
            .filter(|(key, _)| key.starts_with("cni.dev/"));
        conf.extend(lists.map(|(key, value)| (key.clone(), value.clone())));
    }
    conf
}

/// Warnings for capabilities of a member that the outer configuration doesn't declare: the runtime
/// does not pass them.
fn unreachable_capabilities(outer: Keys<'_>, member: Keys<'_>) -> Result<Vec<String>, Error> {
    let declared = member.object("capabilities")?.into_iter().flatten();
    let wanted = declared
        .filter(|(_, value)| value.as_bool() == Some(true))
        .map(|(name, _)| name);
    let reachable = |name: &String| {
        let of = |key| outer.value(key).and_then(|map: &Value| map.get(name));
        of("runtimeConfig").is_some() || of("capabilities").and_then(Value::as_bool) == Some(true)
    };
    Ok(wanted
        .filter(|name| !reachable(name))
        .map(|name| {
            format!(
                "{} {name:?} has no effect: the runtime passes it only if the configuration of \
                 headcni itself declares it, \"capabilities\": {{{name:?}: true}}",
                member.name("capabilities")
            )
        })
        .collect())
}

#[cfg(test)]
mod tests;
