mod of_mesh;

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
        mark: Fingerprint::from_text(table.name()),
    }
}

/// A memory of tables that look as [`table`] says.
fn memory() -> Memory {
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

/// A node on which all is as it should be.
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
            knows_cluster: true,
            knows_excluded: true,
            has_contents: true,
            published: Vec::new(),
            hairpins: Vec::new(),
        },
    }
}

fn plan_of(observed: &Observed) -> Vec<Action> {
    plan(&desired(), observed, &memory())
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn what_is_in_order_is_left_alone() {
    assert_eq!(plan_of(&in_order()), []);
}

#[test]
fn from_nothing_protection_comes_before_forwarding() {
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
        Action::PutTable(Table::Ports, Edit::Missing),
        Action::PutTable(Table::Pods, Edit::Missing),
        set(FORWARD_IPV4, "1", "0"),
        set("ipv6/conf/eth0/accept_ra", "2", "1"),
        set(FORWARD_IPV6, "1", "0"),
        Action::AddGateway(ip("10.244.3.1")),
        Action::AddGateway(ip("fd00:244:0:3::1")),
        Action::AddRoute(nets[0]),
        Action::AddRoute(nets[1]),
        Action::AddRule(rule(nets[0])),
        Action::AddRule(rule(nets[1])),
    ];
    assert_eq!(plan(&desired(), &observed, &Memory::default()), expected);
}

#[test]
fn without_ipv6_nothing_of_it_is_touched() {
    let mut observed = in_order();
    observed
        .sysctls
        .insert(FORWARD_IPV6.to_owned(), "0".to_owned());
    observed.sysctls.insert(accept_ra("eth0"), "1".to_owned());
    observed.routes.truncate(1);
    observed.rules.truncate(1);
    assert_eq!(
        plan(&desired_for("10.244.3.0/24"), &observed, &memory()),
        []
    );
}

#[test]
fn a_kernel_without_ipv6_has_nothing_to_set() {
    let mut observed = in_order();
    observed.sysctls.remove(FORWARD_IPV6);
    assert_eq!(plan_of(&observed), []);
}

#[rstest]
#[case::never("0", None)]
#[case::always("2", None)]
#[case::would_be_deaf("1", Some("2"))]
fn a_link_that_listens_to_routers_goes_on(#[case] found: &str, #[case] expected: Option<&str>) {
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
#[case::missing(None, Edit::Missing)]
#[case::old(Some((Some(2), "headcni")), Edit::OtherVersion)]
#[case::unnamed(Some((None, "headcni")), Edit::OtherVersion)]
#[case::edited(Some((Some(Table::Pods.version()), "another")), Edit::Changed)]
fn a_table_that_is_not_as_we_left_it_is_put_back(
    #[case] state: Option<(Option<u32>, &str)>,
    #[case] edit: Edit,
) {
    let mut observed = in_order();
    observed.tables.pods = state.map(|(version, mark)| TableState {
        version,
        mark: Fingerprint::from_text(mark),
    });
    // It comes with everything in it.
    observed.tables.has_contents = false;
    observed.tables.knows_cluster = false;
    assert_eq!(plan_of(&observed), [Action::PutTable(Table::Pods, edit)]);
}

#[test]
fn a_table_that_we_did_not_install_is_put_back_once() {
    let actions = plan(&desired(), &in_order(), &Memory::default());
    let put = |table| Action::PutTable(table, Edit::Changed);
    assert_eq!(actions, [put(Table::Ports), put(Table::Pods)]);
}

#[test]
fn sets_that_lack_something_are_filled() {
    let mut observed = in_order();
    observed.tables.has_contents = false;
    observed.tables.knows_cluster = false;
    observed.tables.knows_excluded = false;
    let expected = [
        Action::Cover(Sets::Excluded),
        Action::SetContents,
        Action::Cover(Sets::Cluster),
    ];
    assert_eq!(plan_of(&observed), expected);
}

#[test]
fn an_old_network_is_taken_away() {
    let mut memory = memory();
    let old = desired_for("10.244.9.0/24");
    memory.note(&old, &Observed::default(), &[]);
    memory.cluster.insert("10.77.0.0/16".parse().unwrap());
    let mut observed = in_order();
    observed.routes.push(unreachable(old.local[0]));
    observed.rules.push(rule(old.local[0]));
    let expected = [
        Action::Uncover(networks("10.77.0.0/16")),
        Action::RemoveGateway(ip("10.244.9.1")),
        Action::RemoveRule(rule(old.local[0])),
        Action::RemoveRoute(old.local[0]),
    ];
    assert_eq!(plan(&desired(), &observed, &memory), expected);
}

#[test]
fn things_of_others_stay() {
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
fn a_rule_of_ours_that_leads_elsewhere_is_replaced() {
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
fn an_address_of_another_link_is_no_gateway() {
    let mut observed = in_order();
    observed.addresses[0].link = 2;
    assert_eq!(plan_of(&observed), [Action::AddGateway(ip("10.244.3.1"))]);
}
