//! Real plugins on a node: bridge and host-local, called directly and through cnitool.

use std::path::Path;

use lab::{Call, EchoServer, Family, Ignore, Netns, Node, Noop, tools};
use serde_json::{Value, json};

const DIRS: &[&str] = &["/var/lib/cni", "/etc/cni"];

fn bridge_conf() -> Value {
    json!({
        "cniVersion": "1.0.0", "name": "labnet", "type": "bridge", "bridge": "labbr0",
        "isGateway": true, "ipMasq": true,
        "ipam": {
            "type": "host-local",
            "ranges": [[{"subnet": "10.88.0.0/24"}], [{"subnet": "fd00:88::/64"}]],
            "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}],
        },
    })
}

fn ip_of(result: &Value) -> String {
    let cidr = result["ips"][0]["address"].as_str().unwrap_or_default();
    cidr.split('/').next().unwrap_or_default().to_owned()
}

#[test]
fn pods_on_a_bridge_talk_and_leave_nothing() {
    let node = Node::new("n1").unwrap();
    let (one, two) = (node.pod("one").unwrap(), node.pod("two").unwrap());
    let lasting = Ignore::new()
        .link("labbr0")
        .host_local("/var/lib/cni/networks/labnet");
    let before = node.snapshot(DIRS).unwrap().ignoring(lasting);

    let dir = tools::cni_plugin_dir();
    let call = |verb| Call::new(verb).path(&dir).conf(&bridge_conf());
    let add = |pod| {
        call("ADD")
            .pod(pod)
            .run(&node, dir.join("bridge"))
            .unwrap()
            .ok_json()
            .unwrap()
    };
    let (first, second) = (ip_of(&add(&one)), ip_of(&add(&two)));
    assert_ne!(first, second);
    assert_eq!(one.links().unwrap(), ["eth0"]);
    assert!(
        one.routes()
            .unwrap()
            .contains(&"default via 10.88.0.1 dev eth0".to_owned())
    );
    assert_eq!(
        node.links().unwrap().len(),
        3,
        "the bridge and a veth for each pod"
    );

    one.ping("10.88.0.1").unwrap();
    one.ping(&second).unwrap();
    let server = EchoServer::start(&two, Family::V4, 7777).unwrap();
    let address = format!("{second}:7777").parse().unwrap();
    assert_eq!(one.call_echo(address, "hello").unwrap().to_string(), first);
    assert!(node.call_echo(address, &"long ".repeat(50_000)).is_ok());
    let six = EchoServer::start(&two, Family::V6, 0).unwrap();
    let address_six = format!("[fd00:88::3]:{}", six.port().unwrap());
    let seen = one.call_echo(address_six.parse().unwrap(), "six").unwrap();
    assert_eq!(seen.to_string(), "fd00:88::2");
    drop(server);
    assert!(one.call_echo(address, "anybody?").is_err());

    assert_ne!(node.snapshot(DIRS).unwrap(), before);
    for pod in [&one, &two] {
        call("DEL")
            .pod(pod)
            .run(&node, dir.join("bridge"))
            .unwrap()
            .ok()
            .unwrap();
    }
    node.assert_unchanged(&before);

    // All that happened in the node alone.
    for path in [
        "/var/lib/cni/networks/labnet",
        "/sys/class/net/labbr0",
        "/run/netns/one",
    ] {
        assert!(!Path::new(path).exists(), "{path} is on the host");
    }
}

#[test]
fn a_failed_plugin_tells_why() {
    let node = Node::new("n1").unwrap();
    let bridge = tools::cni_plugin_dir().join("bridge");
    let outcome = Call::new("ADD")
        .conf(&bridge_conf())
        .run(&node, &bridge)
        .unwrap();
    assert_eq!(outcome.err_code(), Some(4));
    assert!(outcome.err_msg().contains("CNI_CONTAINERID"), "{outcome:?}");
    assert!(outcome.ok().is_err());
    let version = Call::new("VERSION").run(&node, bridge).unwrap();
    assert!(version.ok_json().unwrap()["supportedVersions"].is_array());
    assert_eq!(version.err_code(), None);
}

#[test]
fn cnitool_drives_a_chain_with_a_host_port() {
    let node = Node::new("n1").unwrap();
    let outside = Node::new("outside").unwrap();
    node.wire("up0", "192.0.2.1/24", &outside, "192.0.2.2/24")
        .unwrap();
    node.sysctl("net.ipv4.ip_forward", "1").unwrap();
    let pod = node.pod("p").unwrap();
    let mut bridge = bridge_conf();
    bridge
        .as_object_mut()
        .unwrap()
        .retain(|key, _| key != "cniVersion" && key != "name");
    let portmap = json!({"type": "portmap", "capabilities": {"portMappings": true}});
    let plugins = json!([bridge, portmap, {"type": "firewall"}]);
    let list = json!({"cniVersion": "1.0.0", "name": "labnet", "plugins": plugins});
    node.write("/etc/cni/net.d/10-lab.conflist", list.to_string())
        .unwrap();
    let lasting = Ignore::new().link("labbr0").portmap().firewall();
    let lasting = lasting.host_local("/var/lib/cni/networks/labnet");
    let before = node.snapshot(DIRS).unwrap().ignoring(lasting);

    let ports = json!({"portMappings": [
        {"hostPort": 8080, "containerPort": 80, "protocol": "tcp"},
    ]});
    let tool = |verb| {
        let tool = node.cnitool("/etc/cni/net.d", verb, "labnet", pod.netns_path());
        tool.capabilities(&ports).run().unwrap()
    };
    tool("add").ok_json().unwrap();
    tool("check").ok().unwrap();
    let _server = EchoServer::start(&pod, Family::V4, 80).unwrap();
    let seen = outside
        .call_echo("192.0.2.1:8080".parse().unwrap(), "hello")
        .unwrap();
    assert_eq!(seen.to_string(), "192.0.2.2");
    assert!(
        node.iptables_save()
            .unwrap()
            .contains("-j DNAT --to-destination")
    );

    let changed = node.snapshot(DIRS).unwrap();
    assert!(
        before.difference(&changed).contains("CNI-DN-"),
        "{changed:?}"
    );
    tool("del").ok().unwrap();
    node.assert_unchanged(&before);
    assert!(!tool("check").status.success());
}

#[test]
fn noop_records_what_it_gets_and_does_as_told() {
    let node = Node::new("n1").unwrap();
    let plugin = tools::test_plugin_dir().join("noop");
    let mut noop = Noop::new().unwrap();
    let mut conf = noop.conf();
    conf["cniVersion"] = "1.0.0".into();
    conf["name"] = "labnet".into();
    conf["extra"] = json!({"kept": [1, 2]});
    let call = |verb| {
        let call = Call::new(verb)
            .container_id("c1")
            .netns("/run/netns/none")
            .ifname("eth7");
        let call = call
            .path("/nowhere:/else")
            .args("K=V")
            .env("CNI_NETNS_OVERRIDE", "1");
        call.conf(&conf).run(&node, &plugin).unwrap()
    };

    let result = json!({"cniVersion": "1.0.0", "ips": [{"address": "10.0.0.2/24"}]});
    noop.report_result(&result).unwrap();
    noop.report_stderr("psst").unwrap();
    let outcome = call("ADD");
    assert_eq!(outcome.ok_json().unwrap(), result);
    assert_eq!(outcome.stderr, "psst");

    noop.report_error(123, "as told").unwrap();
    let outcome = call("DEL");
    assert_eq!(
        (outcome.err_code(), outcome.err_msg()),
        (Some(123), "as told")
    );

    noop.behave().unwrap();
    noop.report_garbage("{").unwrap();
    noop.exit_with(9).unwrap();
    let outcome = call("DEL");
    assert_eq!(
        (outcome.status.code(), outcome.stdout.as_str()),
        (Some(9), "{")
    );

    assert_eq!(noop.verbs().unwrap(), ["ADD", "DEL", "DEL"]);
    let seen = &noop.calls().unwrap()[0];
    assert_eq!(seen.conf, conf);
    assert_eq!(
        (seen.container_id.as_str(), seen.ifname.as_str()),
        ("c1", "eth7")
    );
    assert_eq!(
        (seen.netns.as_str(), seen.args.as_str()),
        ("/run/netns/none", "K=V")
    );
    assert_eq!(
        (seen.path.as_str(), seen.netns_override.as_str()),
        ("/nowhere:/else", "1")
    );
}
