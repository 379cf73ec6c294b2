use rstest::rstest;
use serde_json::json;

use super::*;

const POD4: &str = "10.244.0.5";
const POD6: &str = "fd00::5";

fn conf(mappings: &Value) -> Value {
    json!({ "runtimeConfig": { "portMappings": mappings } })
}

fn parsed(conf: &Value) -> Result<PortMappings, Error> {
    PortMappings::parse(Keys::new(conf.as_object().unwrap(), ""))
}

/// `host protocol port > pod port`, with `*` for any host.
fn on(ports: &PortMappings, pods: &[&str]) -> Vec<String> {
    let pods: Vec<IpAddr> = pods.iter().map(|pod| pod.parse().unwrap()).collect();
    let text = |port: &HostPort| {
        let host = port.host.map_or("*".to_owned(), |host| host.to_string());
        let HostPort {
            protocol,
            port,
            pod,
            pod_port,
            ..
        } = port;
        format!("{host} {protocol:?} {port} > {pod} {pod_port}")
    };
    ports.host_ports(&pods).iter().map(text).collect()
}

#[rstest]
#[case::any(json!({ "hostPort": 80, "containerPort": 8080 }),
    &["* Tcp 80 > 10.244.0.5 8080", "* Tcp 80 > fd00::5 8080"])]
#[case::empty(json!({ "hostPort": 80, "containerPort": 8080, "protocol": "", "hostIP": "" }),
    &["* Tcp 80 > 10.244.0.5 8080", "* Tcp 80 > fd00::5 8080"])]
#[case::containerd(json!({ "HostPort": 80, "ContainerPort": 8080, "Protocol": "udp", "HostIP": "" }),
    &["* Udp 80 > 10.244.0.5 8080", "* Udp 80 > fd00::5 8080"])]
#[case::null(json!({ "hostPort": 80, "containerPort": 8080, "protocol": null, "hostIP": null }),
    &["* Tcp 80 > 10.244.0.5 8080", "* Tcp 80 > fd00::5 8080"])]
#[case::ipv4(json!({ "hostPort": 53, "containerPort": 53, "protocol": "UDP", "hostIP": "0.0.0.0" }),
    &["* Udp 53 > 10.244.0.5 53"])]
#[case::ipv6(json!({ "hostPort": 53, "containerPort": 53, "protocol": "Sctp", "hostIP": "::" }),
    &["* Sctp 53 > fd00::5 53"])]
#[case::one(json!({ "hostPort": 80, "containerPort": 80, "protocol": "tcp", "hostIP": "192.0.2.1" }),
    &["192.0.2.1 Tcp 80 > 10.244.0.5 80"])]
#[case::one_of_ipv6(json!({ "hostPort": 65535, "containerPort": 1, "hostIP": "2001:db8::1" }),
    &["2001:db8::1 Tcp 65535 > fd00::5 1"])]
#[case::mapped(json!({ "hostPort": 80, "containerPort": 80, "hostIP": "::ffff:192.0.2.1" }),
    &["192.0.2.1 Tcp 80 > 10.244.0.5 80"])]
#[case::none(json!({ "hostPort": 0, "containerPort": 80 }), &[])]
#[case::absent(json!({ "containerPort": 80, "protocol": "tcp" }), &[])]
fn a_mapping_leads_to_the_pod_ip_of_its_family(#[case] mapping: Value, #[case] expected: &[&str]) {
    let conf = conf(&json!([mapping]));
    let ports = parsed(&conf).unwrap();
    assert_eq!(on(&ports, &[POD4, POD6]), expected);
    assert_eq!(on(&ports, &[POD6, "fd00::6", POD4, "10.244.0.6"]), expected);
    assert_eq!(
        PortMappings::parse_lenient(conf.as_object().unwrap()),
        ports
    );
    assert!(!ports.needs_route_localnet());
}

#[rstest]
#[case(json!({ "hostPort": 70_000, "containerPort": 80 }), "[0].hostPort", "70000")]
#[case(json!({ "hostPort": -1, "containerPort": 80 }), "[0].hostPort", "-1")]
#[case(json!({ "hostPort": "80", "containerPort": 80 }), "[0].hostPort", "80")]
#[case(json!({ "hostPort": 80 }), "[0].containerPort", "80")]
#[case(json!({ "hostPort": 80, "containerPort": 0 }), "[0].containerPort", "0")]
#[case(json!({ "hostPort": 80, "containerPort": 65_536 }), "[0].containerPort", "65536")]
#[case(json!({ "hostPort": 80, "containerPort": 80, "protocol": "icmp" }), "[0].protocol", "icmp")]
#[case(json!({ "hostPort": 80, "containerPort": 80, "protocol": 6 }), "[0].protocol", "6")]
#[case(json!({ "hostPort": 80, "containerPort": 80, "hostIP": "eth0" }), "[0].hostIP", "eth0")]
#[case(json!({ "hostPort": 80, "containerPort": 80, "hostIP": "::1" }), "[0].hostIP", "127.0.0.1")]
#[case(json!({ "hostPort": 80, "containerPort": 80, "hostIP": "224.0.0.1" }), "[0].hostIP",
    "224.0.0.1")]
#[case(json!("80:80"), "portMappings[0]", "an object")]
fn an_invalid_mapping_is_rejected_and_ignored_by_clean_up(
    #[case] mapping: Value,
    #[case] key: &str,
    #[case] part: &str,
) {
    let good = json!({ "hostPort": 81, "containerPort": 81 });
    let conf = conf(&json!([mapping, good]));
    let error = parsed(&conf).unwrap_err();
    assert_eq!(error.code, cni::code::INVALID_CONFIG);
    assert!(
        error.msg.contains(key) && error.msg.contains(part),
        "{error}"
    );
    let ports = PortMappings::parse_lenient(conf.as_object().unwrap());
    assert_eq!(on(&ports, &[POD4]), ["* Tcp 81 > 10.244.0.5 81"]);
}

#[rstest]
#[case("", "tcp", "", "tcp", true)]
#[case("", "tcp", "0.0.0.0", "TCP", true)]
#[case("::", "udp", "", "udp", true)]
#[case("0.0.0.0", "tcp", "::", "tcp", false)]
#[case("", "tcp", "", "udp", false)]
#[case("", "tcp", "192.0.2.1", "tcp", false)]
#[case("192.0.2.1", "tcp", "192.0.2.1", "tcp", true)]
#[case("192.0.2.1", "tcp", "192.0.2.2", "tcp", false)]
fn a_host_port_has_one_destination(
    #[case] first_host: &str,
    #[case] first_protocol: &str,
    #[case] second_host: &str,
    #[case] second_protocol: &str,
    #[case] collides: bool,
) {
    let mappings = json!([
        { "hostPort": 80, "containerPort": 1, "hostIP": first_host, "protocol": first_protocol },
        { "hostPort": 81, "containerPort": 1, "hostIP": first_host, "protocol": first_protocol },
        { "hostPort": 80, "containerPort": 2, "hostIP": second_host, "protocol": second_protocol },
    ]);
    let outcome = parsed(&conf(&mappings));
    assert_eq!(outcome.is_err(), collides, "{outcome:?}");
    if let Err(error) = outcome {
        assert!(error.msg.contains("portMappings[2] asks for 80"), "{error}");
    }
}

#[test]
fn localhost_is_added_on_request_and_for_ipv4_only() {
    let mut conf = conf(&json!([
        { "hostPort": 80, "containerPort": 1 },
        { "hostPort": 81, "containerPort": 1, "hostIP": "::" },
        { "hostPort": 82, "containerPort": 1, "hostIP": "192.0.2.1" },
    ]));
    conf["hostport_localhost"] = json!(true);
    let ports = parsed(&conf).unwrap();
    assert!(ports.needs_route_localnet());
    assert_eq!(
        on(&ports, &[POD4, POD6]),
        [
            "* Tcp 80 > 10.244.0.5 1",
            "127.0.0.1 Tcp 80 > 10.244.0.5 1",
            "* Tcp 80 > fd00::5 1",
            "* Tcp 81 > fd00::5 1",
            "192.0.2.1 Tcp 82 > 10.244.0.5 1",
        ]
    );
    assert_eq!(
        PortMappings::parse_lenient(conf.as_object().unwrap()),
        ports
    );
}

#[test]
fn a_mapping_on_127_0_0_1_replaces_the_added_one() {
    let mut conf = conf(&json!([
        { "hostPort": 80, "containerPort": 1 },
        { "hostPort": 80, "containerPort": 2, "hostIP": "127.0.0.1" },
    ]));
    conf["hostport_localhost"] = json!(true);
    let ports = parsed(&conf).unwrap();
    assert_eq!(
        on(&ports, &[POD4]),
        ["* Tcp 80 > 10.244.0.5 1", "127.0.0.1 Tcp 80 > 10.244.0.5 2"]
    );
    assert!(ports.needs_route_localnet());
}

#[rstest]
#[case("127.0.0.1", false, true)]
#[case("127.9.9.9", false, true)]
#[case("192.0.2.1", true, false)]
#[case("::", true, false)]
#[case("0.0.0.0", true, true)]
#[case("", false, false)]
fn ports_on_127_0_0_0_8_need_route_localnet(
    #[case] host: &str,
    #[case] asked: bool,
    #[case] expected: bool,
) {
    let mut conf = conf(&json!([{ "hostPort": 80, "containerPort": 1, "hostIP": host }]));
    conf["hostport_localhost"] = json!(asked);
    assert_eq!(parsed(&conf).unwrap().needs_route_localnet(), expected);
}

#[test]
fn a_port_of_a_family_without_pod_ip_is_a_warning() {
    let ports = parsed(&conf(&json!([
        { "hostPort": 80, "containerPort": 1 },
        { "hostPort": 81, "containerPort": 1, "protocol": "udp", "hostIP": "2001:db8::1" },
    ])))
    .unwrap();
    let unserved = ports.unserved(&[POD4.parse().unwrap()]);
    assert_eq!(unserved.len(), 1);
    assert!(
        unserved[0].contains("81 udp on 2001:db8::1"),
        "{unserved:?}"
    );
    assert!(ports.unserved(&[POD6.parse().unwrap()]).is_empty());
}

#[test]
fn clean_up_ignores_any_invalid_value() {
    for conf in [
        json!({}),
        json!({ "runtimeConfig": 5 }),
        json!({ "runtimeConfig": { "portMappings": {} } }),
        json!({ "runtimeConfig": { "portMappings": [null, 5, {}] }, "hostport_localhost": 5 }),
    ] {
        assert_eq!(
            PortMappings::parse_lenient(conf.as_object().unwrap()).mappings,
            []
        );
    }
}

#[test]
fn port_mappings_are_recorded_as_they_are() {
    let mut conf = conf(&json!([
        { "hostPort": 80, "containerPort": 1 },
        { "hostPort": 81, "containerPort": 1, "protocol": "udp", "hostIP": "::" },
        { "hostPort": 82, "containerPort": 1, "protocol": "sctp", "hostIP": "192.0.2.1" },
    ]));
    conf["hostport_localhost"] = json!(true);
    let ports = parsed(&conf).unwrap();
    let recorded = serde_json::to_value(&ports).unwrap();
    assert_eq!(
        serde_json::from_value::<PortMappings>(recorded).unwrap(),
        ports
    );
}
