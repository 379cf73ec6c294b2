//! Networks whose calls the tests break: headcni over bridge, portmap and a third plugin.

use lab::scenario::PluginNode;
use lab::{Call, Ignore, Netns, Outcome};
use serde_json::{Value, json};

pub(crate) use lab::tools::headcni;

/// The records of [`NETWORK`].
pub(crate) const RECORD_DIR: &str = "/var/lib/cni/headcni/faultnet";
/// The leases of host-local for [`NETWORK`].
pub(crate) const LEASE_DIR: &str = "/var/lib/cni/networks/faultnet";
pub(crate) const NETWORK: &str = "faultnet";

pub(crate) fn plugin_node() -> PluginNode {
    // The lock of iptables-legacy, the pods of the tests, and the layers of the node's file system.
    let ignored = Ignore::new()
        .path("/run/xtables.lock")
        .path("/run/netns")
        .path("/run/lab");
    PluginNode::new(NETWORK, LEASE_DIR)
        .snapshot_dirs(&["/var/lib/cni", "/run", "/etc/cni"])
        .ignoring(ignored)
}

/// A node on which bridge and portmap have created what they keep for later containers.
pub(crate) fn used_node() -> PluginNode {
    plugin_node().used(&chain(&[]))
}

/// Whether portmap has rules for a container.
pub(crate) fn has_port_rules(plugin: &PluginNode) -> bool {
    let rules = plugin.node.run(["iptables-save", "-t", "nat"]).unwrap();
    rules.stdout.contains("CNI-DN-")
}

pub(crate) fn call(verb: &str, conf: &Value) -> Call {
    PluginNode::call(verb, conf)
}

#[track_caller]
pub(crate) fn succeeded(outcome: Outcome) -> Outcome {
    assert!(outcome.status.success(), "{outcome:?}");
    outcome
}

/// A chain of bridge with host-local, portmap with a host port, and `more`.
pub(crate) fn chain(more: &[Value]) -> Value {
    let bridge = json!({
        "type": "bridge", "bridge": "faultbr0", "isGateway": true, "ipMasq": true,
        "ipam": {
            "type": "host-local", "ranges": [[{ "subnet": "10.66.0.0/24" }]],
            "routes": [{ "dst": "0.0.0.0/0" }],
        },
    });
    let portmap = json!({ "type": "portmap", "capabilities": { "portMappings": true } });
    let plugins: Vec<_> = [bridge, portmap]
        .into_iter()
        .chain(more.iter().cloned())
        .collect();
    json!({
        "cniVersion": "1.1.0", "name": NETWORK, "type": "headcni",
        "capabilities": { "portMappings": true },
        "runtimeConfig": { "portMappings": [
            { "hostPort": 8080, "containerPort": 80, "protocol": "tcp" },
        ] },
        "delegate_timeout_seconds": 20,
        "plugins": plugins,
    })
}

/// The same chain where bridge does not masquerade: it forgets its rules when the namespace is gone
/// at DEL, which is not headcni's fault (containernetworking/plugins#810).
pub(crate) fn unmasqueraded_chain() -> Value {
    let mut conf = chain(&[]);
    conf["plugins"][0]["ipMasq"] = json!(false);
    conf
}

/// One delegate, bridge, with subnets from the subnet file.
pub(crate) fn delegate() -> Value {
    json!({
        "cniVersion": "1.1.0", "name": NETWORK, "type": "headcni",
        "delegate": { "bridge": "faultbr0" },
    })
}

pub(crate) const SUBNET_FILE: &str = "/run/headcni/subnet.env";
pub(crate) const SUBNETS: &str = "HEADCNI_NETWORK=10.66.0.0/16\nHEADCNI_SUBNET=10.66.0.1/24\n\
     HEADCNI_MTU=1280\nHEADCNI_IPMASQ=true\n";

/// The same configuration with one key set.
pub(crate) fn with(mut conf: Value, key: &str, value: Value) -> Value {
    conf[key] = value;
    conf
}
