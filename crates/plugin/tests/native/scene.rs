//! A node with pods on the native datapath.

pub(crate) use lab::tools::{cni_path, headcni};
use lab::{Call, Ignore, Node, Outcome, Pod, Snapshot};
use serde_json::{Value, json};

pub(crate) const NETWORK: &str = "net";
/// Where headcni keeps its records of [`NETWORK`].
pub(crate) const STATE_DIR: &str = "/var/lib/cni/headcni/net";
/// Where the leases of [`NETWORK`] are.
pub(crate) const LEASE_DIR: &str = "/var/lib/cni/networks/headcni/net";

const DIRS: &[&str] = &["/var/lib/cni", "/etc/cni", "/run/headcni"];

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

/// A call of the plugin under test.
pub(crate) fn call(verb: &str, conf: &Value) -> Call {
    Call::new(verb).path(cni_path()).conf(conf)
}

/// A machine for pods.
pub(crate) struct Scene {
    pub(crate) node: Node,
}

impl Scene {
    /// A machine that has never had a pod.
    pub(crate) fn new() -> Self {
        let node = Node::new("n1").unwrap();
        Self { node }
    }

    /// A machine that has had a pod: what the first one leaves for all others is there.
    pub(crate) fn used(conf: &Value) -> Self {
        let scene = Self::new();
        let pod = scene.pod("first");
        scene.done("ADD", conf, &pod);
        scene.done("DEL", conf, &pod);
        pod.delete().unwrap();
        scene
    }

    pub(crate) fn pod(&self, name: &str) -> Pod {
        self.node.pod(name).unwrap()
    }

    /// A pod with `eth0` on this network, and the result of its ADD.
    #[track_caller]
    pub(crate) fn attached(&self, name: &str, conf: &Value) -> (Pod, Value) {
        let pod = self.pod(name);
        let result = self.done("ADD", conf, &pod).ok_json().unwrap();
        (pod, result)
    }

    /// Calls headcni for `eth0` of a pod, whatever comes of it.
    pub(crate) fn attempt(&self, verb: &str, conf: &Value, pod: &Pod) -> Outcome {
        self.run(&call(verb, conf).pod(pod))
    }

    /// Calls headcni for `eth0` of a pod; it must succeed.
    #[track_caller]
    pub(crate) fn done(&self, verb: &str, conf: &Value, pod: &Pod) -> Outcome {
        let outcome = self.attempt(verb, conf, pod);
        if let Err(error) = outcome.ok() {
            panic!("{verb}: {error}");
        }
        outcome
    }

    /// Calls headcni for `eth0` of a pod; it must fail with this code.
    #[track_caller]
    pub(crate) fn refused(&self, verb: &str, conf: &Value, pod: &Pod, code: u64) -> Outcome {
        let outcome = self.attempt(verb, conf, pod);
        assert_eq!(outcome.err_code(), Some(code), "{outcome:?}");
        outcome
    }

    /// Calls headcni, whatever comes of it.
    pub(crate) fn run(&self, call: &Call) -> Outcome {
        call.run(&self.node, headcni()).unwrap()
    }

    /// Everything that could remain: links, addresses, routes, neighbours, nftables, leases,
    /// records. Which address was given last is no trace of the pod that had it.
    pub(crate) fn snapshot(&self) -> Snapshot {
        // The maps of the store are a cache that a crash throws away.
        let last = Ignore::new()
            .host_local(LEASE_DIR)
            .spare_records(STATE_DIR)
            .path(&format!("{LEASE_DIR}/.headcni/used.10.9.0.0-24"))
            .path(&format!("{LEASE_DIR}/.headcni/used.fd00:9::-108"));
        self.node.snapshot(DIRS).unwrap().ignoring(last)
    }

    /// What nftables has, counters left out.
    pub(crate) fn ruleset(&self) -> String {
        self.node.nft_ruleset().unwrap()
    }
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
