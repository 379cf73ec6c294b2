//! Every child gets the whole environment, and the configuration that the protocol demands.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use lab::{Noop, Pod};
use serde_json::{Value, json};

use crate::calls::*;
use crate::witness_plugin::Witness;

/// A result as a first plugin gives it; `mark` tells two of them apart.
fn result(mark: &str) -> Value {
    json!({
        "cniVersion": "1.1.0",
        "interfaces": [{"name": "eth0", "sandbox": "/run/netns/p", "vendor": mark}],
        "ips": [{"address": "10.0.0.2/24", "interface": 0}],
        "vendor.example/mark": mark,
    })
}

/// Keys that nobody here knows, with values that a careless copy would change.
fn unknown() -> Value {
    json!({
        "future": {"nested": [{"deep": null}, [], {}, ""], "on": false},
        "largest": u64::MAX, "smallest": i64::MIN, "odd": 9_007_199_254_740_993_u64,
        "real": 0.1, "huge": 1e300, "zero": 0.0,
        "语言": "网络 \u{1F310} \"\\\u{0}\n</script>", "": "no name",
    })
}

/// Calls through headcni with variables of all kinds, and what the child must see of them.
fn environment(pod: &Pod, witness: &Witness, verb: &str) -> Vec<(OsString, OsString)> {
    let path = format!("{}:{}", witness.path(), cni_path());
    let plain = [
        ("CNI_COMMAND", verb),
        ("CNI_CONTAINERID", pod.name()),
        ("CNI_NETNS", pod.netns_path()),
        ("CNI_IFNAME", "eth0"),
        ("CNI_ARGS", "IgnoreUnknown=1;K8S_POD_NAME=web-0;FOO=a=b"),
        ("CNI_PATH", &path),
        ("CNI_NETNS_OVERRIDE", "1"),
        ("CNI_OF_A_LATER_VERSION", "later"),
        ("HEADCNI_MTU", "1400"),
        ("HTTP_PROXY", "http://proxy.example:3128"),
        ("EMPTY", ""),
        ("MULTILINE", "one\ntwo\n"),
        ("SPACED", "  a  b  "),
    ];
    let os = |text: &str| OsString::from(text);
    let mut all: Vec<_> = plain.map(|(name, value)| (os(name), os(value))).into();
    all.push((os("NOT_UTF8"), OsString::from_vec(vec![b'a', 0xff, b'b'])));
    all.push((os("PATH"), std::env::var_os("PATH").unwrap()));
    all.sort();
    all
}

#[test]
fn the_delegate_and_every_member_get_the_whole_environment() {
    let node = node();
    let pod = node.pod("p").unwrap();
    let own = json!({"type": "headcni", "delegate": {"type": "first"}});
    let member = |kind| json!({"type": kind});
    for conf in [
        delegating("1.1.0", json!({"delegate": {"type": "first"}})),
        chaining(
            "1.1.0",
            &[own, member("second"), member("third")],
            json!({}),
        ),
    ] {
        let kinds = ["first", "second", "third"];
        let witness = Witness::new(&kinds, &result("w"));
        let conf = merged(&conf, json!({"prevResult": result("w")}));
        for verb in ["ADD", "CHECK", "STATUS", "DEL", "GC"] {
            let expected = environment(&pod, &witness, verb);
            let before = witness.calls().len();
            let call = lab::Call::new(verb).conf(&conf);
            let call = expected
                .iter()
                .fold(call, |call, (name, value)| call.env(name, value));
            let outcome = run(&node, &call);
            outcome.ok().unwrap();
            let calls = witness.calls().split_off(before);
            let members = conf["plugins"].as_array().map_or(1, Vec::len);
            assert_eq!(calls.len(), members, "{verb}: {:?}", witness.order());
            for call in calls {
                assert_eq!(call.env, expected, "{verb} {}", call.kind);
                assert!(
                    outcome
                        .stderr
                        .contains(&format!("complaint of {}", call.kind))
                );
            }
            assert!(!outcome.stdout.contains("complaint"));
        }
    }
}

#[test]
fn a_delegate_gets_the_complete_configuration() {
    let node = node();
    let pod = node.pod("p").unwrap();
    let witness = Witness::new(&["first"], &result("w"));
    let delegate = json!({"type": "first", "own": unknown(), "capabilities": {"bandwidth": true}});
    let conf = merged(
        &delegating("1.1.0", json!({"delegate": delegate})),
        json!({
            "top": unknown(), "dns": {"nameservers": ["10.0.0.9"]},
            "args": {"cni": {"ips": ["10.0.0.7"]}},
            "capabilities": {"portMappings": true, "bandwidth": true},
            "runtimeConfig": {"portMappings": [{"hostPort": 1}], "bandwidth": {"ingressRate": 8}},
            "cni.dev/valid-attachments": [], "cni.dev/future": 1,
            // Ours alone: no plugin has a use for these.
            "log_level": "error", "dataDir": "/var/lib/cni/headcni", "magic_dns": {"enable": false},
        }),
    );
    let call = call("ADD", &conf).pod(&pod);
    let path = format!("{}:{}", witness.path(), cni_path());
    run(&node, &call.path(path)).ok().unwrap();
    let expected = json!({
        "cniVersion": "1.1.0", "name": "net", "type": "first",
        "own": unknown(), "top": unknown(), "dns": {"nameservers": ["10.0.0.9"]},
        "args": {"cni": {"ips": ["10.0.0.7"]}},
        "runtimeConfig": {"bandwidth": {"ingressRate": 8}},
        "mtu": 1380, "ipMasq": false,
        "ipam": {
            "type": "host-local", "ranges": [[{"subnet": "10.244.1.0/24"}]],
            "routes": [{"dst": "10.244.0.0/16"}, {"dst": "0.0.0.0/0"}],
        },
    });
    assert_eq!(witness.calls()[0].conf(), expected);
}

#[test]
fn a_member_gets_its_own_configuration_and_what_the_protocol_adds() {
    let node = node();
    let pod = node.pod("p").unwrap();
    let mut noops = [
        Noop::new().unwrap(),
        Noop::new().unwrap(),
        Noop::new().unwrap(),
    ];
    noops[0].report_result(&result("one")).unwrap();
    noops[1].report_result(&result("two")).unwrap();
    noops[2].pass_through().unwrap();
    let declaring = |index: usize, capabilities| {
        let more = json!({
            "own": {"of": index, "unknown": {"语": [1.5, u64::MAX]}}, "capabilities": capabilities,
            "cni.dev/future": 1,
        });
        merged(&noops[index].conf(), more)
    };
    let members = [
        declaring(0, json!({"mac": true, "portMappings": false})),
        declaring(1, json!({"portMappings": true, "aliases": true})),
        declaring(2, json!({})),
    ];
    let given = json!({"mac": "02:00:00:00:00:01", "portMappings": [{"hostPort": 1}]});
    let capabilities = json!({"mac": true, "portMappings": true, "aliases": true});
    let more = json!({
        "runtimeConfig": given, "capabilities": capabilities, "top": "not the members'",
        "cni.dev/future": 1,
    });
    let conf = chaining("1.1.0", &members, more);
    let outcome = ask("ADD", &conf, &pod);
    let last = outcome.ok_json().unwrap();
    // Go leaves out the keys that it doesn't know, so this went through the last member.
    assert_eq!(last["ips"], result("two")["ips"]);

    let seen_by = |index: usize, runtime_config: Value, prev_result: Value| {
        let mut conf = members[index].clone();
        let keys = conf.as_object_mut().unwrap();
        keys.remove("capabilities");
        keys.remove("cni.dev/future");
        let mut more = json!({"cniVersion": "1.1.0", "name": "net"});
        for (key, value) in [
            ("runtimeConfig", runtime_config),
            ("prevResult", prev_result),
        ] {
            if !value.is_null() {
                more[key] = value;
            }
        }
        merged(&conf, more)
    };
    let mac = json!({"mac": "02:00:00:00:00:01"});
    let ports = json!({"portMappings": [{"hostPort": 1}]});
    let seen_of_it = [mac, ports, Value::Null];
    let before = [Value::Null, result("one"), result("two")];
    for (index, noop) in noops.iter().enumerate() {
        let calls = noop.calls().unwrap();
        assert_eq!(calls.len(), 1);
        let expected = seen_by(index, seen_of_it[index].clone(), before[index].clone());
        assert_eq!(calls[0].conf, expected, "member {index}");
    }

    for verb in ["CHECK", "DEL"] {
        let known = merged(&conf, json!({"prevResult": last}));
        ask(verb, &known, &pod).ok().unwrap();
        for (index, noop) in noops.iter().enumerate() {
            let seen = noop.calls().unwrap().pop().unwrap();
            assert_eq!(seen.verb, verb);
            let expected = seen_by(index, seen_of_it[index].clone(), last.clone());
            assert_eq!(seen.conf, expected, "{verb} of member {index}");
        }
    }
}

#[test]
fn del_goes_backwards() {
    let node = node();
    let pod = node.pod("p").unwrap();
    let kinds = ["first", "second", "third"];
    let witness = Witness::new(&kinds, &result("w"));
    let conf = chaining("1.1.0", &kinds.map(|kind| json!({"type": kind})), json!({}));
    let path = format!("{}:{}", witness.path(), cni_path());
    for verb in ["ADD", "DEL"] {
        run(&node, &call(verb, &conf).pod(&pod).path(&path))
            .ok()
            .unwrap();
    }
    let expected = [
        "first ADD",
        "second ADD",
        "third ADD",
        "third DEL",
        "second DEL",
        "first DEL",
    ];
    assert_eq!(witness.order(), expected);
    for call in &witness.calls()[3..] {
        assert_eq!(
            call.conf()["prevResult"],
            result("w"),
            "though stdin had none"
        );
    }
}

#[test]
fn an_outer_result_reaches_the_first_member() {
    let node = node();
    let pod = node.pod("p").unwrap();
    let mut noop = Noop::new().unwrap();
    noop.pass_through().unwrap();
    let outer = json!({"cniVersion": "1.1.0", "ips": [{"address": "10.0.0.9/24"}]});
    let conf = chaining("1.1.0", &[noop.conf()], json!({"prevResult": outer}));
    let result = ask("ADD", &conf, &pod).ok_json().unwrap();
    assert_eq!(result["ips"], outer["ips"]);
    assert_eq!(noop.calls().unwrap()[0].conf["prevResult"], outer);
}
