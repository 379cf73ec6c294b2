//! The events that the real plugin posts.

use api::event::{Event, EventPod, StepOutcome};
use lab::Netns;
use rstest::rstest;
use serde_json::{Value, json};

use crate::scenario::{SOCKET, Scene, call, delegating, native, with};
use crate::server::Server;

fn names(event: &Event) -> Vec<&str> {
    event.steps.iter().map(|step| step.name.as_str()).collect()
}

#[test]
fn add_and_del_are_posted_with_all_their_details() {
    let scene = Scene::used();
    let server = Server::start(&scene.socket());
    let pod = scene.node.pod("p").unwrap();
    let result = scene.done("ADD", &native(), &pod).ok_json().unwrap();
    scene.done("DEL", &native(), &pod);
    let events = server.await_events(2);
    for (event, verb) in events.iter().zip(["ADD", "DEL"]) {
        assert_eq!(event.verb, verb);
        assert_eq!(
            (event.network.as_str(), event.container.as_str()),
            ("net", "p")
        );
        assert_eq!(event.ifname, "eth0");
        assert_eq!(event.netns.as_deref(), Some("/run/netns/p"));
        assert_eq!(event.mode, "native");
        assert_eq!(event.code, None);
        let pod = EventPod {
            namespace: "web".to_owned(),
            name: "web-0".to_owned(),
            uid: Some("1-2-3".to_owned()),
        };
        assert_eq!(event.pod, Some(pod));
        let of_steps: u64 = event.steps.iter().map(|step| step.duration_us).sum();
        assert!(0 < of_steps && of_steps <= event.duration_us, "{event:?}");
        assert!(event.started_unix_ms > 1_700_000_000_000);
    }
    let [add, del] = &events[..] else { panic!() };
    let address = result["ips"][0]["address"].as_str().unwrap();
    assert_eq!(format!("{}/24", add.ips[0]), address);
    assert_eq!(add.strategy.as_deref(), Some("sequential"));
    assert_eq!(names(add), ["ipam", "ruleset", "link"]);
    assert_eq!(names(del), ["link", "ipam"]);
    assert_eq!((del.ips.len(), &del.strategy), (0, &None));
    server.await_metric("headcni_plugin_events_total{outcome=\"accepted\"} 2");
}

#[test]
fn ports_are_a_step_of_their_own() {
    let scene = Scene::used();
    let server = Server::start(&scene.socket());
    let pod = scene.node.pod("p").unwrap();
    let ports = json!([{ "hostPort": 8080, "containerPort": 80, "protocol": "tcp" }]);
    let conf = with(native(), "capabilities", json!({ "portMappings": true }));
    let conf = with(conf, "runtimeConfig", json!({ "portMappings": ports }));
    scene.done("ADD", &conf, &pod);
    scene.done("DEL", &conf, &pod);
    let events = server.await_events(2);
    assert_eq!(names(&events[0]), ["ipam", "ruleset", "link", "ports"]);
    assert_eq!(names(&events[1]), ["ports", "link", "ipam"]);
}

#[test]
fn an_ipam_plugin_that_is_executed_is_a_step_within_one() {
    let scene = Scene::new();
    let server = Server::start(&scene.socket());
    let pod = scene.node.pod("p").unwrap();
    let ipam = json!({ "type": "host-local", "subnet": "10.7.0.0/24" });
    let conf = with(native(), "ipam", ipam);
    scene.done("ADD", &conf, &pod);
    let events = server.await_events(1);
    assert_eq!(names(&events[0]), ["host-local", "ipam", "ruleset", "link"]);
    assert_eq!(events[0].strategy.as_deref(), Some("host-local"));
}

#[rstest]
#[case::delegate(delegating(), "delegate", &["bridge"])]
#[case::chain(
    json!({
        "cniVersion": "1.1.0", "name": "net", "type": "headcni", "plugins": [
            { "type": "bridge", "ipam": { "type": "host-local", "subnet": "10.8.0.0/24" } },
            { "type": "tuning" },
        ],
    }),
    "chain",
    &["bridge", "tuning"]
)]
fn other_modes_have_a_step_per_plugin(
    #[case] conf: Value,
    #[case] mode: &str,
    #[case] steps: &[&str],
) {
    let scene = Scene::new();
    let server = Server::start(&scene.socket());
    let pod = scene.node.pod("p").unwrap();
    scene.done("ADD", &conf, &pod);
    scene.done("DEL", &conf, &pod);
    let events = server.await_events(2);
    assert_eq!(names(&events[0]), steps);
    let reversed: Vec<_> = steps.iter().rev().copied().collect();
    assert_eq!(names(&events[1]), reversed);
    for event in &events {
        assert_eq!(event.mode, mode);
    }
    assert_eq!(events[0].strategy.as_deref(), Some("host-local"));
    assert!(events[0].ips[0].to_string().starts_with("10.8.0."));
}

#[test]
fn an_invalid_configuration_is_posted_with_its_code() {
    let scene = Scene::new();
    let server = Server::start(&scene.socket());
    let pod = scene.node.pod("p").unwrap();
    let conf = with(native(), "mtu", 12.into());
    assert_eq!(scene.run(&call("ADD", &conf, &pod)).err_code(), Some(7));
    let events = server.await_events(1);
    assert_eq!((events[0].code, events[0].steps.len()), (Some(7), 0));
}

#[test]
fn a_failed_add_is_posted_with_the_failed_step_and_the_rollback() {
    let scene = Scene::new();
    let server = Server::start(&scene.socket());
    let pod = scene.node.pod("p").unwrap();
    let conf = json!({
        "cniVersion": "1.1.0", "name": "net", "type": "headcni", "plugins": [
            { "type": "bridge", "ipam": { "type": "host-local", "subnet": "10.8.0.0/24" } },
            { "type": "tuning", "sysctl": { "net.ipv4.no_such_thing": "1" } },
        ],
    });
    scene.run(&call("ADD", &conf, &pod)).ok().unwrap_err();
    let events = server.await_events(1);
    let steps: Vec<_> = events[0]
        .steps
        .iter()
        .map(|step| (step.name.as_str(), step.verb.as_deref(), step.outcome))
        .collect();
    let expected = [
        ("bridge", None, StepOutcome::Ok),
        ("tuning", None, StepOutcome::Error),
        ("tuning", Some("DEL"), StepOutcome::Ok),
        ("bridge", Some("DEL"), StepOutcome::Ok),
    ];
    assert_eq!(steps, expected);
    assert!(events[0].code.is_some());
}

#[test]
fn only_add_and_del_are_posted() {
    let scene = Scene::new();
    let server = Server::start(&scene.socket());
    let pod = scene.node.pod("p").unwrap();
    let result = scene.done("ADD", &native(), &pod).ok_json().unwrap();
    scene.done("STATUS", &native(), &pod);
    scene.done("CHECK", &with(native(), "prevResult", result), &pod);
    let gc = with(native(), "cni.dev/valid-attachments", json!([]));
    scene.done("GC", &gc, &pod);
    scene.done("DEL", &native(), &pod);
    let events = server.await_events(2);
    assert_eq!((&*events[0].verb, &*events[1].verb), ("ADD", "DEL"));
}

#[test]
fn the_socket_path_is_configurable() {
    let scene = Scene::new();
    let pod = scene.node.pod("p").unwrap();
    let by_key = Server::start(&scene.node.path("/run/other/key.sock"));
    let by_variable = Server::start(&scene.node.path("/run/another/variable.sock"));
    let variable = ("HEADCNI_DAEMON_SOCKET", "/run/another/variable.sock");
    let conf = with(native(), "daemon_socket", "/run/other/key.sock".into());
    let add = call("ADD", &conf, &pod).env(variable.0, variable.1);
    scene.run(&add).ok().unwrap();
    let del = call("DEL", &native(), &pod).env(variable.0, variable.1);
    scene.run(&del).ok().unwrap();
    assert_eq!(by_key.await_events(1)[0].verb, "ADD");
    assert_eq!(by_variable.await_events(1)[0].verb, "DEL");
    assert!(!scene.node.has("/run/headcni"));
}

#[test]
fn a_relative_socket_path_fails_add_but_not_del() {
    let scene = Scene::new();
    let pod = scene.node.pod("p").unwrap();
    let conf = with(native(), "daemon_socket", "run/daemon.sock".into());
    let outcome = scene.run(&call("ADD", &conf, &pod));
    assert_eq!(outcome.err_code(), Some(7));
    assert!(outcome.err_msg().contains("daemon_socket"), "{outcome:?}");
    scene.done("DEL", &conf, &pod);
}

#[test]
fn a_delegate_does_not_get_the_socket_path() {
    let scene = Scene::new();
    let server = Server::start(&scene.socket());
    let pod = scene.node.pod("p").unwrap();
    let conf = with(delegating(), "daemon_socket", SOCKET.into());
    scene.done("ADD", &conf, &pod);
    server.await_events(1);
    let record = scene
        .node
        .run(["sh", "-c", "cat /var/lib/cni/headcni/net/*"]);
    let record = record.unwrap().stdout;
    assert!(record.contains("\"bridge\""), "{record}");
    assert!(!record.contains("daemon_socket"), "{record}");
}

#[test]
fn an_event_contains_no_secret() {
    let scene = Scene::new();
    let server = Server::start(&scene.socket());
    let pod = scene.node.pod("p").unwrap();
    let mut conf = with(native(), "canary_key", "canary-1".into());
    conf["ipam"]["canary"] = "canary-2".into();
    let args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=web;K8S_POD_NAME=p;CANARY=canary-3";
    let add = |conf| call("ADD", conf, &pod).args(args).env("CANARY", "canary-4");
    scene.run(&add(&conf)).ok().unwrap();
    // Nor in one of a failure, whose message quotes the invalid value.
    let wrong = with(conf.clone(), "mtu", "canary-5".into());
    scene.run(&add(&wrong)).ok().unwrap_err();
    let events = server.await_events(2);
    let text = serde_json::to_string(&events).unwrap().to_lowercase();
    assert!(!text.contains("canary"), "{text}");
}
