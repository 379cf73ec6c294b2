//! What the plan does for the mesh.

use net::Mark;
use net::ethtool::{Features, Switch};

use super::*;
use crate::Mesh;
use node_config::Mode;

const REMOTES: &str = "10.244.4.0/24,10.244.5.0/24,fd00:244:0:4::/64";

fn mesh() -> Mesh {
    Mesh {
        link: "headcni01".to_owned(),
        remotes: networks(REMOTES),
        ..Mesh::default()
    }
}

fn with(mesh: &Mesh) -> Desired {
    with_config(&Config::default(), mesh)
}

fn with_config(config: &Config, mesh: &Mesh) -> Desired {
    let base = networks("10.244.0.0/16,fd00:244::/56");
    Desired::new(config, &networks(LOCAL), &base, Some(mesh)).unwrap()
}

/// A node on which all is as it should be but for the mesh, whose link is there.
fn before() -> Observed {
    let mut observed = in_order();
    observed.links.push(link(7, "headcni01"));
    observed
}

/// One on which that is in order as well.
fn with_mesh(desired: &Desired) -> Observed {
    let mut observed = before();
    for action in plan(desired, &observed.clone(), &memory()) {
        match action {
            Action::AddRoute(network) => observed.routes.push(unreachable(network)),
            Action::SetRoutes(routes) => observed.routes.extend(routes),
            Action::AddRule(rule) => observed.rules.push(rule),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(plan(desired, &observed, &memory()), []);
    observed
}

fn all(family: &str) -> Route {
    Route {
        table: MESH_TABLE,
        metric: Some(METRIC_UNREACHABLE),
        ..Route::new(
            family.parse().unwrap(),
            RouteKind::Unreachable,
            PROTO_HEADCNI,
        )
    }
}

fn to(remote: &str, gateway: Option<&str>, source: Option<&str>) -> Route {
    let kind = RouteKind::Via {
        link: 7,
        gateway: gateway.map(ip),
    };
    Route {
        table: MESH_TABLE,
        metric: Some(1024),
        source: source.map(ip),
        ..Route::new(remote.parse().unwrap(), kind, PROTO_HEADCNI)
    }
}

fn rule_of(priority: u32, network: &str) -> DestinationRule {
    let mark = Mark {
        value: 0x8_0000,
        mask: 0xff_0000,
    };
    DestinationRule {
        to: network.parse().unwrap(),
        mark: (priority == PRIORITY_MARKED).then_some(mark),
        action: match priority {
            PRIORITY_MARKED => RuleAction::Unreachable,
            _ => RuleAction::Lookup(MESH_TABLE),
        },
        priority,
        protocol: PROTO_HEADCNI,
    }
}

fn cluster() -> [IpNet; 2] {
    ["10.244.0.0/16", "fd00:244::/56"].map(|network| network.parse().unwrap())
}

fn rules_of_mesh() -> Vec<DestinationRule> {
    let of = |priority| cluster().map(|network| rule_of(priority, &network.to_string()));
    [of(5195), of(5200)].concat()
}

#[test]
fn a_part_that_somebody_else_would_get_leads_nowhere() {
    let mesh = Mesh {
        stolen: networks("10.244.4.0/25,fd00:244:0:4::9/128"),
        ..mesh()
    };
    let observed = with_mesh(&with(&mesh));
    for stolen in ["10.244.4.0/25", "fd00:244:0:4::9/128"] {
        assert!(observed.routes.contains(&all(stolen)), "{stolen}");
    }
    // It is a way again when the other one is gone.
    let given_back = plan(&with(&self::mesh()), &observed, &memory());
    let [Action::RemoveRoutes(routes)] = given_back.as_slice() else {
        panic!("{given_back:?}");
    };
    assert_eq!(routes.len(), 2);
}

#[test]
fn ways_come_before_the_rules_that_lead_to_them() {
    let (ours, ours6) = (Some("10.244.3.1"), Some("fd00:244:0:3::1"));
    let mut expected: Vec<Action> = cluster().map(Action::AddRoute).into();
    expected.push(Action::SetRoutes(vec![
        all("0.0.0.0/0"),
        all("::/0"),
        to("10.244.4.0/24", None, ours),
        to("10.244.5.0/24", None, ours),
        to("fd00:244:0:4::/64", None, ours6),
    ]));
    expected.extend(rules_of_mesh().into_iter().map(Action::AddRule));
    assert_eq!(plan(&with(&mesh()), &before(), &memory()), expected);
}

#[test]
fn without_a_mesh_all_of_it_goes_in_reverse() {
    let observed = with_mesh(&with(&mesh()));
    let actions = plan(&desired(), &observed, &memory());
    let (actions, last) = actions.split_at(actions.len() - 2);
    assert_eq!(last, cluster().map(Action::RemoveRoute));
    let (last, rules) = actions.split_last().unwrap();
    let mut priorities = Vec::new();
    for action in rules {
        let Action::RemoveRule(rule) = action else {
            panic!("{action:?}");
        };
        priorities.push(rule.priority);
    }
    assert_eq!(priorities, [5200, 5200, 5195, 5195]);
    let Action::RemoveRoutes(routes) = last else {
        panic!("{last:?}");
    };
    assert_eq!(routes.len(), 5);
    let kinds: Vec<bool> = routes.iter().map(|r| r.metric == Some(1024)).collect();
    assert_eq!(kinds, [true, true, true, false, false]);
}

#[rstest]
#[case::missing(None)]
#[case::off(Some(false))]
fn without_its_link_only_what_protects_is_made(#[case] link_state: Option<bool>) {
    let desired = with(&mesh());
    let mut observed = in_order();
    observed.links.extend(link_state.map(|is_up| Link {
        is_up,
        ..link(7, "headcni01")
    }));
    let actions = plan(&desired, &observed, &memory());
    let protecting = Action::SetRoutes(vec![all("0.0.0.0/0"), all("::/0")]);
    assert_eq!(actions[..2], cluster().map(Action::AddRoute));
    assert_eq!(actions[2], protecting);
    assert_eq!(actions.len(), 3 + rules_of_mesh().len());
}

#[test]
fn a_link_of_ours_that_is_off_is_switched_on_before_routes_lead_by_it() {
    let ours = Mesh {
        is_ours: true,
        ..mesh()
    };
    let desired = with(&ours);
    let mut observed = with_mesh(&desired);
    // The routes go with it.
    let is_by_link = |route: &Route| matches!(route.kind, RouteKind::Via { link: 7, .. });
    observed.routes.retain(|route| !is_by_link(route));
    let found = observed.links.iter_mut().find(|link| link.index == 7);
    found.unwrap().is_up = false;
    let [switched, set] = plan(&desired, &observed, &memory()).try_into().unwrap();
    let expected = Action::SwitchOn {
        link: 7,
        name: "headcni01".to_owned(),
    };
    assert_eq!(switched, expected);
    assert!(
        matches!(&set, Action::SetRoutes(routes) if routes.iter().all(is_by_link)),
        "{set:?}"
    );
    assert_eq!(plan(&with(&mesh()), &observed, &memory()), [], "a host's");
}

#[test]
fn routes_by_another_link_are_replaced_and_old_ones_removed() {
    let desired = with(&mesh());
    let mut observed = with_mesh(&desired);
    for route in &mut observed.routes {
        if let RouteKind::Via { link, .. } = &mut route.kind {
            *link = 6;
        }
    }
    let gone = to("10.244.9.0/24", None, None);
    observed.routes.push(gone.clone());
    let [set, removed] = plan(&desired, &observed, &memory()).try_into().unwrap();
    assert!(
        matches!(&set, Action::SetRoutes(routes) if routes.len() == 3),
        "{set:?}"
    );
    assert_eq!(removed, Action::RemoveRoutes(vec![gone]));
}

#[test]
fn a_second_way_to_a_node_is_removed_and_the_right_one_stays() {
    let desired = with(&mesh());
    let mut observed = with_mesh(&desired);
    let beside = Route {
        metric: Some(1),
        ..to("10.244.4.0/24", None, None)
    };
    observed.routes.push(beside.clone());
    let expected = [Action::RemoveRoutes(vec![beside])];
    assert_eq!(plan(&desired, &observed, &memory()), expected);
}

#[test]
fn routes_of_others_in_the_same_table_stay() {
    let desired = with(&mesh());
    let mut observed = with_mesh(&desired);
    observed.routes.push(Route {
        protocol: 4,
        ..to("10.244.9.0/24", None, None)
    });
    assert_eq!(plan(&desired, &observed, &memory()), []);
}

#[test]
fn addresses_of_pods_outside_the_nodes_networks_do_not_lead_away() {
    let outside = networks("10.244.200.9/32");
    let mesh = Mesh {
        outside: outside.clone(),
        ..mesh()
    };
    let actions = plan(&with(&mesh), &before(), &memory());
    let added = Action::AddRule(super::super::rule(outside[0]));
    assert!(actions.contains(&added), "{actions:?}");
}

#[test]
fn where_tailscaled_is_in_a_namespace_of_its_own_routes_go_by_a_gateway() {
    let mesh = Mesh {
        via_ipv4: Some("169.254.7.2".parse().unwrap()),
        via_ipv6: Some("fe80::2".parse().unwrap()),
        ..mesh()
    };
    let actions = plan(&with(&mesh), &before(), &memory());
    let Action::SetRoutes(routes) = &actions[2] else {
        panic!("{actions:?}");
    };
    let expected = [
        to("10.244.4.0/24", Some("169.254.7.2"), Some("10.244.3.1")),
        to("10.244.5.0/24", Some("169.254.7.2"), Some("10.244.3.1")),
        to(
            "fd00:244:0:4::/64",
            Some("fe80::2"),
            Some("fd00:244:0:3::1"),
        ),
    ];
    assert_eq!(routes[2..], expected);
}

#[test]
fn a_bridge_s_address_is_the_source_as_soon_as_it_is_there() {
    let mut config = Config::default();
    config.cni.mode = Mode::Bridge;
    let desired = with_config(&config, &mesh());
    let mut observed = before();
    observed.addresses.clear();
    let routes = |observed: &Observed| match plan(&desired, observed, &memory()).remove(2) {
        Action::SetRoutes(routes) => routes,
        other => panic!("{other:?}"),
    };
    assert_eq!(routes(&observed)[2], to("10.244.4.0/24", None, None));
    observed.addresses.push(Address {
        link: 5,
        net: "10.244.3.1/24".parse().unwrap(),
    });
    let found = routes(&observed);
    assert_eq!(found[2], to("10.244.4.0/24", None, Some("10.244.3.1")));
    assert_eq!(found[4], to("fd00:244:0:4::/64", None, None));
}

#[test]
fn a_family_that_pods_do_not_have_gets_nothing() {
    let base = networks("10.244.0.0/16,fd00:244::/56");
    let local = networks("10.244.3.0/24");
    let desired = Desired::new(&Config::default(), &local, &base, Some(&mesh())).unwrap();
    let actions = plan(&desired, &Observed::default(), &memory());
    for action in &actions {
        match action {
            Action::AddRule(rule) => assert!(rule.to.addr().is_ipv4(), "{rule:?}"),
            Action::SetRoutes(routes) => assert_eq!(routes, &[all("0.0.0.0/0")]),
            _ => {}
        }
    }
    assert!(actions.contains(&Action::AddRule(rule_of(5200, "10.244.0.0/16"))));
}

fn features(udp: bool, list: bool) -> Features {
    let names = ["rx-udp-gro-forwarding", "rx-gro-list"];
    let wanted = names.into_iter().zip([udp, list]).filter(|(_, on)| *on);
    let wanted: Vec<&str> = wanted.map(|(name, _)| name).collect();
    Features::new(&names, &wanted)
}

fn tuned() -> Desired {
    with(&Mesh {
        tune_links: true,
        ..mesh()
    })
}

fn set_feature(feature: &str, switch: Switch) -> Action {
    Action::SetFeature {
        link: 2,
        name: "eth0".to_owned(),
        feature: feature.to_owned(),
        switch,
    }
}

#[test]
fn links_of_default_routes_are_tuned_and_get_back_what_they_had() {
    let desired = tuned();
    let mut observed = with_mesh(&desired);
    let default = RouteKind::Via {
        link: 2,
        gateway: None,
    };
    let default = Route::new("0.0.0.0/0".parse().unwrap(), default, 3);
    observed.routes.push(default);
    assert_eq!(plan(&desired, &observed, &memory()), [], "it can't be");
    observed.features.insert(2, features(false, true));
    observed.features.insert(7, features(false, true));
    let actions = plan(&desired, &observed, &memory());
    let expected = [
        set_feature("rx-udp-gro-forwarding", Switch::On),
        set_feature("rx-gro-list", Switch::Off),
    ];
    assert_eq!(actions, expected);
    let mut memory = memory();
    memory.note(&desired, &observed, &actions);
    observed.features.insert(2, features(true, false));
    assert_eq!(plan(&desired, &observed, &memory), []);

    let untuned = with(&mesh());
    let actions = plan(&untuned, &observed, &memory);
    let expected = [
        set_feature("rx-gro-list", Switch::On),
        set_feature("rx-udp-gro-forwarding", Switch::Off),
    ];
    assert_eq!(actions, expected);
    memory.note(&untuned, &observed, &actions);
    memory.forget_old(&untuned);
    observed.features.insert(2, features(true, false));
    assert_eq!(plan(&untuned, &observed, &memory), [], "others may now");
}
