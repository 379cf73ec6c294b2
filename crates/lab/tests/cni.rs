//! Real plugins on a node: bridge and host-local, called directly and through cnitool.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use lab::{Call, EchoServer, Family, Ignore, Netns, Node, tools};
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
fn bridged_pods_reach_each_other_and_leave_nothing() {
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

    // The host is unchanged.
    for path in [
        "/var/lib/cni/networks/labnet",
        "/sys/class/net/labbr0",
        "/run/netns/one",
    ] {
        assert!(!Path::new(path).exists(), "{path} is on the host");
    }
}

#[test]
fn a_failed_plugin_returns_its_error_object() {
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
fn a_plugin_can_be_killed_at_a_chosen_system_call() {
    let node = Node::new("n1").unwrap();
    let plugin = tools::cni_plugin_dir().join("host-local");
    let strace = ["strace", "-f", "-qq", "-o", "/dev/null"];
    let kill = ["-e", "trace=flock", "-e", "inject=flock:signal=KILL:when=1"];
    let call = Call::new("ADD")
        .container_id("c1")
        .netns("/none")
        .ifname("eth0")
        .path("/none");
    let call = call.conf(&bridge_conf());
    let outcome = call
        .clone()
        .under(strace.iter().chain(&kill))
        .run(&node, &plugin)
        .unwrap();
    assert_eq!(outcome.status.signal(), Some(9), "{outcome:?}");
    assert!(
        node.has("/var/lib/cni/networks/labnet/lock"),
        "it came as far as the lock"
    );
    assert!(
        !node.has("/var/lib/cni/networks/labnet/10.88.0.2"),
        "and no farther"
    );
    call.run(&node, &plugin).unwrap().ok().unwrap();
    assert!(node.has("/var/lib/cni/networks/labnet/10.88.0.2"));
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
