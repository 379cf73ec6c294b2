//! Rules, routes and tuning for the mesh.

use net::Mark;
use net::ethtool::{Features, Switch};

use super::*;
use crate::MeshRoutes;
use node_config::Mode;

const PEER_ROUTES: &str = "10.244.4.0/24,10.244.5.0/24,fd00:244:0:4::/64";

fn mesh() -> MeshRoutes {
    MeshRoutes {
        link: "headcni01".to_owned(),
        peer_routes: networks(PEER_ROUTES),
        ..MeshRoutes::default()
    }
}

fn with(mesh: &MeshRoutes) -> Desired {
    with_config(&Config::default(), mesh)
}

fn with_config(config: &Config, mesh: &MeshRoutes) -> Desired {
    let base = networks("10.244.0.0/16,fd00:244::/56");
    Desired::new(config, &networks(LOCAL), &base, Some(mesh)).unwrap()
}

/// A node in order that has the mesh link, but no mesh routes.
fn before() -> Observed {
    let mut observed = in_order();
    observed.links.push(link(7, "headcni01"));
    observed
}

/// A node in order with mesh routes.
fn with_mesh(desired: &Desired) -> Observed {
    let mut observed = before();
    for action in plan(desired, &observed.clone(), &record()) {
        match action {
            Action::AddUnreachableRoute(network) => observed.routes.push(unreachable(network)),
            Action::ReplaceMeshRoutes(routes) => observed.routes.extend(routes),
            Action::AddRule(rule) => observed.rules.push(rule),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(plan(desired, &observed, &record()), []);
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
fn a_shadowed_prefix_is_unreachable() {
    let mesh = MeshRoutes {
        shadowed: networks("10.244.4.0/25,fd00:244:0:4::9/128"),
        ..mesh()
    };
    let observed = with_mesh(&with(&mesh));
    for shadowed in ["10.244.4.0/25", "fd00:244:0:4::9/128"] {
        assert!(observed.routes.contains(&all(shadowed)), "{shadowed}");
    }
    // The route returns when the other peer is gone.
    let restored = plan(&with(&self::mesh()), &observed, &record());
    let [Action::RemoveMeshRoutes(routes)] = restored.as_slice() else {
        panic!("{restored:?}");
    };
    assert_eq!(routes.len(), 2);
}

#[test]
fn routes_come_before_the_rules_that_select_them() {
    let (ours, ours6) = (Some("10.244.3.1"), Some("fd00:244:0:3::1"));
    let mut expected: Vec<Action> = cluster().map(Action::AddUnreachableRoute).into();
    expected.push(Action::ReplaceMeshRoutes(vec![
        all("0.0.0.0/0"),
        all("::/0"),
        to("10.244.4.0/24", None, ours),
        to("10.244.5.0/24", None, ours),
        to("fd00:244:0:4::/64", None, ours6),
    ]));
    expected.extend(rules_of_mesh().into_iter().map(Action::AddRule));
    assert_eq!(plan(&with(&mesh()), &before(), &record()), expected);
}

#[test]
fn without_a_mesh_everything_is_removed_in_reverse() {
    let observed = with_mesh(&with(&mesh()));
    let actions = plan(&desired(), &observed, &record());
    let (actions, last) = actions.split_at(actions.len() - 2);
    assert_eq!(last, cluster().map(Action::RemoveUnreachableRoute));
    let (last, rules) = actions.split_last().unwrap();
    let mut priorities = Vec::new();
    for action in rules {
        let Action::RemoveRule(rule) = action else {
            panic!("{action:?}");
        };
        priorities.push(rule.priority);
    }
    assert_eq!(priorities, [5200, 5200, 5195, 5195]);
    let Action::RemoveMeshRoutes(routes) = last else {
        panic!("{last:?}");
    };
    assert_eq!(routes.len(), 5);
    let kinds: Vec<bool> = routes.iter().map(|r| r.metric == Some(1024)).collect();
    assert_eq!(kinds, [true, true, true, false, false]);
}

#[rstest]
#[case::missing(None)]
#[case::off(Some(false))]
fn without_its_link_only_unreachable_routes_are_added(#[case] link_state: Option<bool>) {
    let desired = with(&mesh());
    let mut observed = in_order();
    observed.links.extend(link_state.map(|is_up| Link {
        is_up,
        ..link(7, "headcni01")
    }));
    let actions = plan(&desired, &observed, &record());
    let unreachable_defaults = Action::ReplaceMeshRoutes(vec![all("0.0.0.0/0"), all("::/0")]);
    assert_eq!(actions[..2], cluster().map(Action::AddUnreachableRoute));
    assert_eq!(actions[2], unreachable_defaults);
    assert_eq!(actions.len(), 3 + rules_of_mesh().len());
}

#[test]
fn a_managed_link_is_set_up_before_its_routes() {
    let ours = MeshRoutes {
        is_managed: true,
        ..mesh()
    };
    let desired = with(&ours);
    let mut observed = with_mesh(&desired);
    // Its routes vanish with it.
    let is_by_link = |route: &Route| matches!(route.kind, RouteKind::Via { link: 7, .. });
    observed.routes.retain(|route| !is_by_link(route));
    let found = observed.links.iter_mut().find(|link| link.index == 7);
    found.unwrap().is_up = false;
    let [switched, set] = plan(&desired, &observed, &record()).try_into().unwrap();
    let expected = Action::SetLinkUp {
        link: 7,
        name: "headcni01".to_owned(),
    };
    assert_eq!(switched, expected);
    assert!(
        matches!(&set, Action::ReplaceMeshRoutes(routes) if routes.iter().all(is_by_link)),
        "{set:?}"
    );
    assert_eq!(
        plan(&with(&mesh()), &observed, &record()),
        [],
        "a link of the host's tailscaled"
    );
}

#[test]
fn routes_via_another_link_are_replaced_and_old_ones_removed() {
    let desired = with(&mesh());
    let mut observed = with_mesh(&desired);
    for route in &mut observed.routes {
        if let RouteKind::Via { link, .. } = &mut route.kind {
            *link = 6;
        }
    }
    let gone = to("10.244.9.0/24", None, None);
    observed.routes.push(gone.clone());
    let [set, removed] = plan(&desired, &observed, &record()).try_into().unwrap();
    assert!(
        matches!(&set, Action::ReplaceMeshRoutes(routes) if routes.len() == 3),
        "{set:?}"
    );
    assert_eq!(removed, Action::RemoveMeshRoutes(vec![gone]));
}

#[test]
fn a_second_route_to_a_peer_is_removed() {
    let desired = with(&mesh());
    let mut observed = with_mesh(&desired);
    let second = Route {
        metric: Some(1),
        ..to("10.244.4.0/24", None, None)
    };
    observed.routes.push(second.clone());
    let expected = [Action::RemoveMeshRoutes(vec![second])];
    assert_eq!(plan(&desired, &observed, &record()), expected);
}

#[test]
fn foreign_routes_in_the_same_table_stay() {
    let desired = with(&mesh());
    let mut observed = with_mesh(&desired);
    observed.routes.push(Route {
        protocol: 4,
        ..to("10.244.9.0/24", None, None)
    });
    assert_eq!(plan(&desired, &observed, &record()), []);
}

#[test]
fn extra_host_routes_stay_on_this_node() {
    let outside = networks("10.244.200.9/32");
    let mesh = MeshRoutes {
        extra_host_routes: outside.clone(),
        ..mesh()
    };
    let actions = plan(&with(&mesh), &before(), &record());
    let added = Action::AddRule(super::super::rule(outside[0]));
    assert!(actions.contains(&added), "{actions:?}");
}

#[test]
fn with_tailscaled_in_its_own_netns_routes_have_a_gateway() {
    let mesh = MeshRoutes {
        via_ipv4: Some("169.254.7.2".parse().unwrap()),
        via_ipv6: Some("fe80::2".parse().unwrap()),
        ..mesh()
    };
    let actions = plan(&with(&mesh), &before(), &record());
    let Action::ReplaceMeshRoutes(routes) = &actions[2] else {
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
fn the_address_of_a_bridge_is_the_source_once_it_exists() {
    let mut config = Config::default();
    config.cni.mode = Mode::Bridge;
    let desired = with_config(&config, &mesh());
    let mut observed = before();
    observed.addresses.clear();
    let routes = |observed: &Observed| match plan(&desired, observed, &record()).remove(2) {
        Action::ReplaceMeshRoutes(routes) => routes,
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
fn a_family_without_pods_gets_no_rules_or_routes() {
    let base = networks("10.244.0.0/16,fd00:244::/56");
    let local = networks("10.244.3.0/24");
    let desired = Desired::new(&Config::default(), &local, &base, Some(&mesh())).unwrap();
    let actions = plan(&desired, &Observed::default(), &record());
    for action in &actions {
        match action {
            Action::AddRule(rule) => assert!(rule.to.addr().is_ipv4(), "{rule:?}"),
            Action::ReplaceMeshRoutes(routes) => assert_eq!(routes, &[all("0.0.0.0/0")]),
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
    with(&MeshRoutes {
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
fn uplinks_are_tuned_and_restored() {
    let desired = tuned();
    let mut observed = with_mesh(&desired);
    let default = RouteKind::Via {
        link: 2,
        gateway: None,
    };
    let default = Route::new("0.0.0.0/0".parse().unwrap(), default, 3);
    observed.routes.push(default);
    assert_eq!(plan(&desired, &observed, &record()), [], "no such feature");
    observed.features.insert(2, features(false, true));
    observed.features.insert(7, features(false, true));
    let actions = plan(&desired, &observed, &record());
    let expected = [
        set_feature("rx-udp-gro-forwarding", Switch::On),
        set_feature("rx-gro-list", Switch::Off),
    ];
    assert_eq!(actions, expected);
    let mut record = record();
    record.add_planned(&desired, &observed, &actions);
    observed.features.insert(2, features(true, false));
    assert_eq!(plan(&desired, &observed, &record), []);

    let untuned = with(&mesh());
    let actions = plan(&untuned, &observed, &record);
    let expected = [
        set_feature("rx-gro-list", Switch::On),
        set_feature("rx-udp-gro-forwarding", Switch::Off),
    ];
    assert_eq!(actions, expected);
    record.add_planned(&untuned, &observed, &actions);
    record.drop_undesired(&untuned);
    observed.features.insert(2, features(true, false));
    assert_eq!(
        plan(&untuned, &observed, &record),
        [],
        "the administrator may change them now"
    );
}
