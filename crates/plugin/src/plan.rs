//! Which plugins to execute, in which order, and with what configuration.
//!
//! Pure: the subnet file is read by the function that the caller passes in.

use std::path::PathBuf;

use api::paths;
use cni::{Call, Error, Keys, PluginType, Verb};
use serde_json::{Map, Value};
use state::OWN_TYPE;

use crate::conf::{Conf, Mode, located};
use crate::delegate::{CompleteError, LoadSubnets, agreed, complete};
use crate::native;
use crate::shape::Shape;

/// One plugin to execute.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) kind: PluginType,
    /// Its configuration, complete but for `prevResult`.
    pub(crate) conf: Map<String, Value>,
    /// What our own settings make of its result.
    pub(crate) shape: Shape,
}

/// All that a call will do.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) steps: Vec<Step>,
    /// What works, but hardly as meant.
    pub(crate) warnings: Vec<String>,
}

/// Turns a configuration into the plugins to execute.
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
            let step = native_step(call, call.conf.keys(), "", load)?;
            Ok(Plan {
                steps: vec![step],
                warnings: Vec::new(),
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
        let makes_interface = index == 0 || kind.as_str() == OWN_TYPE;
        let inherited: &[&str] = match kind.as_str() {
            OWN_TYPE => &[
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
        let step = if kind.as_str() == OWN_TYPE {
            own_member(call, &member, &path, load)?
        } else {
            let given = runtime_config(call, Keys::new(&member, &path), Undeclared::Hidden)?;
            Step {
                kind,
                conf: finished(call, member, given),
                shape: Shape::default(),
            }
        };
        plan.steps.push(step);
    }
    Ok(plan)
}

/// The member would execute it, and must not be led out of `CNI_PATH` by it.
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

/// A member of type `headcni`: what it would execute is executed in its place.
fn own_member(
    call: &Call,
    member: &Map<String, Value>,
    path: &str,
    load: LoadSubnets<'_>,
) -> Result<Step, CompleteError> {
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

/// The datapath of our own, as one step.
fn native_step(
    call: &Call,
    entry: &Map<String, Value>,
    path: &str,
    load: LoadSubnets<'_>,
) -> Result<Step, CompleteError> {
    let keys = Keys::new(entry, path);
    let given = runtime_config(call, keys, undeclared(path))?;
    let mut conf = match native::complete(keys, &given, &subnet_file(call, keys)?, load) {
        // What there is to undo follows from names; whatever else is wrong doesn't matter.
        Err(_) if matches!(call.verb, Verb::Del | Verb::Gc) => entry.clone(),
        completed => completed?,
    };
    conf.insert("type".to_owned(), OWN_TYPE.into());
    let mut shape = Shape::parse(keys)?;
    shape.mtu_bytes = Keys::new(&conf, path).mtu("mtu")?;
    Ok(Step {
        kind: PluginType::new("type", OWN_TYPE)?,
        conf: finished(call, conf, given),
        shape,
    })
}

fn subnet_file(call: &Call, keys: Keys<'_>) -> Result<PathBuf, Error> {
    located(
        call,
        keys,
        "subnetFile",
        "HEADCNI_SUBNET_FILE",
        paths::SUBNET_FILE,
    )
}

/// A member of a chain sees what it declares; a sole plugin sees what its wrapper was given.
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
) -> Result<Step, CompleteError> {
    let keys = Keys::new(entry, path);
    let subnet_file = subnet_file(call, keys)?;
    let delegate_path = keys.name("delegate");
    let declaring = [Keys::new(delegate, &delegate_path), keys]
        .into_iter()
        .find(|keys| keys.value("capabilities").is_some())
        .unwrap_or(keys);
    let given = runtime_config(call, declaring, undeclared(path))?;
    let (kind, conf) = complete(keys, delegate, &given, &subnet_file, load)?;
    let mut shape = Shape::parse(keys)?;
    shape.mtu_bytes = Keys::new(&conf, &delegate_path).mtu("mtu")?;
    Ok(Step {
        kind,
        conf: finished(call, conf, given),
        shape,
    })
}

/// What a plugin without `capabilities` sees of `runtimeConfig`.
#[derive(Clone, Copy, PartialEq)]
enum Undeclared {
    Shown,
    Hidden,
}

/// The part of the call's `runtimeConfig` that a plugin with these keys may see.
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

/// Adds what the protocol demands of every configuration, and removes what it forbids.
fn finished(
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

/// Capabilities that a member declares in vain: the runtime gives nothing that we don't declare.
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
