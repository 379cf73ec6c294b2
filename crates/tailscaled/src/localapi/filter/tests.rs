use rstest::rstest;
use serde_json::json;

use super::*;

fn coverage(rules: &Value, from: &str, to: &str) -> Coverage {
    let filter = PacketFilter::parse(rules);
    filter.coverage(&from.parse().unwrap(), &to.parse().unwrap())
}

fn open(from: &[&str], to: &[&str]) -> Value {
    let all = json!({ "First": 0, "Last": 65535 });
    let to: Vec<Value> = to
        .iter()
        .map(|ip| json!({ "IP": ip, "Ports": all }))
        .collect();
    json!({ "SrcIPs": from, "DstPorts": to })
}

const PODS: &str = "10.244.0.0/16";
const OURS: &str = "10.244.1.0/24";

#[rstest]
#[case::stars(&["*"], &["*"], Coverage::Full)]
#[case::exact(&[PODS], &[OURS], Coverage::Full)]
#[case::wider(&["10.0.0.0/8"], &["10.244.0.0-10.244.255.255"], Coverage::Full)]
#[case::halves(&["10.244.0.0/17", "10.244.128.0/17"], &["10.244.1.0/25", "10.244.1.128/25"],
    Coverage::Full)]
#[case::a_hole_in_sources(&["10.244.0.0/17", "10.244.192.0/18"], &[OURS], Coverage::Partial)]
#[case::a_hole_in_destinations(&[PODS], &["10.244.1.0/25", "10.244.1.129-10.244.1.255"],
    Coverage::Partial)]
#[case::peers_only(&["100.64.0.0/10"], &["*"], Coverage::None)]
#[case::one_address(&["10.244.2.5"], &[OURS], Coverage::Partial)]
#[case::other_family(&["::/0"], &["::/0"], Coverage::None)]
#[case::capability(&["cap:x"], &["*"], Coverage::None)]
#[case::nonsense(&["x-y", "10.0.0.9-10.0.0.1", "10.0.0.1-::1", ""], &["*"], Coverage::None)]
fn coverage_of_addresses(#[case] from: &[&str], #[case] to: &[&str], #[case] expected: Coverage) {
    assert_eq!(coverage(&json!([open(from, to)]), PODS, OURS), expected);
}

#[test]
fn several_rules_together_give_full_coverage() {
    let rules = json!([
        open(&["10.244.0.0/17"], &["10.244.1.0/25"]),
        open(&["10.244.0.0/16"], &["10.244.1.128/25"]),
        open(&["10.244.128.0/17"], &["10.244.0.0/16"]),
    ]);
    assert_eq!(coverage(&rules, PODS, OURS), Coverage::Full);
    let Value::Array(mut rules) = rules else {
        panic!()
    };
    rules.remove(0);
    assert_eq!(coverage(&rules.into(), PODS, OURS), Coverage::Partial);
}

#[test]
fn full_coverage_needs_all_protocols_and_ports() {
    let with = |protocols: Value| {
        let mut rule = open(&[PODS], &[OURS]);
        rule["IPProto"] = protocols;
        rule
    };
    assert_eq!(
        coverage(&json!([with(json!([6, 17, 1]))]), PODS, OURS),
        Coverage::Full
    );
    assert_eq!(
        coverage(&json!([with(json!([6, 17]))]), PODS, OURS),
        Coverage::Partial
    );
    assert_eq!(
        coverage(&json!([with(json!(null))]), PODS, OURS),
        Coverage::Full
    );
    let halves = json!([with(json!([6])), with(json!([17, 1]))]);
    assert_eq!(coverage(&halves, PODS, OURS), Coverage::Full);

    let web = json!([{ "SrcIPs": ["*"],
        "DstPorts": [{ "IP": "*", "Ports": { "First": 80, "Last": 80 } }] }]);
    assert_eq!(coverage(&web, PODS, OURS), Coverage::Partial);
}

#[test]
fn full_coverage_of_ipv6_needs_icmpv6() {
    let mut rule = open(&["fd00::/48"], &["fd00::/48"]);
    rule["IPProto"] = json!([6, 17, 1]);
    assert_eq!(
        coverage(&json!([rule]), "fd00::/48", "fd00:0:0:1::/64"),
        Coverage::Partial
    );
    rule["IPProto"] = json!([6, 17, 58]);
    assert_eq!(
        coverage(&json!([rule]), "fd00::/48", "fd00:0:0:1::/64"),
        Coverage::Full
    );
    let all = json!([open(&["*"], &["*"])]);
    assert_eq!(coverage(&all, "::/0", "::/0"), Coverage::Full);
}

#[test]
fn capability_grants_allow_nothing() {
    let grant = json!([{ "SrcIPs": ["*"],
        "CapGrant": [{ "Dsts": ["0.0.0.0/0"], "CapMap": { "tailscale.com/cap/relay": null } }] }]);
    assert_eq!(coverage(&grant, PODS, OURS), Coverage::None);
    let Value::Array(mut rules) = grant else {
        panic!()
    };
    rules.push(open(&[PODS], &[OURS]));
    assert_eq!(coverage(&rules.into(), PODS, OURS), Coverage::Full);
}

#[rstest]
#[case(json!(null))]
#[case(json!([]))]
#[case(json!([null, 5, {}, { "SrcIPs": null, "DstPorts": null }]))]
#[case(json!({ "Error": "no netmap" }))]
fn no_rules_allow_nothing(#[case] rules: Value) {
    assert_eq!(coverage(&rules, PODS, OURS), Coverage::None);
}

#[rstest]
#[case::all(open(&["*"], &["*"]), "* to *:*")]
#[case::sources(open(&["10.244.2.0/24", "100.64.0.2"], &[OURS]), "10.244.2.0/24 to 10.244.1.0/24:*")]
#[case::one_port(
    json!({ "SrcIPs": [PODS], "IPProto": [6],
        "DstPorts": [{ "IP": OURS, "Ports": { "First": 80, "Last": 80 } }] }),
    "10.244.0.0/16 to 10.244.1.0/24:80 (TCP)"
)]
#[case::ports(
    json!({ "SrcIPs": [PODS], "IPProto": [17, 132],
        "DstPorts": [{ "IP": "10.244.1.7", "Ports": { "First": 80, "Last": 90 } }] }),
    "10.244.0.0/16 to 10.244.1.7:80-90 (UDP, protocol 132)"
)]
#[case::nothing(open(&["100.64.0.2"], &["*"]), "")]
fn allowed_traffic_is_described_in_the_notation_of_the_policy(
    #[case] rule: Value,
    #[case] expected: &str,
) {
    let (from, to) = (PODS.parse().unwrap(), OURS.parse().unwrap());
    let filter = PacketFilter::parse(&json!([rule]));
    let found: Vec<String> = filter.allowed(&from, &to).into_iter().collect();
    assert_eq!(found.join("; "), expected);
    assert_eq!(filter.allows_any(&from, &to), !expected.is_empty());
}
