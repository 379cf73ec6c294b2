use rstest::rstest;

use super::*;
use crate::membership::plan::OtherDevice;

fn nets(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn desired() -> Desired {
    Desired {
        routes: nets(&["10.244.1.0/24", "fd00:244:0:1::/64"]),
        ..Desired::default()
    }
}

fn own(approved: &[&str], serving: &[&str]) -> OwnDevice {
    OwnDevice {
        id: 1,
        advertised: nets(&["10.244.1.0/24", "fd00:244:0:1::/64"]),
        approved: nets(approved),
        serving: nets(serving),
    }
}

fn observed(advertised: &[&str], server: HeadscaleView) -> Observed {
    Observed {
        login: LoginState::Running,
        prefs: Prefs {
            server: "https://10.99.0.1".to_owned(),
            advertised: nets(advertised),
            ..Prefs::default()
        },
        serving: Vec::new(),
        peers: Vec::new(),
        server,
    }
}

fn listed(own: OwnDevice) -> HeadscaleView {
    HeadscaleView::Listed {
        own: Some(own),
        others: Vec::<OtherDevice>::new(),
    }
}

#[test]
fn a_member_is_one_that_the_server_knows() {
    let mut member = observed(&[], HeadscaleView::Unknown);
    let told = joined(&member, true, "n1", &[]);
    assert_eq!(
        told,
        ConditionState::holds("n1 is connected to https://10.99.0.1")
    );
    member.server = HeadscaleView::Listed {
        own: None,
        others: Vec::new(),
    };
    assert!(!joined(&member, true, "n1", &[]).holds);
}

#[rstest]
#[case(
    LoginState::Needed,
    true,
    "tailscaled needs to log in; the key is used"
)]
#[case(LoginState::Needed, false, "run \"tailscale up\"")]
#[case(LoginState::Stopped, false, "run \"tailscale up\"")]
#[case(LoginState::Awaited, true, "administrator")]
#[case(LoginState::Starting, true, "connecting")]
fn who_is_no_member_is_told_why(
    #[case] login: LoginState,
    #[case] is_ours: bool,
    #[case] words: &str,
) {
    let observed = Observed {
        login,
        ..observed(&[], HeadscaleView::Unknown)
    };
    let told = joined(&observed, is_ours, "n1", &["the key is used".to_owned()]);
    assert!(!told.holds && told.message.contains(words), "{told:?}");
}

#[test]
fn what_is_not_served_is_told_with_the_step_that_is_missing() {
    let all = ["10.244.1.0/24", "fd00:244:0:1::/64"];
    let told = |observed: &Observed| served(&desired(), observed, &[]).message;
    assert!(told(&observed(&[], HeadscaleView::Unknown)).ends_with("are not advertised yet"));
    assert!(told(&observed(&all, HeadscaleView::Unknown)).contains("autoApprovers"));
    let unheard = OwnDevice {
        advertised: nets(&all[..1]),
        ..own(&all, &all[..1])
    };
    assert!(told(&observed(&all, listed(unheard))).ends_with("not listed by Headscale yet"));
    let approved = observed(&all, listed(own(&all[..1], &[])));
    let remedy = "headscale nodes approve-routes -i 1 -r 10.244.1.0/24,fd00:244:0:1::/64";
    assert!(told(&approved).contains(remedy), "{}", told(&approved));
    assert!(told(&approved).contains("autoApprovers"));
    let approved = observed(&all, listed(own(&all, &all[..1])));
    assert!(told(&approved).contains("approved but not primary yet"));
    let mut all_well = observed(&all, listed(own(&all, &all)));
    all_well.serving = nets(&all);
    let told = served(&desired(), &all_well, &[]);
    assert_eq!(
        told,
        ConditionState::holds("routes 10.244.1.0/24 and fd00:244:0:1::/64 are served")
    );
}

#[rstest]
#[case(true, "\"headscale nodes tag -i 7 -t tag:other,tag:k8s-node\"")]
#[case(true, "headscale preauthkeys create --tags tag:k8s-node")]
#[case(false, "\"tailscale up --advertise-tags=tag:k8s-node\" on this node")]
fn a_node_without_the_tag_is_told_how_to_get_it(#[case] is_ours: bool, #[case] remedy: &str) {
    let mut this = PeerStatus {
        node_id: Some(7),
        tags: vec!["tag:other".to_owned()],
        ..PeerStatus::default()
    };
    let member = observed(&[], HeadscaleView::Unknown);
    let told =
        |this: &PeerStatus, observed: &Observed| untagged(observed, this, "tag:k8s-node", is_ours);
    let said = told(&this, &member).unwrap();
    assert!(said.contains(remedy), "{said}");
    let outsider = Observed {
        login: LoginState::Needed,
        ..member.clone()
    };
    assert_eq!(told(&this, &outsider), None, "it is no member yet");
    this.tags.push("tag:k8s-node".to_owned());
    assert_eq!(told(&this, &member), None);
}

#[test]
fn addresses_without_a_route_are_named_with_a_remedy() {
    let told = |count: u8| {
        let address = |number| IpNet::from(std::net::IpAddr::from([10, 244, 200, number]));
        left_out(&(1..=count).map(address).collect())
    };
    assert_eq!(told(0), None);
    let one = told(1).unwrap();
    assert!(one.contains("not advertised: 10.244.200.1/32:"), "{one}");
    assert!(one.contains("at most 64") && one.contains("IPAM"), "{one}");
    let many = told(9).unwrap();
    assert!(many.contains("10.244.200.4/32 and 5 more:"), "{many}");
}

#[test]
fn all_that_is_wrong_is_told() {
    let more = || ["first".to_owned(), "second".to_owned()];
    let well = ConditionState::holds("well");
    assert_eq!(well.clone().and(None), well);
    assert_eq!(well.and(more()), ConditionState::fails("first; second"));
    let ill = ConditionState::fails("ill");
    assert_eq!(ill.clone().and(None), ill);
    assert_eq!(ill.and(more()), ConditionState::fails("ill; first; second"));
}

#[test]
fn another_nodes_network_is_named() {
    let conflict = Conflict {
        ours: nets(&["10.244.1.0/24"])[0],
        theirs: nets(&["10.244.1.0/24"])[0],
        node: "n2".to_owned(),
        id: 8,
    };
    let told = unique(std::slice::from_ref(&conflict), &[]);
    let remedy = "gone for good with \"headscale nodes delete --identifier 8\" (n2)";
    assert!(told.message.ends_with(remedy), "{told:?}");
    assert!(
        !told.holds
            && told
                .message
                .starts_with("n2 also advertises 10.244.1.0/24: give each node")
    );
    let all = std::slice::from_ref(&conflict);
    let told = served(&desired(), &observed(&[], HeadscaleView::Unknown), all);
    assert!(told.message.contains("(see PodCIDRUnique)"));
    assert!(unique(&[], &[]).holds);
    let told = unique(&vec![conflict; 1000], &[]);
    let words = "n2 also advertises 10.244.1.0/24 and 996 more: give each node";
    assert!(told.message.contains(words), "{told:?}");
    assert!(told.message.len() < 500, "{told:?}");
}

#[test]
fn a_policy_that_drops_is_told_with_the_rule_to_add() {
    let told = told_of_policy(&[("10.244.0.0/16", "10.244.1.0/24")]);
    let words = "the policy drops packets from 10.244.0.0/16 to 10.244.1.0/24: ";
    assert!(!told.holds && told.message.starts_with(words), "{told:?}");
    let rule = told.message.split_once("acls ").unwrap().1;
    let rule: serde_json::Value = serde_json::from_str(rule).unwrap();
    assert_eq!(
        rule,
        serde_json::json!({"action": "accept", "src": ["tag:k8s-node", "10.244.0.0/16"],
            "dst": ["tag:k8s-node:*", "10.244.0.0/16:*"]})
    );
    assert_eq!(
        told_of_policy(&[]),
        ConditionState::holds("the policy allows pod traffic")
    );
}

fn told_of_policy(blocked: &[(&str, &str)]) -> ConditionState {
    let net = |text: &str| text.parse().unwrap();
    let found = AclPaths {
        blocked: blocked
            .iter()
            .map(|(from, to)| (net(from), net(to)))
            .collect(),
        ..AclPaths::default()
    };
    policy(&found, "tag:k8s-node", &nets(&["10.244.0.0/16"]))
}

#[test]
fn all_nodes_whose_packets_a_policy_drops_are_told() {
    let nodes: Vec<String> = (2..=9)
        .map(|number| format!("10.244.{number}.0/24"))
        .collect();
    let mut blocked: Vec<_> = nodes
        .iter()
        .map(|from| (from.as_str(), "10.244.1.0/24"))
        .collect();
    blocked.push(("10.9.0.0/24", "10.244.1.0/24"));
    let ConditionState { holds, message } = told_of_policy(&blocked);
    let words = "from 10.9.0.0/24, 10.244.2.0/24, 10.244.3.0/24, 10.244.4.0/24 and 5 more to \
                 10.244.1.0/24: ";
    assert!(!holds && message.contains(words), "{message}");
    let rule = r#""src":["tag:k8s-node","10.9.0.0/24","10.244.0.0/16"]"#;
    assert!(message.contains(rule), "{message}");
}

#[test]
fn a_policy_that_means_to_let_a_part_through_holds_and_says_what() {
    let found = AclPaths {
        partly: nets(&["10.244.2.0/24"]).into_iter().collect(),
        passing: ["10.244.0.0/16 to 10.244.1.0/24:80 (TCP)".to_owned()].into(),
        ..AclPaths::default()
    };
    let words = "the policy allows pod traffic, from 10.244.2.0/24 only in part: 10.244.0.0/16 to \
                 10.244.1.0/24:80 (TCP)";
    assert_eq!(
        policy(&found, "tag:k8s-node", &[]),
        ConditionState::holds(words)
    );
}

#[rstest]
#[case(true, "the daemon turns it off")]
#[case(false, "run \"tailscale set --shields-up=false\" on this node")]
fn shields_are_told_of_while_they_are_up(#[case] is_ours: bool, #[case] remedy: &str) {
    let mut member = observed(&[], HeadscaleView::Unknown);
    assert_eq!(shielded(&member, is_ours), None);
    member.prefs.shields_up = true;
    let told = shielded(&member, is_ours).unwrap();
    assert!(
        told.contains("ShieldsUp") && told.ends_with(remedy),
        "{told}"
    );
    member.login = LoginState::Stopped;
    assert_eq!(shielded(&member, is_ours), None, "MeshJoined says it");
}

#[rstest]
#[case::well(Some(true), true, false, None)]
#[case::older_than_the_word(None, true, false, None)]
#[case::userspace(
    Some(false),
    false,
    false,
    Some("with --tun=tailscale0, or set tailscale.mode: daemon")
)]
#[case::elsewhere(Some(true), false, false, Some("run tailscaled in the host netns"))]
#[case::ours_in_userspace(Some(false), true, true, Some("the name in tailscale.interface"))]
fn a_tailscaled_that_pods_can_t_reach_is_told_of(
    #[case] has_tun: Option<bool>,
    #[case] has_link: bool,
    #[case] is_ours: bool,
    #[case] remedy: Option<&str>,
) {
    let mut member = observed(&[], HeadscaleView::Unknown);
    let told = linkless(&member, has_tun, has_link, is_ours);
    assert_eq!(told.is_some(), remedy.is_some(), "{told:?}");
    let said = told.unwrap_or_default();
    assert!(said.contains(remedy.unwrap_or_default()), "{said}");
    member.login = LoginState::Starting;
    assert_eq!(linkless(&member, has_tun, has_link, is_ours), None);
}

fn node(assigned: &[&str], said: &[&str]) -> NodeFacts {
    NodeFacts {
        assigned: nets(assigned),
        annotated: nets(said),
        ..NodeFacts::default()
    }
}

#[rstest]
#[case::nobody_says(&["10.244.1.0/24", "fd00::/64"], None, Some("over IPv4 and IPv6,"))]
#[case::one_family(&["fd00::/64"], None, Some("over IPv6,"))]
#[case::kubernetes_says(&["10.244.1.0/24"], Some(node(&["10.244.2.0/24"], &[])), None)]
#[case::another_family(
    &["10.244.1.0/24"],
    Some(node(&["fd00:0:0:1::/64"], &["10.244.2.0/24"])),
    Some("over IPv4,")
)]
#[case::only_nodes_say(&["10.244.1.0/24"], Some(node(&[], &["10.244.2.0/24"])), Some("over IPv4,"))]
#[case::alone(&["10.244.1.0/24"], Some(node(&[], &[])), None)]
#[case::known(&[], None, None)]
fn a_cluster_whose_networks_nobody_knows_is_told_of(
    #[case] unknown: &[&str],
    #[case] other: Option<NodeFacts>,
    #[case] words: Option<&str>,
) {
    let nodes = other.as_ref().map(|facts| vec![("n2", facts)]);
    let told = baseless(&nets(unknown), nodes.as_ref());
    assert_eq!(told.is_some(), words.is_some(), "{told:?}");
    let said = told.unwrap_or_default();
    assert!(said.contains(words.unwrap_or_default()), "{said}");
}

#[rstest]
#[case(400, true, "")]
#[case(335, false, "the api-key expires in 13 days: make a new one")]
#[case(47, false, "the api-key expires in 47 hours: make a new one")]
#[case(-3, false, "the api-key has expired: make a new one")]
fn keys_that_expire_soon_are_told_of(#[case] hours: i64, #[case] holds: bool, #[case] words: &str) {
    let now = Timestamp::now();
    let all = [
        Credential {
            name: "node-key",
            expires: None,
            remedy: "",
        },
        Credential {
            name: "api-key",
            expires: Some(now + SignedDuration::from_hours(hours)),
            remedy: "make a new one",
        },
    ];
    let told = credentials(&all, now);
    assert_eq!(told.holds, holds);
    assert!(told.message.contains(words), "{told:?}");
}

/// What is told if the server says this time while it is six o'clock here.
fn told_at_six(server: &str) -> ConditionState {
    let at = |time: &str| format!("2026-11-16T{time}Z").parse().unwrap();
    clock(Some(ClockSample {
        server: at(server),
        local: at("06:00:00"),
    }))
}

#[test]
fn a_wrong_clock_is_told_of() {
    assert!(clock(None).holds);
    assert!(told_at_six("06:00:29").holds && told_at_six("05:59:31").holds);
    let behind = told_at_six("07:00:00");
    assert!(
        !behind.holds && behind.message.contains("3600 seconds behind Headscale's"),
        "{behind:?}"
    );
    let ahead = told_at_six("05:59:29");
    assert!(
        !ahead.holds && ahead.message.contains("31 seconds ahead of Headscale's"),
        "{ahead:?}"
    );
}

#[test]
fn networks_are_counted_by_how_far_they_have_come() {
    let all = ["10.244.1.0/24", "fd00:244:0:1::/64"];
    let mut half = observed(&all, listed(own(&all, &all[..1])));
    half.serving = nets(&all[..1]);
    let HeadscaleView::Listed { own, .. } = &half.server else {
        unreachable!()
    };
    let count = counts(&desired(), &half.prefs, own.as_ref(), &half);
    assert_eq!(count, [2, 2, 1]);
}
