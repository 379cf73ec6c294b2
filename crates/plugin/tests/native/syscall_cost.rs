//! What a call costs the kernel: processes and system calls.

use lab::scenario::PluginNode;
use lab::{Call, Netns, Syscalls, Trace};
use rstest::rstest;
use serde_json::{Value, json};

use crate::networks::{call, dual_stack, headcni, ipv4, plugin_node, used_node, with};

/// Ways to start another process or thread, and to become another program.
const NEW_PROCESSES: &[&str] = &["clone", "clone3", "fork", "vfork", "execve", "execveat"];

/// How many system calls an ADD for one IPv4 address may make, from its own start on.
const MOST_PER_ADD: usize = 90;

fn trace(plugin: &PluginNode, call: &Call) -> Trace {
    let trace = call.trace(&plugin.node, headcni(), Syscalls::All).unwrap();
    trace.outcome.ok().unwrap();
    trace
}

fn with_port(conf: Value) -> Value {
    let ports = json!([{ "hostPort": 8080, "containerPort": 80, "protocol": "udp" }]);
    let limit = json!({ "ingressRate": 8_000_000, "ingressBurst": 8_000_000 });
    let asked = json!({ "portMappings": ports, "bandwidth": limit });
    let capabilities = json!({ "portMappings": true, "bandwidth": true });
    with(
        with(conf, "capabilities", capabilities),
        "runtimeConfig",
        asked,
    )
}

#[rstest]
fn nothing_is_executed_once_the_table_is_there(
    #[values(ipv4(), dual_stack(), with_port(ipv4()))] conf: Value,
) {
    let plugin = used_node(&conf);
    let pod = plugin.pod("p");
    // Nothing hides in a thread either: there is only the first one.
    let assert_alone = |verb: &str, conf: &Value| {
        let trace = trace(&plugin, &call(verb, conf).pod(&pod));
        let is_new = |name: &str| NEW_PROCESSES.contains(&name);
        let new: Vec<_> = trace.moments.iter().filter(|m| is_new(&m.name)).collect();
        assert!(new.is_empty(), "{verb}: {new:?}");
        trace.outcome
    };
    let result = assert_alone("ADD", &conf).ok_json().unwrap();
    let checked = with(conf.clone(), "prevResult", result);
    assert_alone("CHECK", &checked);
    assert_alone("DEL", &checked);
    assert_alone("DEL", &conf);
    assert_alone(
        "GC",
        &with(conf.clone(), "cni.dev/valid-attachments", json!([])),
    );
    assert_alone("STATUS", &conf);
}

#[test]
fn the_first_add_executes_nft_and_nothing_else() {
    let plugin = plugin_node();
    let pod = plugin.pod("p");
    // Of the programs that it executes strace tells nothing; nft's own would be seen in a shell.
    let counting = "#!/bin/sh\necho $0 >> /run/executed\nexec /usr/sbin/nft \"$@\"\n";
    plugin.node.write("/opt/counting/nft", counting).unwrap();
    let path = "/opt/counting:/usr/sbin:/usr/bin:/sbin:/bin";
    plugin
        .node
        .run(["chmod", "755", "/opt/counting/nft"])
        .unwrap();
    for _ in 0..2 {
        plugin
            .run(&call("ADD", &ipv4()).pod(&pod).env("PATH", path))
            .ok()
            .unwrap();
        plugin.succeed("DEL", &ipv4(), &pod);
    }
    let executed = plugin.node.read("/run/executed").unwrap();
    assert_eq!(executed.lines().count(), 1, "{executed}");
}

#[test]
fn an_add_for_one_address_takes_few_system_calls() {
    let conf = ipv4();
    let plugin = used_node(&conf);
    let _other = plugin.attached("other", &conf);
    let pod = plugin.pod("p");
    let trace = trace(&plugin, &call("ADD", &conf).pod(&pod));
    let count = trace.moments.len();
    eprintln!("an ADD for one IPv4 address: {count} system calls");
    let lines: Vec<_> = trace
        .moments
        .iter()
        .map(|moment| cut(&moment.line))
        .collect();
    let listing = lines.join("\n");
    assert!(count <= MOST_PER_ADD, "{count} system calls:\n{listing}");
    assert!(count > 40, "{count} are too few to be true:\n{listing}");
}

/// The beginning of a line: a netlink message is longer than anybody reads.
fn cut(line: &str) -> String {
    line.chars().take(160).collect()
}
