//! Native networks as the reference runtime calls them, alone and with the reference plugins.
//!
//! containerd and podman have theirs in `real`.

use lab::scenario::PluginNode;
use std::fs;

use lab::{CniTool, EchoServer, Family, Ignore, Netns, Outcome, Pod, tools};
use rstest::rstest;
use serde_json::{Value, json};

use crate::host_ports::{NODE, Site, at, elements, mapping};
use crate::networks::{NETWORK, cni_path, host_link, ip, plugin_node};

/// What the daemon would write on a node.
const SUBNET_ENV: &str = "\
HEADCNI_NETWORK=10.244.0.0/16
HEADCNI_SUBNET=10.244.1.0/24
HEADCNI_MTU=1380
HEADCNI_IPMASQ=true
";

fn conflist(version: &str, plugins: &[Value]) -> Value {
    json!({ "cniVersion": version, "name": NETWORK, "plugins": plugins })
}

/// A native member of a chain, for both families.
fn native() -> Value {
    json!({
        "type": "headcni",
        "ipam": { "type": "headcni-ipam",
            "ranges": [[{ "subnet": "10.9.0.0/24" }], [{ "subnet": "fd00:9::/64" }]] },
        "capabilities": { "portMappings": true, "bandwidth": true },
    })
}

fn install(plugin: &PluginNode, list: impl AsRef<[u8]>) {
    let file = "/etc/cni/net.d/10-native.conflist";
    plugin.node.write(file, list).unwrap();
}

fn tool(verb: &str, network: &str, pod: &Pod) -> CniTool {
    let tool = pod
        .node()
        .cnitool("/etc/cni/net.d", verb, network, pod.netns_path());
    tool.path(cni_path())
}

#[track_caller]
fn done(tool: &CniTool) -> Outcome {
    let outcome = tool.run().unwrap();
    outcome.ok().unwrap();
    outcome
}

/// Lets a first pod come and go, so that what all others need is there.
fn use_once(plugin: &PluginNode, network: &str) {
    let pod = plugin.pod("first");
    done(&tool("add", network, &pod));
    done(&tool("del", network, &pod));
    pod.delete().unwrap();
}

#[rstest]
#[case("0.3.1", &[])]
#[case("0.4.0", &["check"])]
#[case("1.0.0", &["check"])]
#[case("1.1.0", &["status", "check"])]
fn every_version_is_served_to_cnitool(#[case] version: &str, #[case] verbs: &[&str]) {
    let plugin = plugin_node();
    install(&plugin, conflist(version, &[native()]).to_string());
    use_once(&plugin, NETWORK);
    let before = plugin.snapshot();
    let (one, two) = (plugin.pod("one"), plugin.pod("two"));
    let results = [&one, &two].map(|pod| done(&tool("add", NETWORK, pod)).ok_json().unwrap());
    for result in &results {
        assert_eq!(result["cniVersion"], version);
    }
    for index in [0, 1] {
        one.ping(&ip(&results[1], index)).unwrap();
    }
    for verb in verbs {
        done(&tool(verb, NETWORK, &one));
    }
    for pod in [&one, &two] {
        done(&tool("del", NETWORK, pod));
        // Once more, as after an answer that got lost.
        done(&tool("del", NETWORK, pod));
    }
    plugin.node.assert_unchanged(&before);
}

#[test]
fn garbage_collection_by_cnitool_takes_everything() {
    let plugin = plugin_node();
    install(&plugin, conflist("1.1.0", &[native()]).to_string());
    use_once(&plugin, NETWORK);
    let before = plugin.snapshot();
    let ports = json!({ "portMappings": [mapping("tcp", 8080, 80)] });
    let (one, two) = (plugin.pod("one"), plugin.pod("two"));
    done(&tool("add", NETWORK, &one).capabilities(&ports));
    done(&tool("add", NETWORK, &two));
    assert_eq!(elements(&plugin).len(), 4);
    // cnitool names no attachment as valid.
    done(&tool("gc", NETWORK, &one));
    assert_eq!(elements(&plugin), Vec::<String>::new());
    let cache = Ignore::new().path("/var/lib/cni/results");
    plugin.node.assert_unchanged(&before.ignoring(cache));
}

/// What a pod with a published port and a limit has, whoever gives it.
#[track_caller]
fn assert_served(site: &Site, pod: &Pod, result: &Value) {
    let _server = EchoServer::start(pod, Family::V4, 80).unwrap();
    let seen = site.neighbour.call_echo(at(NODE[0], 8080), "x").unwrap();
    assert_eq!(seen.to_string(), "192.0.2.2");
    let link = host_link(result);
    let show = ["tc", "qdisc", "show", "dev", &link];
    let limits = site.plugin.node.run(show).unwrap().stdout;
    assert!(limits.contains("qdisc tbf"), "{limits}");
}

/// Values for capabilities: a port, and a limit to what comes to the pod.
fn wishes() -> Value {
    json!({
        "portMappings": [mapping("tcp", 8080, 80)],
        "bandwidth": { "ingressRate": 100_000_000, "ingressBurst": 10_000_000 },
    })
}

#[test]
fn the_shipped_configuration_works_as_it_is() {
    let site = Site::new();
    let network = "headcni-network";
    let file = tools::workspace_dir().join("deploy/cni/10-headcni-native.conflist");
    site.plugin
        .node
        .write(api::paths::SUBNET_FILE, SUBNET_ENV)
        .unwrap();
    install(&site.plugin, fs::read(file).unwrap());
    use_once(&site.plugin, network);
    let last = Ignore::new().host_local("/var/lib/cni/networks/headcni/headcni-network");
    let before = site.plugin.snapshot().ignoring(last);
    let pod = site.plugin.pod("pod");
    let tool = |verb| tool(verb, network, &pod).capabilities(&wishes());
    let result = done(&tool("add")).ok_json().unwrap();
    assert_eq!(result["interfaces"][1]["mtu"], 1380, "{result}");
    pod.ping("10.244.1.1").unwrap();
    assert_served(&site, &pod, &result);
    assert_eq!(elements(&site.plugin).len(), 2);
    done(&tool("status"));
    done(&tool("check"));
    done(&tool("del"));
    assert_eq!(elements(&site.plugin), Vec::<String>::new());
    site.plugin.node.assert_unchanged(&before);
}

/// The reference plugins that do the same, and one that does something else.
fn reference_plugins() -> [Value; 3] {
    [
        json!({ "type": "tuning", "sysctl": { "net.core.somaxconn": "500" } }),
        json!({ "type": "portmap", "capabilities": { "portMappings": true } }),
        json!({ "type": "bandwidth", "capabilities": { "bandwidth": true } }),
    ]
}

#[rstest]
#[case::in_the_runtimes_chain(false)]
#[case::in_a_chain_of_ours(true)]
fn the_reference_plugins_can_follow(#[case] is_ours: bool) {
    let site = Site::new();
    let mut first = native();
    // They are asked for what headcni could do itself.
    first.as_object_mut().unwrap().remove("capabilities");
    let plugins = [vec![first], reference_plugins().to_vec()].concat();
    let list = if is_ours {
        let chain = json!({
            "type": "headcni", "plugins": plugins,
            "capabilities": { "portMappings": true, "bandwidth": true },
        });
        conflist("1.0.0", &[chain])
    } else {
        conflist("1.0.0", &plugins)
    };
    install(&site.plugin, list.to_string());
    use_once(&site.plugin, NETWORK);
    let before = site.plugin.snapshot().ignoring(Ignore::new().portmap());

    let pod = site.plugin.pod("pod");
    let tool = |verb| tool(verb, NETWORK, &pod).capabilities(&wishes());
    let result = done(&tool("add")).ok_json().unwrap();
    pod.ping("10.9.0.1").unwrap();
    pod.ping("fd00:9::1").unwrap();
    assert_served(&site, &pod, &result);
    assert_eq!(elements(&site.plugin), Vec::<String>::new());
    let tuned = pod.run(["cat", "/proc/sys/net/core/somaxconn"]).unwrap();
    assert_eq!(tuned.stdout, "500\n");
    done(&tool("check"));
    done(&tool("del"));
    site.plugin.node.assert_unchanged(&before);
}

#[test]
fn a_native_member_of_our_own_chain_serves_ports_and_limits() {
    let site = Site::new();
    let members = [native(), reference_plugins()[0].clone()];
    let chain = json!({
        "type": "headcni", "plugins": members,
        "capabilities": { "portMappings": true, "bandwidth": true },
    });
    install(&site.plugin, conflist("1.1.0", &[chain]).to_string());
    use_once(&site.plugin, NETWORK);
    let before = site.plugin.snapshot();
    let pod = site.plugin.pod("pod");
    let tool = |verb| tool(verb, NETWORK, &pod).capabilities(&wishes());
    let result = done(&tool("add")).ok_json().unwrap();
    assert_served(&site, &pod, &result);
    assert_eq!(elements(&site.plugin).len(), 4);
    for verb in ["status", "check", "del"] {
        done(&tool(verb));
    }
    assert_eq!(elements(&site.plugin), Vec::<String>::new());
    site.plugin.node.assert_unchanged(&before);
}
