//! What all of these tests need: where things are, and how to call the plugin under test.

use std::fs;
use std::path::Path;

pub(crate) use lab::tools::{cni_path, headcni};
use lab::{Call, CniTool, Ignore, Netns, Node, Outcome, Pod, tools};
use serde_json::{Map, Value, json};

/// Where plugins leave files, and what they must not touch.
pub(crate) const DIRS: &[&str] = &["/var/lib/cni", "/etc/cni", "/run/headcni"];

/// What the daemon would write on a node.
pub(crate) const SUBNET_ENV: &str = "\
HEADCNI_NETWORK=10.244.0.0/16
HEADCNI_SUBNET=10.244.1.0/24
HEADCNI_MTU=1380
HEADCNI_IPMASQ=true
";

/// A node that has a subnet file.
pub(crate) fn node_with(subnet_env: &str) -> Node {
    let node = Node::new("n1").unwrap();
    node.write(api::paths::SUBNET_FILE, subnet_env).unwrap();
    node
}

/// A node with the usual subnet file.
pub(crate) fn node() -> Node {
    node_with(SUBNET_ENV)
}

/// A configuration that the project ships, as it is.
pub(crate) fn shipped(file: &str) -> String {
    fs::read_to_string(tools::workspace_dir().join("deploy/cni").join(file)).unwrap()
}

/// A call of the plugin under test.
pub(crate) fn call(verb: &str, conf: &Value) -> Call {
    Call::new(verb).path(cni_path()).conf(conf)
}

/// Calls the plugin under test for `eth0` of a pod.
pub(crate) fn ask(verb: &str, conf: &Value, pod: &Pod) -> Outcome {
    run(pod.node(), &call(verb, conf).pod(pod))
}

/// Does a call of the plugin under test.
pub(crate) fn run(node: &Node, call: &Call) -> Outcome {
    call.run(node, headcni()).unwrap()
}

/// Runs cnitool with the configurations in the node's `/etc/cni/net.d`.
pub(crate) fn cnitool(verb: &str, net: &str, pod: &Pod) -> CniTool {
    let tool = pod
        .node()
        .cnitool("/etc/cni/net.d", verb, net, pod.netns_path());
    tool.path(cni_path())
}

/// `headcni` with `bridge` as its delegate, plus other keys.
pub(crate) fn delegating(version: &str, more: Value) -> Value {
    let conf = json!({
        "cniVersion": version, "name": "net", "type": "headcni",
        "delegate": {"type": "bridge", "bridge": "cni0"},
    });
    merged(&conf, more)
}

/// `headcni` with a chain of members, plus other keys.
pub(crate) fn chaining(version: &str, members: &[Value], more: Value) -> Value {
    let conf = json!({"cniVersion": version, "name": "net", "type": "headcni", "plugins": members});
    merged(&conf, more)
}

/// The object with the keys of `more` added or replaced.
pub(crate) fn merged(object: &Value, more: Value) -> Value {
    let mut all: Map<String, Value> = object.as_object().unwrap().clone();
    let Value::Object(more) = more else {
        panic!("{more} is not an object");
    };
    all.extend(more);
    all.into()
}

/// Asserts that the call failed as the specification demands, and returns its message.
#[track_caller]
pub(crate) fn refused(outcome: &Outcome, code: u64) -> &str {
    assert!(!outcome.status.success(), "it succeeded: {outcome:?}");
    assert_eq!(outcome.err_code(), Some(code), "{outcome:?}");
    let error = outcome.json.as_ref().unwrap();
    assert!(error["cniVersion"].is_string(), "{error}");
    assert!(!outcome.err_msg().is_empty(), "{error}");
    outcome.err_msg()
}

/// The first address of a result, without its length.
pub(crate) fn address(result: &Value) -> String {
    nth_address(result, 0)
}

/// The nth address of a result, without its length.
pub(crate) fn nth_address(result: &Value, index: usize) -> String {
    let cidr = result["ips"][index]["address"].as_str();
    let (address, _) = cidr.unwrap_or_default().split_once('/').unwrap();
    address.to_owned()
}

/// Whether host-local has a lease for this address.
pub(crate) fn is_leased(node: &Node, net: &str, address: &str) -> bool {
    node.has(format!("/var/lib/cni/networks/{net}/{address}"))
}

/// The files of the plugin's own state, sorted.
pub(crate) fn records(node: &Node, net: &str) -> Vec<String> {
    let list = fs::read_dir(node.path(format!("/var/lib/cni/headcni/{net}")));
    let names = list.into_iter().flatten();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let is_record = |name: &String| Path::new(name).extension() == Some("json".as_ref());
    let mut names: Vec<_> = names.filter(is_record).collect();
    names.sort();
    names
}

/// What the reference plugins keep for the next container.
pub(crate) fn lasting(net: &str) -> Ignore {
    Ignore::new()
        .link("cni0")
        .portmap()
        .host_local(&format!("/var/lib/cni/networks/{net}"))
}

/// What a native network keeps for the next container: the gateway's address, the rules that all
/// pods share, and files that name none.
pub(crate) fn lasting_natively(net: &str) -> Ignore {
    let leases = format!("/var/lib/cni/networks/headcni/{net}");
    Ignore::new()
        .link("lo")
        .nft_table("inet headcni")
        .nft_table("inet headcni-ports")
        .host_local(&leases)
        .path(&format!("{leases}/.headcni"))
}

/// Asserts that no port of the node leads to a pod.
#[track_caller]
pub(crate) fn assert_nothing_published(node: &Node) {
    let rules = node.nft_ruleset().unwrap();
    let maps = rules.split("\tmap ").skip(1);
    let maps = maps.map(|rest| rest.split("\n\t}").next().unwrap_or_default());
    let published: Vec<_> = maps.filter(|map| map.contains("elements")).collect();
    assert!(published.is_empty(), "{published:?}");
}

/// The routes of a place's main tables.
pub(crate) fn main_routes(place: &impl Netns) -> Vec<String> {
    let mut routes = place.routes().unwrap();
    routes.retain(|route| !route.contains(" table local ") && !route.contains("fe80::"));
    routes
}
