use rstest::rstest;

use super::*;
use node_core::NodeFacts;

const TAG: &str = "tag:k8s-node";

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn claim(node: &str, tag: &str, served: &[&str]) -> Advertisement {
    Advertisement {
        id: format!("id of {node}"),
        node: node.to_owned(),
        tags: vec!["tag:other".to_owned(), tag.to_owned()],
        addresses: Vec::new(),
        served: served.iter().copied().map(net).collect(),
    }
}

fn trust() -> PeerPolicy<'static> {
    PeerPolicy {
        tag: TAG.to_owned(),
        base: vec![net("10.244.0.0/16"), net("fd00:244::/48")],
        local: vec![net("10.244.1.0/24"), net("fd00:244:0:1::/64")],
        nodes: None,
        known: &[],
        services: vec![net("10.96.0.0/12")],
        links: vec![
            ("eth0".to_owned(), net("192.168.7.0/24")),
            ("eth1".to_owned(), net("10.240.0.0/12")),
        ],
    }
}

/// A Node with what the cluster gave it, and what its daemon says.
fn facts(assigned: &[&str], said: &[&str]) -> NodeFacts {
    let nets = |texts: &[&str]| texts.iter().copied().map(net).collect();
    NodeFacts {
        assigned: nets(assigned),
        annotated: nets(said),
        tailnet_ips: Vec::new(),
    }
}

/// Kubernetes knows these Nodes.
fn strict(nodes: &[NodeFacts]) -> PeerPolicy<'_> {
    PeerPolicy {
        nodes: Some(nodes.iter().map(|facts| ("n", facts)).collect()),
        ..trust()
    }
}

fn words(rejected: &[Rejection]) -> Vec<String> {
    rejected.iter().map(Rejection::to_string).collect()
}

fn accepted(claims: &[Advertisement]) -> Vec<(String, String)> {
    let remotes = select_peer_routes(claims, &trust()).remotes.into_iter();
    remotes
        .map(|remote| (remote.network.to_string(), remote.node))
        .collect()
}

#[test]
fn nodes_of_the_cluster_count() {
    let claims = [
        claim("b", TAG, &["10.244.2.0/24", "fd00:244:0:2::/64"]),
        claim("c", TAG, &["10.244.3.0/24", "192.168.7.0/24", "0.0.0.0/0"]),
    ];
    let judged = select_peer_routes(&claims, &trust());
    let networks: Vec<String> = judged
        .remotes
        .iter()
        .map(|r| r.network.to_string())
        .collect();
    assert_eq!(
        networks,
        ["10.244.2.0/24", "10.244.3.0/24", "fd00:244:0:2::/64"]
    );
}

#[test]
fn who_has_not_the_tag_is_no_node() {
    let served = ["10.244.2.0/24", "192.168.7.0/24", "10.0.0.0/8", "0.0.0.0/0"];
    let judged = select_peer_routes(&[claim("laptop", "tag:laptop", &served)], &trust());
    assert_eq!(judged.remotes, []);
    let rejected: Vec<String> = judged.rejected.iter().map(Rejection::to_string).collect();
    let words = "laptop advertises 10.244.2.0/24, but lacks the node tag tag:k8s-node";
    assert_eq!(rejected, [words]);
}

#[rstest]
#[case(
    "10.244.1.0/24",
    "b advertises 10.244.1.0/24, which overlaps this node's 10.244.1.0/24"
)]
#[case(
    "10.244.1.7/32",
    "b advertises 10.244.1.7/32, which overlaps this node's 10.244.1.0/24"
)]
#[case(
    "10.244.0.0/20",
    "b advertises 10.244.0.0/20, which overlaps this node's 10.244.1.0/24"
)]
#[case(
    "fd00:244::/48",
    "b advertises fd00:244::/48, which overlaps this node's fd00:244:0:1::/64"
)]
fn nobody_gets_what_is_ours(#[case] network: &str, #[case] words: &str) {
    let judged = select_peer_routes(&[claim("b", TAG, &[network])], &trust());
    assert_eq!(judged.remotes, []);
    assert_eq!(judged.rejected[0].to_string(), words);
}

#[test]
fn a_whole_cluster_is_nobodys() {
    let elsewhere = PeerPolicy {
        local: vec![net("fd00:244:0:1::/64")],
        ..trust()
    };
    for network in ["10.244.0.0/16", "10.0.0.0/8"] {
        let judged = select_peer_routes(&[claim("b", TAG, &[network])], &elsewhere);
        let words = format!("b advertises {network}, which covers the cluster CIDR 10.244.0.0/16");
        assert_eq!(judged.rejected[0].to_string(), words);
        assert_eq!(judged.remotes, []);
    }
}

#[test]
fn a_part_of_another_nodes_network_can_t_be_taken() {
    let claims = [
        claim("thief", TAG, &["10.244.2.9/32", "10.244.2.0/25"]),
        claim("b", TAG, &["10.244.2.0/24"]),
    ];
    let judged = select_peer_routes(&claims, &trust());
    assert_eq!(
        accepted(&claims),
        [("10.244.2.0/24".to_owned(), "b".to_owned())]
    );
    assert_eq!(judged.rejected.len(), 2);
    assert_eq!(
        judged.rejected[0].to_string(),
        "thief advertises 10.244.2.0/25, which is part of b's 10.244.2.0/24"
    );
    assert_eq!(
        judged.shadowed(),
        [net("10.244.2.0/25"), net("10.244.2.9/32")]
    );
}

#[test]
fn who_is_no_node_can_t_take_a_part_either() {
    let claims = [
        claim("laptop", "tag:laptop", &["10.244.2.9/32", "10.244.7.0/24"]),
        claim("b", TAG, &["10.244.2.0/24"]),
    ];
    let judged = select_peer_routes(&claims, &trust());
    assert_eq!(judged.shadowed(), [net("10.244.2.9/32")]);
    let ours = select_peer_routes(&[claim("b", TAG, &["10.244.1.7/32"])], &trust());
    assert_eq!(ours.shadowed(), [], "what is ours does not leave this node");
}

#[test]
fn a_node_may_have_addresses_of_pods_beside_its_network() {
    let claims = [claim(
        "b",
        TAG,
        &["10.244.2.0/24", "10.244.2.9/32", "10.244.200.9/32"],
    )];
    assert_eq!(accepted(&claims).len(), 3);
}

#[test]
fn where_kubernetes_is_believed_only_what_a_node_has_counts() {
    let nodes = [facts(&["10.9.0.0/24"], &[]), facts(&[], &["10.244.2.0/24"])];
    let claims = [
        claim("b", TAG, &["10.244.2.0/24", "10.244.2.9/32"]),
        // ExtraHostRoutes what is known of the cluster's networks, but a node's.
        claim("c", TAG, &["10.9.0.0/24"]),
        claim("thief", TAG, &["10.244.3.0/24", "192.168.7.0/24"]),
        claim("laptop", "tag:laptop", &["10.9.0.0/24"]),
    ];
    let judged = select_peer_routes(&claims, &strict(&nodes));
    let networks: Vec<String> = judged
        .remotes
        .iter()
        .map(|remote| format!("{} {}", remote.node, remote.network))
        .collect();
    assert_eq!(
        networks,
        ["c 10.9.0.0/24", "b 10.244.2.0/24", "b 10.244.2.9/32"]
    );
    assert_eq!(
        words(&judged.rejected),
        ["thief advertises 10.244.3.0/24, which no Node object has"]
    );
}

#[test]
fn outside_the_base_only_what_the_cluster_assigned_counts() {
    let said = [facts(&[], &["172.16.0.0/12", "10.244.2.0/24"])];
    let claims = [claim("b", TAG, &["172.16.5.0/24", "10.244.2.0/24"])];
    let judged = select_peer_routes(&claims, &strict(&said));
    assert_eq!(judged.remotes.len(), 1);
    assert_eq!(judged.remotes[0].network, net("10.244.2.0/24"));
    assert_eq!(judged.rejected, []);
    let assigned = [facts(&["172.16.5.0/24"], &[])];
    let judged = select_peer_routes(&claims[..1], &strict(&assigned));
    assert_eq!(judged.remotes[0].network, net("172.16.5.0/24"));
}

#[test]
fn services_and_this_nodes_links_are_never_anothers() {
    let all = ["10.97.0.0/16", "192.168.0.0/16", "192.168.7.128/25"];
    let nodes = [facts(&all, &all)];
    let judged = select_peer_routes(&[claim("b", TAG, &all)], &strict(&nodes));
    assert_eq!(judged.remotes, []);
    let link = "192.168.7.0/24 of this node's interface eth0, and is not in network.podCIDR.base";
    assert_eq!(
        words(&judged.rejected),
        [
            "b advertises 10.97.0.0/16, which overlaps the service CIDR 10.96.0.0/12".to_owned(),
            format!("b advertises 192.168.0.0/16, which overlaps {link}"),
            format!("b advertises 192.168.7.128/25, which overlaps {link}"),
        ]
    );
    // A user's own subnet router is nobody's business.
    let judged = select_peer_routes(&[claim("b", TAG, &all)], &strict(&[]));
    assert_eq!(judged, PeerRoutes::default());
}

#[test]
fn services_in_the_base_are_not_pods() {
    let overlapping = PeerPolicy {
        services: vec![net("10.244.96.0/20")],
        ..trust()
    };
    let judged = select_peer_routes(&[claim("b", TAG, &["10.244.100.0/24"])], &overlapping);
    assert_eq!(
        words(&judged.rejected),
        ["b advertises 10.244.100.0/24, which overlaps the service CIDR 10.244.96.0/20"]
    );
}

#[test]
fn who_takes_anothers_name_is_not_that_one() {
    let thief = Advertisement {
        id: "id of the thief".to_owned(),
        ..claim("b", TAG, &["10.244.2.9/32"])
    };
    let judged = select_peer_routes(&[thief, claim("b", TAG, &["10.244.2.0/24"])], &trust());
    assert_eq!(judged.remotes.len(), 1);
    assert_eq!(
        words(&judged.rejected),
        ["b advertises 10.244.2.9/32, which is part of b's 10.244.2.0/24"]
    );
}

#[test]
fn nobody_counts_while_the_clusters_networks_are_not_known() {
    let unknown = PeerPolicy {
        base: Vec::new(),
        ..trust()
    };
    let judged = select_peer_routes(&[claim("b", TAG, &["10.244.2.0/24"])], &unknown);
    assert_eq!(judged, PeerRoutes::default());
}

/// Who is believed of a smaller network and a larger one around it, and what is refused then.
#[rstest]
#[case::nobody_known_before("10.244.0.0/17", "10.244.2.0/24", &[], "small")]
#[case::the_smaller_known_before("10.244.0.0/17", "10.244.2.0/24", &["10.244.2.0/24"], "small")]
#[case::a_node_larger_than_this("10.244.16.0/20", "10.244.17.0/24", &["10.244.16.0/20"], "large")]
#[case::a_node_smaller_than_this("10.244.2.0/23", "10.244.2.0/25", &["10.244.2.0/25"], "small")]
#[case::the_older_of_two(
    "10.244.0.0/17", "10.244.2.0/24", &["10.244.9.0/24", "10.244.2.0/24", "10.244.0.0/17"], "small"
)]
#[case::the_older_of_two(
    "10.244.16.0/20", "10.244.17.0/24", &["10.244.16.0/20", "10.244.17.0/24"], "large"
)]
#[case::a_pod_of_another_node("10.244.7.0/24", "10.244.7.9/32", &["10.244.7.9/32"], "small")]
#[case::a_thief_in_a_new_node("10.244.7.0/24", "10.244.7.9/32", &[], "large")]
#[case::both_larger_than_this("10.244.64.0/18", "10.244.64.0/20", &[], "small")]
#[case::both_smaller_than_this("10.244.7.0/25", "10.244.7.0/26", &[], "large")]
#[case::by_ipv6("fd00:244:0:8000::/49", "fd00:244:0:8002::/64", &[], "small")]
fn who_was_there_first_is_believed_and_then_who_is_like_this_node(
    #[case] large: &str,
    #[case] small: &str,
    #[case] known: &[&str],
    #[case] believed: &str,
) {
    // Its own network is in none of them.
    let trust = PeerPolicy {
        local: vec![net("10.244.250.0/24"), net("fd00:244:0:1::/64")],
        known: &known.iter().copied().map(net).collect::<Vec<_>>(),
        ..trust()
    };
    let claims = [claim("large", TAG, &[large]), claim("small", TAG, &[small])];
    let judged = select_peer_routes(&claims, &trust);
    let nodes: Vec<&str> = judged.remotes.iter().map(|it| it.node.as_str()).collect();
    assert_eq!(nodes, [believed]);
    let expected = match believed {
        "small" => format!("large advertises {large}, which overlaps small's {small}"),
        _ => format!("small advertises {small}, which is part of large's {large}"),
    };
    assert_eq!(words(&judged.rejected), [expected]);
    // A larger one gets nothing of what is the other's.
    let shadowed: &[IpNet] = if believed == "large" {
        &[net(small)]
    } else {
        &[]
    };
    assert_eq!(judged.shadowed(), shadowed);
}

#[test]
fn a_network_without_an_own_one_of_its_family_is_judged_by_its_size() {
    let trust = PeerPolicy {
        local: vec![net("10.244.1.0/24")],
        ..trust()
    };
    let claims = [
        claim("thief", TAG, &["fd00:244:0:2::/72"]),
        claim("b", TAG, &["fd00:244:0:2::/64"]),
    ];
    let judged = select_peer_routes(&claims, &trust);
    assert_eq!(judged.remotes[0].node, "b");
    assert_eq!(judged.shadowed(), [net("fd00:244:0:2::/72")]);
}

#[test]
fn one_larger_network_cuts_nobody_off() {
    let honest: Vec<Advertisement> = (2..100)
        .map(|n| claim(&format!("n{n}"), TAG, &[&format!("10.244.{n}.0/24")]))
        .collect();
    let trust = PeerPolicy {
        local: vec![net("10.244.200.0/24")],
        ..trust()
    };
    let mut all = honest.clone();
    all.push(claim("x", TAG, &["10.244.0.0/17"]));
    let judged = select_peer_routes(&all, &trust);
    assert_eq!(judged.remotes, select_peer_routes(&honest, &trust).remotes);
    assert_eq!(judged.remotes.len(), 98);
    assert_eq!(judged.shadowed(), []);
    assert_eq!(judged.rejected.len(), 1);
}

#[rstest]
#[case::exactly("10.244.2.0/24", "10.244.2.0/24 of Node b, another peer")]
#[case::larger("10.244.2.0/23", "10.244.2.0/24 of Node b, another peer")]
fn where_kubernetes_is_believed_a_network_is_one_members(#[case] taken: &str, #[case] why: &str) {
    let addresses = |text: &str| vec![text.parse::<IpAddr>().unwrap()];
    let b = NodeFacts {
        tailnet_ips: addresses("100.64.0.2"),
        ..facts(&["10.244.2.0/24"], &["10.244.2.0/24"])
    };
    // Whoever is root there says so.
    let x = NodeFacts {
        tailnet_ips: addresses("100.64.0.9"),
        ..facts(&["10.244.9.0/24"], &["10.244.9.0/24", taken])
    };
    let trust = PeerPolicy {
        nodes: Some(vec![("b", &b), ("x", &x)]),
        ..trust()
    };
    let by = |address: &str, claim: Advertisement| Advertisement {
        addresses: addresses(address),
        ..claim
    };
    let claims = [
        by("100.64.0.9", claim("x", TAG, &["10.244.9.0/24", taken])),
        by("100.64.0.2", claim("b", TAG, &["10.244.2.0/24"])),
    ];
    let judged = select_peer_routes(&claims, &trust);
    let found: Vec<String> = judged
        .remotes
        .iter()
        .map(|it| it.network.to_string())
        .collect();
    assert_eq!(found, ["10.244.2.0/24", "10.244.9.0/24"]);
    assert_eq!(judged.remotes[0].node, "b");
    let told = words(&judged.rejected);
    assert_eq!(told.len(), 1);
    assert!(
        told[0].starts_with(&format!("x advertises {taken}, which overlaps {why}")),
        "{told:?}"
    );
    // Also when the server sends packets for it to nobody else.
    let judged = select_peer_routes(&claims[..1], &trust);
    assert_eq!(judged.remotes.len(), 1);
    assert_eq!(judged.remotes[0].network, net("10.244.9.0/24"));
}

#[test]
fn a_member_has_no_more_networks_than_a_node_can_have() {
    let address = |n: usize| format!("10.244.{}.{}/32", 100 + n / 256, n % 256);
    let many: Vec<String> = (0..20_000).map(address).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let mut claims = vec![
        claim("x", TAG, &many),
        claim("laptop", "tag:laptop", &many),
        // It is nobody's business how many others a member serves.
        claim("router", TAG, &["10.244.3.0/24"]),
    ];
    let foreign = (0..=255).map(|n| net(&format!("10.1.{n}.0/24")));
    claims[2].served.extend(foreign);
    let judged = select_peer_routes(&claims, &trust());
    let of = |node: &str| judged.remotes.iter().filter(|it| it.node == node).count();
    assert_eq!((of("x"), of("router")), (MAX_NODE_ROUTES, 1));
    assert_eq!(judged.rejected.len(), MAX_NODE_ROUTES + 1);
    let told = judged.rejected.last().unwrap().to_string();
    let beyond = 20_000 - MAX_NODE_ROUTES;
    let why = format!("one of {beyond} above the limit of {MAX_NODE_ROUTES}");
    assert_eq!(
        told,
        format!("x advertises 10.244.100.68/32, {why} routes per node")
    );
}

#[test]
fn very_many_stolen_parts_are_refused_together_and_none_gets_through() {
    let victims = ["10.244.2.0/24", "10.244.128.0/17", "fd00:244:0:2::/64"];
    let honest = victims.map(|network| claim(&format!("of {network}"), TAG, &[network]));
    let mut thief = claim("x", TAG, &["10.244.2.9/32", "10.244.2.128/25"]);
    // Every other address, so that there are no two in a row.
    for n in 0..3000_u32 {
        let [.., high, low] = (n * 2).to_be_bytes();
        thief
            .served
            .push(net(&format!("10.244.{}.{low}/32", 128 + high)));
        thief
            .served
            .push(net(&format!("fd00:244:0:2:{n:x}::1/128")));
    }
    let known = victims.map(net);
    let trust = PeerPolicy {
        known: &known,
        ..trust()
    };
    let claims: Vec<Advertisement> = honest.into_iter().chain([thief.clone()]).collect();
    let judged = select_peer_routes(&claims, &trust);
    assert_eq!(judged.remotes.len(), 3);
    let shadowed = judged.shadowed();
    let (v4, v6): (Vec<&IpNet>, Vec<&IpNet>) = shadowed.iter().partition(|it| it.addr().is_ipv4());
    for parts in [v4.len(), v6.len()] {
        assert!((MOST_STOLEN / 2..=MOST_STOLEN).contains(&parts), "{parts}");
    }
    for network in &thief.served {
        assert!(
            shadowed.iter().any(|part| part.contains(network)),
            "{network}"
        );
    }
    // None is refused wholly.
    assert!(!shadowed.iter().any(|part| known.contains(part)));
    assert!(shadowed.contains(&net("10.244.2.128/25")));
}
