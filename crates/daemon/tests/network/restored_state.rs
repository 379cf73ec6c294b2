//! Kernel state that others delete is restored within a second, and connections between pods
//! survive.

use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};

use lab::{Netns, Pod, eventually};
use rstest::rstest;
use serde_json::json;

use crate::controller::with_controller;
use crate::fixture::{HostnetNode, SOON, host_port, reaches, with_pods};

/// A TCP connection between two pods.
struct Connection(TcpStream, TcpStream);

impl Connection {
    fn begin(caller: &Pod, server: &Pod, to: IpAddr) -> Self {
        let listening = server
            .enter(|| TcpListener::bind((to, 0)))
            .unwrap()
            .unwrap();
        let address = listening.local_addr().unwrap();
        let calling = caller
            .enter(|| TcpStream::connect(address))
            .unwrap()
            .unwrap();
        let (accepted, _) = listening.accept().unwrap();
        accepted.set_read_timeout(Some(lab::DEADLINE)).unwrap();
        Self(calling, accepted)
    }

    fn assert_works(&mut self) {
        self.0.write_all(b"word").unwrap();
        let mut heard = [0; 4];
        self.1.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"word");
    }
}

/// Our kernel state without what changes by itself.
fn state(fixture: &HostnetNode) -> Vec<String> {
    let dump = "nft --stateless list ruleset
        ip rule; ip -6 rule
        ip route show table main; ip -6 route show table main
        ip -brief address show lo
        sysctl net.ipv4.ip_forward net.ipv6.conf.all.forwarding";
    let dump = lab::without_dynamic_elements(&fixture.run(dump));
    let mut lines: Vec<String> = dump.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[rstest]
#[case::all_of_nftables("nft flush ruleset")]
#[case::the_table("nft delete table inet headcni")]
#[case::the_table_of_ports("nft delete table inet headcni-ports")]
#[case::both_tables("nft delete table inet headcni; nft delete table inet headcni-ports")]
#[case::all_rules_of_the_table("nft flush table inet headcni")]
#[case::a_chain("nft flush chain inet headcni guard")]
#[case::a_rule_ahead("nft insert rule inet headcni guard accept")]
#[case::a_rule_in_the_ports("nft insert rule inet headcni-ports prerouting drop")]
#[case::the_ports(
    "nft flush map inet headcni-ports by_port4; nft flush set inet headcni-ports hairpin4"
)]
#[case::what_is_guarded("nft flush set inet headcni mesh_only4")]
#[case::what_is_inside("nft add element inet headcni mesh_ifaces { \"eth0\" }")]
#[case::the_cluster("nft flush set inet headcni cluster4; nft flush set inet headcni cluster6")]
#[case::a_table_asleep("nft add table inet headcni '{ flags dormant; }'")]
#[case::put_back_from_a_file("nft -s list ruleset > /run/x; nft flush ruleset; nft -f /run/x")]
#[case::all_rules(
    "ip rule flush; ip -6 rule flush; ip rule add lookup main priority 32766; \
                   ip -6 rule add lookup main priority 32766; ip rule add lookup default priority 32767"
)]
#[case::our_rules("ip rule delete priority 5190; ip -6 rule delete priority 5190")]
#[case::our_routes(
    "ip route flush proto 104 type unreachable; \
                    ip -6 route flush proto 104 type unreachable"
)]
#[case::the_gateway("ip address delete 10.9.3.1/32 dev lo")]
#[case::the_other_gateway("ip address delete fd00:9:0:3::1/128 dev lo")]
#[case::forwarding("sysctl -w net.ipv4.ip_forward=0")]
#[case::forwarding_of_the_other("sysctl -w net.ipv6.conf.all.forwarding=0")]
#[case::the_loopback("ip link set lo down; ip link set lo up")]
#[case::pods_routes("ip route flush proto 104; ip -6 route flush proto 104")]
#[case::pods_neighbours_by_a_flap(
    "for l in $(ls /sys/class/net | grep ^hc); do \
                                   ip link set $l down; ip link set $l up; done"
)]
fn deleted_state_is_restored_within_a_second_and_connections_survive(#[case] wipe: &str) {
    let fixture = HostnetNode::new();
    let published = json!([{ "hostPort": 8080, "containerPort": 80, "protocol": "tcp" }]);
    let (a, of_a) = fixture.pod_with_ports("a", &published);
    let (b, of_b) = fixture.pod("b");
    let ports: Vec<_> = of_a
        .addresses
        .iter()
        .map(|ip| host_port(8080, *ip))
        .collect();
    with_controller(&fixture, with_pods(&[&of_a, &of_b], &ports), |controller| {
        let before = state(&fixture);
        let mut connections = of_b
            .addresses
            .iter()
            .map(|to| Connection::begin(&a, &b, *to));
        let mut connections = [connections.next().unwrap(), connections.next().unwrap()];
        let repairs = controller.repairs();
        fixture.run(wipe);
        let is_back = || (state(&fixture) == before).then_some(());
        let back = eventually(SOON, "all that was wiped", is_back);
        if back.is_err() {
            let after = state(&fixture);
            let lost: Vec<_> = before.iter().filter(|line| !after.contains(line)).collect();
            let new: Vec<_> = after.iter().filter(|line| !before.contains(line)).collect();
            let lines = (before.len(), after.len());
            panic!("lost: {lost:#?}\nnew: {new:#?}\n{lines:?}");
        }
        let is_told = || (controller.repairs() > repairs).then_some(());
        eventually(SOON, "a repair", is_told).unwrap();
        connections.iter_mut().for_each(Connection::assert_works);
        for address in &of_b.addresses {
            assert!(reaches(&a, address), "{address}");
        }
        controller.settle();
        let reconciles = controller.reconciles();
        controller.settle();
        assert_eq!(
            controller.reconciles(),
            reconciles,
            "reconciles do not settle"
        );
    });
}

#[test]
fn a_restarted_daemon_repairs_nothing() {
    let fixture = HostnetNode::new();
    let (_a, of_a) = fixture.pod("a");
    let wanted = with_pods(&[&of_a], &[]);
    fixture.passed(&wanted);
    let before = fixture.run("nft --stateless -a list ruleset");
    with_controller(&fixture, wanted, |controller| {
        assert_eq!(controller.repairs(), 0);
    });
    assert_eq!(fixture.run("nft --stateless -a list ruleset"), before);
}

#[test]
fn a_host_port_without_a_pod_is_removed() {
    let fixture = HostnetNode::new();
    let wanted = with_pods(&[], &[]);
    fixture.passed(&wanted);
    fixture.run("nft add element inet headcni-ports by_port4 { tcp . 8080 : 10.9.3.7 . 80 }");
    let repairs = fixture.passed(&wanted);
    assert_eq!(
        repairs,
        ["remove hostPort TCP port 8080 of 10.9.3.7, which is gone"]
    );
    assert!(!fixture.run("nft list ruleset").contains("8080"));
}

#[test]
fn a_host_port_in_use_is_an_error_and_the_rest_is_applied() {
    let fixture = HostnetNode::new();
    let (_a, of_a) = fixture.pod("a");
    let wanted = with_pods(&[&of_a], &[host_port(8080, of_a.addresses[0])]);
    fixture.passed(&with_pods(&[&of_a], &[]));
    let other = of_a.addresses[0];
    fixture.run(&format!(
        "nft add element inet headcni-ports by_port4 {{ tcp . 8080 : {other} . 99 }}
         ip rule delete priority 5190"
    ));
    let error = fixture.pass(&wanted).unwrap_err();
    let message = node_core::error::display_chain(&error);
    assert!(message.contains("it is forwarded to"), "{message}");
    assert!(fixture.run("ip rule").contains("5190"));
}
