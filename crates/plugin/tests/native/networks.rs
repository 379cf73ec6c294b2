//! The networks of the tests.

use lab::scenario::PluginNode;
use lab::{Call, Ignore};
use serde_json::{Value, json};

pub(crate) use lab::tools::{cni_path, headcni};

pub(crate) const NETWORK: &str = "net";
/// The records of [`NETWORK`].
pub(crate) const RECORD_DIR: &str = "/var/lib/cni/headcni/net";
/// The leases of [`NETWORK`].
pub(crate) const LEASE_DIR: &str = "/var/lib/cni/networks/headcni/net";

/// A node without pods. Snapshots leave out the cache of the lease store.
pub(crate) fn plugin_node() -> PluginNode {
    let cache = Ignore::new()
        .path(&format!("{LEASE_DIR}/.headcni/used.10.9.0.0-24"))
        .path(&format!("{LEASE_DIR}/.headcni/used.fd00:9::-108"));
    PluginNode::new(NETWORK, LEASE_DIR).ignoring(cache)
}

/// A node that has had a pod.
pub(crate) fn used_node(conf: &Value) -> PluginNode {
    plugin_node().used(conf)
}

pub(crate) fn call(verb: &str, conf: &Value) -> Call {
    PluginNode::call(verb, conf)
}

/// A native network with IPv4.
pub(crate) fn ipv4() -> Value {
    json!({
        "cniVersion": "1.1.0", "name": NETWORK, "type": "headcni",
        "ipam": { "type": "headcni-ipam", "subnet": "10.9.0.0/24" },
    })
}

/// A native network with IPv4 and IPv6.
pub(crate) fn dual_stack() -> Value {
    json!({
        "cniVersion": "1.1.0", "name": NETWORK, "type": "headcni",
        "ipam": { "type": "headcni-ipam",
            "ranges": [[{ "subnet": "10.9.0.0/24" }], [{ "subnet": "fd00:9::/64" }]] },
    })
}

/// The configuration with one more key, or another value for one.
pub(crate) fn with(mut conf: Value, key: &str, value: Value) -> Value {
    conf[key] = value;
    conf
}

/// The address number `index` of a result, without the length of its prefix.
pub(crate) fn ip(result: &Value, index: usize) -> String {
    let address = result["ips"][index]["address"].as_str().unwrap();
    address.split('/').next().unwrap().to_owned()
}

/// The name of a pod's link on the host.
pub(crate) fn host_link(result: &Value) -> String {
    result["interfaces"][0]["name"].as_str().unwrap().to_owned()
}
