//! What the kernel tells of changes, and that others' changes are told as they are.

#![expect(
    clippy::unwrap_used,
    reason = "these are tests, and clippy takes only the functions marked so for tests"
)]

use std::fmt::Write as _;

use lab::{Netns, Node, eventually};
use net::monitor::{Change, Monitor, TablePart};

struct Place {
    node: Node,
    route: Monitor,
    netfilter: Monitor,
}

impl Place {
    fn new() -> Self {
        let node = Node::new("n1").unwrap();
        let open = || (Monitor::route().unwrap(), Monitor::netfilter().unwrap());
        let (route, netfilter) = node.enter(open).unwrap();
        Self {
            node,
            route,
            netfilter,
        }
    }

    fn run(&self, line: &str) {
        self.node.run(["sh", "-c", line]).unwrap();
    }

    /// Everything that was told since the last time.
    fn told(&mut self) -> Vec<Change> {
        let mut told = Vec::new();
        for monitor in [&mut self.route, &mut self.netfilter] {
            while monitor.fetch(|change| told.push(change)).unwrap() {}
        }
        told
    }

    /// Waits until this is told: the kernel tells some things a moment later.
    #[track_caller]
    fn expect(&mut self, wanted: &Change) {
        let mut all = Vec::new();
        let heard = eventually(lab::DEADLINE, "a change", || {
            all.extend(self.told());
            all.contains(wanted).then_some(())
        });
        assert!(heard.is_ok(), "{wanted:?} is not in {all:?}");
    }
}

fn table(name: &str, part: TablePart) -> Change {
    Change::Table {
        table: name.to_owned(),
        part,
    }
}

#[test]
fn nothing_is_told_while_nothing_happens() {
    let mut place = Place::new();
    place.told();
    place.run("ip route; nft list ruleset; ip rule; sysctl net.ipv4.ip_forward");
    assert_eq!(place.told(), []);
}

#[test]
fn links_are_told_with_their_groups() {
    let mut place = Place::new();
    place.run("ip link add hc0 group 26723 type veth peer name hc1; ip link set hc0 up");
    let told = place.told();
    let is_on = |change: &&Change| matches!(change, Change::Link { name, group: 26723, is_up: true, .. } if name == "hc0");
    assert!(told.iter().any(|change| is_on(&change)), "{told:?}");
    place.run("ip link delete hc0");
    place.expect(&Change::LinkGone {
        name: "hc0".to_owned(),
        group: 26723,
    });
}

#[test]
fn what_is_deleted_is_told_with_whose_it_was() {
    let mut place = Place::new();
    for (family, network) in [("-4", "10.9.0.0/24"), ("-6", "fd00:9::/64")] {
        place.run(&format!(
            "ip {family} route add unreachable {network} metric 4000000 proto 104
             ip {family} rule add to {network} lookup main priority 5190 protocol 104
             ip address add {} dev lo",
            network.replace("0/24", "1/32").replace("::/64", "::1/128")
        ));
        place.told();
        place.run(&format!(
            "ip {family} route flush proto 104 type unreachable"
        ));
        place.expect(&Change::RouteGone { protocol: 104 });
        place.run(&format!("ip {family} rule delete priority 5190"));
        place.expect(&Change::RuleGone { protocol: 104 });
        let address = network.replace("0/24", "1/32").replace("::/64", "::1/128");
        place.run(&format!("ip address delete {address} dev lo"));
        place.expect(&Change::AddressGone { link: 1 });
    }
}

#[test]
fn forwarding_is_told_for_all_links() {
    let mut place = Place::new();
    for name in ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"] {
        for value in ["1", "0"] {
            place.told();
            place.node.sysctl(name, value).unwrap();
            place.expect(&Change::Forwarding {
                is_on: value == "1",
            });
        }
    }
    place.told();
    place
        .node
        .sysctl("net.ipv4.conf.lo.forwarding", "1")
        .unwrap();
    assert_eq!(place.told(), []);
}

#[test]
fn changes_of_tables_are_told_by_their_parts() {
    let mut place = Place::new();
    place.run(
        "nft 'add table inet t
              add chain inet t forward { type filter hook forward priority 0; }
              add chain inet t plain
              add rule inet t plain accept
              add set inet t s { type ipv4_addr; }
              add element inet t s { 10.0.0.1 }'",
    );
    let made = [
        table("t", TablePart::Itself),
        table("t", TablePart::BaseChain),
        table("t", TablePart::Chain("plain".to_owned())),
        table("t", TablePart::Rule("plain".to_owned())),
        table("t", TablePart::Set),
    ];
    let told = place.told();
    assert!(made.iter().all(|part| told.contains(part)), "{told:?}");
    place.run("nft flush chain inet t plain");
    assert_eq!(
        place.told(),
        [table("t", TablePart::Rule("plain".to_owned()))]
    );
    place.run("nft flush ruleset");
    let told = place.told();
    assert!(told.contains(&table("t", TablePart::Itself)), "{told:?}");
}

#[test]
fn more_than_the_socket_holds_is_told_as_such() {
    let mut place = Place::new();
    let mut script = "add table inet t\nadd chain inet t c\n".to_owned();
    for number in 0..20_000 {
        let _ = writeln!(
            script,
            "add rule inet t c ip saddr 10.0.0.1 drop comment \"{number}\""
        );
    }
    place.node.write("/run/many.nft", script).unwrap();
    place.run("nft -f /run/many.nft");
    let told = place.told();
    assert!(told.contains(&Change::Overrun), "{} changes", told.len());
    // And it goes on afterwards.
    place.run("nft add table inet other");
    assert_eq!(place.told(), [table("other", TablePart::Itself)]);
}
