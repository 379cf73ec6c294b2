mod mesh;

use std::collections::BTreeMap;

use net::{Address, Link};
use rstest::rstest;
use ruleset::Fingerprint;

use super::*;
use crate::Tables;
use node_config::{Config, Networks};

const LOCAL: &str = "10.244.3.0/24,fd00:244:0:3::/64";

fn networks(text: &str) -> Vec<IpNet> {
    text.parse::<Networks>().unwrap().0
}

fn desired_for(local: &str) -> Desired {
    let base = networks("10.244.0.0/16,fd00:244::/56");
    Desired::new(&Config::default(), &networks(local), &base, None).unwrap()
}

fn desired() -> Desired {
    desired_for(LOCAL)
}

fn table(table: Table) -> TableState {
    TableState {
        version: Some(table.version()),
        fingerprint: Fingerprint::from_text(table.name()),
    }
}

/// A record with the fingerprints of [`table`].
fn record() -> HostnetRecord {
    serde_json::from_str(r#"{"tables": {"headcni": "headcni", "headcni-ports": "headcni-ports"}}"#)
        .unwrap()
}

fn link(index: u32, name: &str) -> Link {
    Link {
        index,
        name: name.to_owned(),
        is_up: true,
        mac: None,
        mtu: 1500,
        group: 0,
        kind: String::new(),
        alias: String::new(),
    }
}

/// A node in order.
fn in_order() -> Observed {
    let desired = desired();
    let sysctls = [(FORWARD_IPV4, "1"), (FORWARD_IPV6, "1")];
    Observed {
        sysctls: sysctls
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        links: vec![link(1, "lo"), link(2, "eth0")],
        addresses: desired
            .gateways
            .iter()
            .map(|gateway| Address {
                link: LO_INDEX,
                net: (*gateway).into(),
            })
            .collect(),
        routes: desired.local.iter().map(|net| unreachable(*net)).collect(),
        rules: desired.local.iter().map(|net| rule(*net)).collect(),
        neighbours: Vec::new(),
        features: BTreeMap::new(),
        tables: Tables {
            pods: Some(table(Table::Pods)),
            ports: Some(table(Table::Ports)),
            covers_cluster: true,
            covers_excluded: true,
            has_contents: true,
            published: Vec::new(),
            hairpins: Vec::new(),
        },
    }
}

fn plan_of(observed: &Observed) -> Vec<Action> {
    plan(&desired(), observed, &record())
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn a_node_in_order_needs_no_action() {
    assert_eq!(plan_of(&in_order()), []);
}

#[test]
fn on_a_new_node_protection_comes_before_forwarding() {
    let observed = Observed {
        sysctls: BTreeMap::from([
            (FORWARD_IPV4.to_owned(), "0".to_owned()),
            (FORWARD_IPV6.to_owned(), "0".to_owned()),
            (accept_ra("eth0"), "1".to_owned()),
        ]),
        links: vec![link(1, "lo"), link(2, "eth0")],
        ..Observed::default()
    };
    let set = |name: &str, value, found: &str| Action::SetSysctl {
        name: name.to_owned(),
        value,
        found: found.to_owned(),
    };
    let nets = networks(LOCAL);
    let expected = [
        Action::ReplaceTable(Table::Ports, TableFault::Missing),
        Action::ReplaceTable(Table::Pods, TableFault::Missing),
        set(FORWARD_IPV4, "1", "0"),
        set("ipv6/conf/eth0/accept_ra", "2", "1"),
        set(FORWARD_IPV6, "1", "0"),
        Action::AddGateway(ip("10.244.3.1")),
        Action::AddGateway(ip("fd00:244:0:3::1")),
        Action::AddUnreachableRoute(nets[0]),
        Action::AddUnreachableRoute(nets[1]),
        Action::AddRule(rule(nets[0])),
        Action::AddRule(rule(nets[1])),
    ];
    assert_eq!(
        plan(&desired(), &observed, &HostnetRecord::default()),
        expected
    );
}

#[test]
fn without_ipv6_pods_its_settings_stay() {
    let mut observed = in_order();
    observed
        .sysctls
        .insert(FORWARD_IPV6.to_owned(), "0".to_owned());
    observed.sysctls.insert(accept_ra("eth0"), "1".to_owned());
    observed.routes.truncate(1);
    observed.rules.truncate(1);
    assert_eq!(
        plan(&desired_for("10.244.3.0/24"), &observed, &record()),
        []
    );
}

#[test]
fn a_kernel_without_ipv6_gets_no_sysctls() {
    let mut observed = in_order();
    observed.sysctls.remove(FORWARD_IPV6);
    assert_eq!(plan_of(&observed), []);
}

#[rstest]
#[case::never("0", None)]
#[case::always("2", None)]
#[case::unless_forwarding("1", Some("2"))]
fn a_link_keeps_accepting_router_advertisements(
    #[case] found: &str,
    #[case] expected: Option<&str>,
) {
    let mut observed = in_order();
    observed.sysctls.insert(accept_ra("eth0"), found.to_owned());
    let set: Vec<&str> = plan_of(&observed)
        .iter()
        .map(|action| match action {
            Action::SetSysctl { value, .. } => *value,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(set, expected.into_iter().collect::<Vec<_>>());
}

#[rstest]
#[case::missing(None, TableFault::Missing)]
#[case::old(Some((Some(2), "headcni")), TableFault::OtherVersion)]
#[case::unnamed(Some((None, "headcni")), TableFault::OtherVersion)]
#[case::edited(Some((Some(Table::Pods.version()), "another")), TableFault::Changed)]
fn a_faulty_table_is_replaced(
    #[case] state: Option<(Option<u32>, &str)>,
    #[case] fault: TableFault,
) {
    let mut observed = in_order();
    observed.tables.pods = state.map(|(version, fingerprint)| TableState {
        version,
        fingerprint: Fingerprint::from_text(fingerprint),
    });
    // A new table comes with its sets filled.
    observed.tables.has_contents = false;
    observed.tables.covers_cluster = false;
    assert_eq!(
        plan_of(&observed),
        [Action::ReplaceTable(Table::Pods, fault)]
    );
}

#[test]
fn a_table_without_fingerprint_is_replaced() {
    let actions = plan(&desired(), &in_order(), &HostnetRecord::default());
    let put = |table| Action::ReplaceTable(table, TableFault::Changed);
    assert_eq!(actions, [put(Table::Ports), put(Table::Pods)]);
}

#[test]
fn incomplete_sets_are_filled() {
    let mut observed = in_order();
    observed.tables.has_contents = false;
    observed.tables.covers_cluster = false;
    observed.tables.covers_excluded = false;
    let expected = [
        Action::AddToSets(Sets::Excluded),
        Action::FillSets,
        Action::AddToSets(Sets::Cluster),
    ];
    assert_eq!(plan_of(&observed), expected);
}

#[test]
fn a_former_pod_cidr_is_removed() {
    let mut record = record();
    let old = desired_for("10.244.9.0/24");
    record.add_planned(&old, &Observed::default(), &[]);
    record.cluster.insert("10.77.0.0/16".parse().unwrap());
    let mut observed = in_order();
    observed.routes.push(unreachable(old.local[0]));
    observed.rules.push(rule(old.local[0]));
    let expected = [
        Action::RemoveFromSets(networks("10.77.0.0/16")),
        Action::RemoveGateway(ip("10.244.9.1")),
        Action::RemoveRule(rule(old.local[0])),
        Action::RemoveUnreachableRoute(old.local[0]),
    ];
    assert_eq!(plan(&desired(), &observed, &record), expected);
}

#[test]
fn foreign_routes_rules_and_addresses_stay() {
    let mut observed = in_order();
    let network: IpNet = "10.99.0.0/16".parse().unwrap();
    for foreign in [
        Route::new(network, RouteKind::Unreachable, 4),
        Route::new(network, RouteKind::Unreachable, PROTO_HEADCNI),
        Route {
            table: 52,
            ..unreachable(network)
        },
    ] {
        observed.routes.push(foreign);
    }
    for foreign in [
        DestinationRule {
            protocol: 3,
            ..rule(network)
        },
        DestinationRule {
            priority: 5210,
            ..rule(network)
        },
    ] {
        observed.rules.push(foreign);
    }
    observed.addresses.push(Address {
        link: LO_INDEX,
        net: network,
    });
    assert_eq!(plan_of(&observed), []);
}

#[test]
fn a_managed_rule_with_another_table_is_replaced() {
    let mut observed = in_order();
    let right = observed.rules[0];
    let wrong = DestinationRule {
        action: RuleAction::Lookup(52),
        ..right
    };
    observed.rules[0] = wrong;
    let expected = [Action::AddRule(right), Action::RemoveRule(wrong)];
    assert_eq!(plan_of(&observed), expected);
}

#[test]
fn a_gateway_on_another_link_does_not_count() {
    let mut observed = in_order();
    observed.addresses[0].link = 2;
    assert_eq!(plan_of(&observed), [Action::AddGateway(ip("10.244.3.1"))]);
}
