//! Edited and outdated tables: detection and repair.

use ipnet::IpNet;
use lab::{Netns as _, Node};
use net::Socket;
use ruleset::host_ports::{self, Protocol};
use ruleset::{Contents, Fingerprint, Sets, Table};

use crate::harness::{host_port, listed, nft, node_with_tables};

fn networks(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn contents() -> Contents {
    Contents {
        mesh_only: networks(&["10.244.0.0/16", "fd00:244::/56", "10.244.3.0/24"]),
        mesh_ifaces: vec!["headcni01".to_owned(), "headcni0".to_owned()],
        bridges: vec!["headcni0".to_owned()],
        tailnet: networks(&["100.64.0.0/10", "fd7a:115c:a1e0::/48"]),
        is_unmasqueraded: true,
    }
}

fn elements(node: &Node, set: &str) -> Vec<String> {
    listed(node, "set", "headcni", set)
}

fn fingerprint(socket: &Socket, table: Table) -> Fingerprint {
    ruleset::fingerprint(socket, table).unwrap().unwrap()
}

fn replace(node: &Node, cluster: &[&str], contents: &Contents) {
    // `nft` must run in the netns of the node, too.
    node.enter(|| ruleset::replace(&Socket::netfilter().unwrap(), &networks(cluster), contents))
        .unwrap()
        .unwrap();
}

fn repair_ports(node: &Node) {
    node.enter(|| ruleset::repair_ports(&Socket::netfilter().unwrap()))
        .unwrap()
        .unwrap();
}

#[test]
fn install_fills_mesh_only_of_a_new_table() {
    let node = Node::new("n1").unwrap();
    let mesh_only = networks(&["10.244.3.0/24", "fd00:244::/56", "10.244.0.0/16"]);
    let install = || {
        let outcome = node.enter(|| ruleset::install(&Table::ALL, &mesh_only));
        outcome.unwrap().unwrap();
    };
    install();
    assert_eq!(elements(&node, "mesh_only4"), ["10.244.0.0/16"]);
    assert_eq!(elements(&node, "mesh_only6"), ["fd00:244::/56"]);
    // An existing table stays as it is.
    nft(&node, "flush set inet headcni mesh_only4");
    install();
    assert_eq!(elements(&node, "mesh_only4"), [""; 0]);
    assert_eq!(elements(&node, "mesh_only6"), ["fd00:244::/56"]);
}

#[test]
fn sets_get_exactly_the_desired_elements() {
    let (node, socket) = node_with_tables();
    assert!(ruleset::has_contents(&socket, &Contents::default()).unwrap());
    assert!(!ruleset::has_contents(&socket, &contents()).unwrap());
    ruleset::set_contents(&socket, &contents()).unwrap();
    assert!(ruleset::has_contents(&socket, &contents()).unwrap());
    assert_eq!(elements(&node, "mesh_only4"), ["10.244.0.0/16"]);
    assert_eq!(elements(&node, "mesh_only6"), ["fd00:244::/56"]);
    assert_eq!(
        elements(&node, "mesh_ifaces"),
        ["\"headcni0\"", "\"headcni01\""]
    );
    assert_eq!(elements(&node, "bridges"), ["\"headcni0\""]);
    assert_eq!(elements(&node, "tailnet4"), ["100.64.0.0/10"]);
    assert_eq!(elements(&node, "tailnet6"), ["fd7a:115c:a1e0::/48"]);
    assert_eq!(elements(&node, "unmasqueraded"), ["ipv4", "ipv6"]);
    nft(
        &node,
        "add element inet headcni mesh_only4 { 192.0.2.0/24 }",
    );
    nft(
        &node,
        "delete element inet headcni mesh_ifaces { \"headcni0\" }",
    );
    assert!(!ruleset::has_contents(&socket, &contents()).unwrap());
    ruleset::set_contents(&socket, &contents()).unwrap();
    assert_eq!(elements(&node, "mesh_only4"), ["10.244.0.0/16"]);
    assert!(ruleset::has_contents(&socket, &contents()).unwrap());
    ruleset::set_contents(&socket, &Contents::default()).unwrap();
    assert!(elements(&node, "mesh_only4").is_empty() && elements(&node, "mesh_ifaces").is_empty());
}

#[test]
fn an_outdated_table_is_replaced_and_keeps_its_cluster_networks() {
    let node = Node::new("n1").unwrap();
    let old = "table inet headcni { comment \"headcni, rules for pods, version 1\"
        set cluster4 { type ipv4_addr; flags interval; elements = { 10.9.0.0/24, 10.8.0.0/16 }; }
        set cluster6 { type ipv6_addr; flags interval; }
        chain postrouting { type nat hook postrouting priority srcnat; policy accept; }
        chain mine { }
    }";
    nft(&node, old);
    let socket = crate::harness::socket(&node);
    replace(&node, &["10.9.0.0/16", "fd00:9::/48"], &contents());
    let installed = ruleset::installed(&socket, Table::Pods).unwrap().unwrap();
    assert_eq!(installed.version, Some(Table::Pods.version()));
    assert_eq!(elements(&node, "cluster4"), ["10.8.0.0/16", "10.9.0.0/16"]);
    assert_eq!(elements(&node, "cluster6"), ["fd00:9::/48"]);
    assert!(ruleset::has_contents(&socket, &contents()).unwrap());
    let listing = node
        .run(["nft", "list", "table", "inet", "headcni"])
        .unwrap();
    assert!(!listing.stdout.contains("chain mine"), "{}", listing.stdout);
}

#[test]
fn a_missing_table_is_installed_and_may_cover_all_addresses() {
    let node = Node::new("n1").unwrap();
    let all = Contents {
        mesh_only: networks(&["0.0.0.0/0", "::/0"]),
        ..Contents::default()
    };
    replace(&node, &["0.0.0.0/0", "::/0"], &all);
    let socket = crate::harness::socket(&node);
    assert!(ruleset::has_contents(&socket, &all).unwrap());
    let every = networks(&["0.0.0.0/0", "::/0"]);
    assert!(ruleset::covers(&socket, Sets::Cluster, &every).unwrap());
}

#[test]
fn every_edit_changes_the_fingerprint() {
    let (node, socket) = node_with_tables();
    let edits = [
        "flush chain inet headcni guard",
        "add rule inet headcni guard accept",
        "insert rule inet headcni leaving return",
        "flush table inet headcni",
        "delete table inet headcni",
        "add table inet headcni { flags dormant; }",
        "add chain inet headcni prerouting { policy drop; }",
    ];
    for edit in edits {
        let before = fingerprint(&socket, Table::Pods);
        assert_eq!(before, fingerprint(&socket, Table::Pods));
        nft(&node, edit);
        let after = ruleset::fingerprint(&socket, Table::Pods).unwrap();
        assert_ne!(after, Some(before), "{edit}");
        replace(&node, &[], &Contents::default());
    }
    // Restored from a file, the rules are the same and their handles are not.
    let before = fingerprint(&socket, Table::Pods);
    let restore = "nft list ruleset > /run/saved; nft flush ruleset; nft -f /run/saved";
    node.run(["sh", "-c", restore]).unwrap();
    assert_ne!(fingerprint(&socket, Table::Pods), before);
}

#[test]
fn an_edited_table_has_no_fresh_fingerprint() {
    let (node, socket) = node_with_tables();
    for table in Table::ALL {
        let fresh = || ruleset::fresh_fingerprint(&socket, table).unwrap();
        assert_eq!(fresh(), Some(fingerprint(&socket, table)));
        let chain = format!("inet {} postrouting", table.name());
        nft(&node, &format!("add rule {chain} accept"));
        assert_eq!(fresh(), None);
        nft(&node, &format!("flush chain {chain}"));
        assert_eq!(fresh(), None);
    }
}

#[test]
fn a_table_of_any_script_is_intact_until_it_is_edited() {
    let node = Node::new("n1").unwrap();
    let socket = crate::harness::socket(&node);
    let script = "table inet other {\n\
                  \tchain out {\n\t\ttype filter hook output priority 0; policy accept;\n\
                  \t\tip daddr { 10.9.0.1, 10.9.0.2 } counter drop\n\t\taccept\n\t}\n\
                  \tchain empty {\n\t}\n}\n";
    let is_intact = || ruleset::is_intact(&socket, "other", script).unwrap();
    assert!(!is_intact(), "it is missing");
    for edit in [
        "flush table inet other",
        "add rule inet other empty accept",
        "delete chain inet other empty",
        "add table inet other { flags dormant; }",
        "delete table inet other",
    ] {
        nft(&node, script);
        assert!(is_intact(), "before {edit}");
        nft(&node, edit);
        assert!(!is_intact(), "{edit}");
        nft(&node, "add table inet other; delete table inet other");
    }
}

#[test]
fn elements_and_packets_do_not_change_the_fingerprint() {
    let (node, socket) = node_with_tables();
    let both = || Table::ALL.map(|table| fingerprint(&socket, table));
    let before = both();
    ruleset::set_contents(&socket, &contents()).unwrap();
    ruleset::ensure_covered(&socket, Sets::Excluded, &networks(&["10.9.0.0/16"])).unwrap();
    let port = host_port(None, Protocol::Tcp, 80, "10.9.0.2", 80);
    host_ports::add(&socket, &[port]).unwrap();
    node.ping("127.0.0.1").unwrap();
    assert_eq!(both(), before);
}

#[test]
fn repair_restores_the_rules_and_keeps_the_host_ports() {
    let (node, socket) = node_with_tables();
    let port = host_port(None, Protocol::Tcp, 80, "10.9.0.2", 80);
    host_ports::add(&socket, &[port]).unwrap();
    let whole = ["nft", "list", "table", "inet", "headcni-ports"];
    let before = node.run(whole).unwrap().stdout;
    for edit in [
        "flush table inet headcni-ports",
        "flush chain inet headcni-ports host_ports",
        "add rule inet headcni-ports output drop",
    ] {
        nft(&node, edit);
        repair_ports(&node);
        assert_eq!(node.run(whole).unwrap().stdout, before, "{edit}");
        assert_eq!(host_ports::list(&socket).unwrap(), [port], "{edit}");
    }
}

#[test]
fn an_outdated_ports_table_is_replaced_and_keeps_its_host_ports() {
    let (node, socket) = node_with_tables();
    let ports = [
        host_port(None, Protocol::Tcp, 80, "10.9.0.2", 80),
        host_port(Some("192.0.2.1"), Protocol::Udp, 53, "10.9.0.3", 53),
        host_port(None, Protocol::Tcp, 80, "fd00::2", 80),
    ];
    host_ports::add(&socket, &ports).unwrap();
    let list = ["nft", "list", "table", "inet", "headcni-ports"];
    let before = node.run(list).unwrap().stdout;
    let save = "nft list table inet headcni-ports | sed 's/version 1/version 0/' > /run/saved
                nft delete table inet headcni-ports; nft -f /run/saved";
    node.run(["sh", "-c", save]).unwrap();
    assert_ne!(node.run(list).unwrap().stdout, before);
    repair_ports(&node);
    assert_eq!(node.run(list).unwrap().stdout, before);
}

#[test]
fn hairpins_are_listed() {
    let (_node, socket) = node_with_tables();
    assert_eq!(host_ports::hairpins(&socket).unwrap().len(), 0);
    for pod in ["fd00::2", "10.9.0.3", "10.9.0.2"] {
        let port = host_port(None, Protocol::Tcp, 80, pod, 80);
        // Of each family only the first: the port is taken then.
        let _ = host_ports::add(&socket, &[port]);
    }
    let pods = host_ports::hairpins(&socket).unwrap();
    let expected: [std::net::IpAddr; 2] = ["10.9.0.3".parse().unwrap(), "fd00::2".parse().unwrap()];
    assert_eq!(pods, expected);
}

#[test]
fn a_foreign_table_of_the_same_name_is_replaced() {
    let (node, socket) = node_with_tables();
    nft(&node, "delete table inet headcni-ports");
    let comment = "headcni, hostPorts, version 1";
    nft(
        &node,
        &format!("add table inet headcni-ports {{ comment \"{comment}\"; }}"),
    );
    nft(
        &node,
        "add set inet headcni-ports by_port4 { type ipv4_addr; }",
    );
    repair_ports(&node);
    let port = host_port(None, Protocol::Tcp, 80, "10.9.0.2", 80);
    host_ports::add(&socket, &[port]).unwrap();
    assert_eq!(host_ports::list(&socket).unwrap(), [port]);
}

#[test]
fn uncover_removes_only_exact_networks() {
    let (node, socket) = node_with_tables();
    let all = networks(&["10.1.0.0/16", "10.2.0.0/16", "fd00::/64"]);
    ruleset::ensure_covered(&socket, Sets::Cluster, &all).unwrap();
    let removed = networks(&["10.1.0.0/16", "10.2.0.0/24", "10.3.0.0/16", "fd00::/64"]);
    ruleset::uncover(&socket, Sets::Cluster, &removed).unwrap();
    assert_eq!(elements(&node, "cluster4"), ["10.2.0.0/16"]);
    assert!(elements(&node, "cluster6").is_empty());
}

#[test]
fn deleting_a_missing_table_succeeds() {
    let (node, socket) = node_with_tables();
    for _ in 0..2 {
        for table in Table::ALL {
            node.enter(|| ruleset::delete(table)).unwrap().unwrap();
        }
        assert_eq!(ruleset::missing(&socket).unwrap(), Table::ALL);
    }
}

#[test]
fn two_thousand_addresses_fit_into_one_transaction() {
    let (node, socket) = node_with_tables();
    let first = u32::from(std::net::Ipv4Addr::new(100, 64, 0, 1));
    // No two are adjacent, and the second round replaces all.
    for start in [first, first + 65536] {
        let address = |n: u32| IpNet::from(std::net::IpAddr::from((start + 2 * n).to_be_bytes()));
        let contents = Contents {
            mesh_only: (0..2048).map(address).collect(),
            ..contents()
        };
        ruleset::set_contents(&socket, &contents).unwrap();
        assert!(ruleset::has_contents(&socket, &contents).unwrap());
        assert_eq!(elements(&node, "mesh_only4").len(), 2048);
    }
}
