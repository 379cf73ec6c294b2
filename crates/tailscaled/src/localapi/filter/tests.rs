use rstest::rstest;
use serde_json::json;

use super::*;

fn reach(rules: &Value, from: &str, to: &str) -> Reach {
    let filter = PacketFilter::read(rules);
    filter.reach(&from.parse().unwrap(), &to.parse().unwrap())
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
#[case::stars(&["*"], &["*"], Reach::Whole)]
#[case::exact(&[PODS], &[OURS], Reach::Whole)]
#[case::wider(&["10.0.0.0/8"], &["10.244.0.0-10.244.255.255"], Reach::Whole)]
#[case::halves(&["10.244.0.0/17", "10.244.128.0/17"], &["10.244.1.0/25", "10.244.1.128/25"],
    Reach::Whole)]
#[case::a_hole_in_sources(&["10.244.0.0/17", "10.244.192.0/18"], &[OURS], Reach::Part)]
#[case::a_hole_in_destinations(&[PODS], &["10.244.1.0/25", "10.244.1.129-10.244.1.255"],
    Reach::Part)]
#[case::members_only(&["100.64.0.0/10"], &["*"], Reach::Nothing)]
#[case::one_address(&["10.244.2.5"], &[OURS], Reach::Part)]
#[case::other_family(&["::/0"], &["::/0"], Reach::Nothing)]
#[case::capability(&["cap:x"], &["*"], Reach::Nothing)]
#[case::nonsense(&["x-y", "10.0.0.9-10.0.0.1", "10.0.0.1-::1", ""], &["*"], Reach::Nothing)]
fn networks_are_covered_or_not(
    #[case] from: &[&str],
    #[case] to: &[&str],
    #[case] expected: Reach,
) {
    assert_eq!(reach(&json!([open(from, to)]), PODS, OURS), expected);
}

#[test]
fn several_rules_together_can_cover_all() {
    let rules = json!([
        open(&["10.244.0.0/17"], &["10.244.1.0/25"]),
        open(&["10.244.0.0/16"], &["10.244.1.128/25"]),
        open(&["10.244.128.0/17"], &["10.244.0.0/16"]),
    ]);
    assert_eq!(reach(&rules, PODS, OURS), Reach::Whole);
    let Value::Array(mut rules) = rules else {
        panic!()
    };
    rules.remove(0);
    assert_eq!(reach(&rules.into(), PODS, OURS), Reach::Part);
}

#[test]
fn all_protocols_and_ports_are_needed() {
    let with = |protocols: Value| {
        let mut rule = open(&[PODS], &[OURS]);
        rule["IPProto"] = protocols;
        rule
    };
    assert_eq!(
        reach(&json!([with(json!([6, 17, 1]))]), PODS, OURS),
        Reach::Whole
    );
    assert_eq!(
        reach(&json!([with(json!([6, 17]))]), PODS, OURS),
        Reach::Part
    );
    assert_eq!(reach(&json!([with(json!(null))]), PODS, OURS), Reach::Whole);
    let halves = json!([with(json!([6])), with(json!([17, 1]))]);
    assert_eq!(reach(&halves, PODS, OURS), Reach::Whole);

    let web = json!([{ "SrcIPs": ["*"],
        "DstPorts": [{ "IP": "*", "Ports": { "First": 80, "Last": 80 } }] }]);
    assert_eq!(reach(&web, PODS, OURS), Reach::Part);
}

#[test]
fn ipv6_needs_its_own_icmp() {
    let mut rule = open(&["fd00::/48"], &["fd00::/48"]);
    rule["IPProto"] = json!([6, 17, 1]);
    assert_eq!(
        reach(&json!([rule]), "fd00::/48", "fd00:0:0:1::/64"),
        Reach::Part
    );
    rule["IPProto"] = json!([6, 17, 58]);
    assert_eq!(
        reach(&json!([rule]), "fd00::/48", "fd00:0:0:1::/64"),
        Reach::Whole
    );
    let all = json!([open(&["*"], &["*"])]);
    assert_eq!(reach(&all, "::/0", "::/0"), Reach::Whole);
}

#[test]
fn grants_of_capabilities_let_nothing_through() {
    let grant = json!([{ "SrcIPs": ["*"],
        "CapGrant": [{ "Dsts": ["0.0.0.0/0"], "CapMap": { "tailscale.com/cap/relay": null } }] }]);
    assert_eq!(reach(&grant, PODS, OURS), Reach::Nothing);
    let Value::Array(mut rules) = grant else {
        panic!()
    };
    rules.push(open(&[PODS], &[OURS]));
    assert_eq!(reach(&rules.into(), PODS, OURS), Reach::Whole);
}

#[rstest]
#[case(json!(null))]
#[case(json!([]))]
#[case(json!([null, 5, {}, { "SrcIPs": null, "DstPorts": null }]))]
#[case(json!({ "Error": "no netmap" }))]
fn no_rules_let_nothing_through(#[case] rules: Value) {
    assert_eq!(reach(&rules, PODS, OURS), Reach::Nothing);
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
fn what_passes_is_said_in_the_policys_words(#[case] rule: Value, #[case] words: &str) {
    let (from, to) = (PODS.parse().unwrap(), OURS.parse().unwrap());
    let filter = PacketFilter::read(&json!([rule]));
    let said: Vec<String> = filter.passing(&from, &to).into_iter().collect();
    assert_eq!(said.join("; "), words);
    assert_eq!(filter.lets_any(&from, &to), !words.is_empty());
}
