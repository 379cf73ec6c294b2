//! Notifications about changes that `ip`, `nft` and `sysctl` make.

#![expect(
    clippy::unwrap_used,
    reason = "clippy exempts only functions marked as tests"
)]

use std::fmt::Write as _;

use lab::{Netns, Node, eventually};
use net::monitor::{Change, Monitor, TablePart};

struct Testbed {
    node: Node,
    route: Monitor,
    netfilter: Monitor,
}

impl Testbed {
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

    /// All changes since the last call.
    fn changes(&mut self) -> Vec<Change> {
        let mut changes = Vec::new();
        for monitor in [&mut self.route, &mut self.netfilter] {
            while monitor.fetch(|change| changes.push(change)).unwrap() {}
        }
        changes
    }

    /// Waits for this change: the kernel reports some with a delay.
    #[track_caller]
    fn expect(&mut self, wanted: &Change) {
        let mut all = Vec::new();
        let found = eventually(lab::DEADLINE, "a change", || {
            all.extend(self.changes());
            all.contains(wanted).then_some(())
        });
        assert!(found.is_ok(), "{wanted:?} is not in {all:?}");
    }
}

fn table(name: &str, part: TablePart) -> Change {
    Change::Table {
        table: name.to_owned(),
        part,
    }
}

#[test]
fn queries_cause_no_notifications() {
    let mut testbed = Testbed::new();
    testbed.changes();
    testbed.run("ip route; nft list ruleset; ip rule; sysctl net.ipv4.ip_forward");
    assert_eq!(testbed.changes(), []);
}

#[test]
fn links_are_reported_with_their_groups() {
    let mut testbed = Testbed::new();
    testbed.run("ip link add hc0 group 26723 type veth peer name hc1; ip link set hc0 up");
    let changes = testbed.changes();
    let is_on = |change: &&Change| matches!(change, Change::Link { name, group: 26723, is_up: true, .. } if name == "hc0");
    assert!(changes.iter().any(|change| is_on(&change)), "{changes:?}");
    testbed.run("ip link delete hc0");
    testbed.expect(&Change::LinkGone {
        name: "hc0".to_owned(),
        group: 26723,
    });
}

#[test]
fn removed_routes_and_rules_are_reported_with_their_protocol() {
    let mut testbed = Testbed::new();
    for (family, network) in [("-4", "10.9.0.0/24"), ("-6", "fd00:9::/64")] {
        testbed.run(&format!(
            "ip {family} route add unreachable {network} metric 4000000 proto 104
             ip {family} rule add to {network} lookup main priority 5190 protocol 104
             ip address add {} dev lo",
            network.replace("0/24", "1/32").replace("::/64", "::1/128")
        ));
        testbed.changes();
        testbed.run(&format!(
            "ip {family} route flush proto 104 type unreachable"
        ));
        testbed.expect(&Change::RouteGone { protocol: 104 });
        testbed.run(&format!("ip {family} rule delete priority 5190"));
        testbed.expect(&Change::RuleGone { protocol: 104 });
        let address = network.replace("0/24", "1/32").replace("::/64", "::1/128");
        testbed.run(&format!("ip address delete {address} dev lo"));
        testbed.expect(&Change::AddressGone { link: 1 });
    }
}

#[test]
fn forwarding_of_all_links_is_reported() {
    let mut testbed = Testbed::new();
    for name in ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"] {
        for value in ["1", "0"] {
            testbed.changes();
            testbed.node.sysctl(name, value).unwrap();
            testbed.expect(&Change::Forwarding {
                is_on: value == "1",
            });
        }
    }
    testbed.changes();
    testbed
        .node
        .sysctl("net.ipv4.conf.lo.forwarding", "1")
        .unwrap();
    assert_eq!(testbed.changes(), []);
}

#[test]
fn table_changes_are_reported_by_part() {
    let mut testbed = Testbed::new();
    testbed.run(
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
    let changes = testbed.changes();
    assert!(
        made.iter().all(|part| changes.contains(part)),
        "{changes:?}"
    );
    testbed.run("nft flush chain inet t plain");
    assert_eq!(
        testbed.changes(),
        [table("t", TablePart::Rule("plain".to_owned()))]
    );
    testbed.run("nft flush ruleset");
    let changes = testbed.changes();
    assert!(
        changes.contains(&table("t", TablePart::Itself)),
        "{changes:?}"
    );
}

#[test]
fn lost_notifications_are_reported_as_overrun() {
    let mut testbed = Testbed::new();
    let mut script = "add table inet t\nadd chain inet t c\n".to_owned();
    for number in 0..20_000 {
        let _ = writeln!(
            script,
            "add rule inet t c ip saddr 10.0.0.1 drop comment \"{number}\""
        );
    }
    testbed.node.write("/run/many.nft", script).unwrap();
    testbed.run("nft -f /run/many.nft");
    let changes = testbed.changes();
    assert!(
        changes.contains(&Change::Overrun),
        "{} changes",
        changes.len()
    );
    // Later notifications arrive.
    testbed.run("nft add table inet other");
    assert_eq!(testbed.changes(), [table("other", TablePart::Itself)]);
}
