//! The nftables tables on both sides of the pair, as text.

use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};

use ipnet::IpNet;
use ruleset::LINK_GROUP;

use super::{Desired, INSIDE, LINK, PEER};
use node_core::tailnet::TAILNET;

/// The table's name on both sides, of the family `inet`.
pub(crate) use node_core::routing::NETNS_TABLE as TABLE;

/// A table, and what its comment says.
pub(super) struct Script {
    pub(super) text: String,
    pub(super) comment: String,
}

/// Whether `nft` takes a link's name for no more than that.
pub(super) fn is_plain(name: &str) -> bool {
    let is_good = |c: char| c.is_ascii_alphanumeric() || ['.', '-', '_'].contains(&c);
    !name.is_empty() && name.chars().all(is_good)
}

/// What deletes the table, whether it is there or not.
pub(super) fn none() -> String {
    format!("add table inet {TABLE}\ndelete table inet {TABLE}\n")
}

/// On the host: tailscaled's own packets leave under the host's address, and those for its port come
/// to it. What it passes on to pods has no address of its own.
pub(super) fn on_host(desired: &Desired) -> Script {
    let Desired { port, cluster, .. } = desired;
    let mut rules = String::new();
    if *port != 0 {
        let arriving = format!("iifname != \"{LINK}\" fib daddr type local udp dport {port}");
        chain(
            &mut rules,
            "prerouting",
            "type nat hook prerouting priority dstnat",
            &[
                format!("meta nfproto ipv4 {arriving} dnat ip to {}", INSIDE.0),
                format!("meta nfproto ipv6 {arriving} dnat ip6 to {}", INSIDE.1),
            ],
        );
    }
    // Members of the mesh come under the same address, and are not to be hidden once more.
    let mut leaving: Vec<String> = destinations(cluster)
        .map(|pods| format!("iifname \"{LINK}\" {pods} return"))
        .collect();
    leaving.push(format!(
        "iifname \"{LINK}\" oifgroup != {LINK_GROUP} ip saddr {} masquerade",
        INSIDE.0
    ));
    leaving.push(format!(
        "iifname \"{LINK}\" oifgroup != {LINK_GROUP} ip6 saddr {} masquerade",
        INSIDE.1
    ));
    chain(
        &mut rules,
        "postrouting",
        "type nat hook postrouting priority srcnat",
        &leaving,
    );
    table(&rules)
}

/// Beside tailscaled: what is for pods leaves to this node's pods, or by the mesh, and never else. By
/// the mesh go addresses of this node's pods only, for no others lead back here; and members of the
/// mesh are strangers to the host, which may have another one whose addresses are the same.
pub(super) fn inside(desired: &Desired) -> Script {
    let Desired {
        interface,
        local,
        cluster,
        resolver,
        ..
    } = desired;
    let mut rules = String::new();
    if let Some(resolver) = resolver {
        chain(
            &mut rules,
            "output",
            "type nat hook output priority -100",
            &["udp", "tcp"].map(|protocol| {
                format!("ip daddr 127.0.0.0/8 {protocol} dport 53 dnat ip to {resolver}")
            }),
        );
    }
    let mut guard = vec![format!("oifname {{ \"lo\", \"{interface}\" }} return")];
    let to_local = destinations(local);
    guard.extend(to_local.map(|pods| format!("oifname \"{PEER}\" {pods} return")));
    let to_pods = destinations(cluster);
    guard.extend(to_pods.map(|pods| format!("{pods} counter packets 0 bytes 0 drop")));
    chain(
        &mut rules,
        "guard",
        "type filter hook postrouting priority -400",
        &guard,
    );
    chain(
        &mut rules,
        "forward",
        "type filter hook forward priority mangle",
        &["tcp flags syn / syn,rst tcp option maxseg size set rt mtu".to_owned()],
    );
    let from_members = networks(&TAILNET).map(|(family, members)| {
        format!(
            "iifname \"{interface}\" oifname \"{PEER}\" {family} saddr {{ {members} }} masquerade"
        )
    });
    let mut hidden: Vec<String> = from_members.collect();
    let own = networks(local)
        .map(|(family, own)| format!("oifname \"{interface}\" {family} saddr {{ {own} }} return"));
    hidden.extend(own);
    hidden.push(format!(
        "iifname \"{PEER}\" oifname \"{interface}\" masquerade"
    ));
    hidden.push(format!(
        "oifname \"{PEER}\" ip saddr 127.0.0.0/8 masquerade"
    ));
    chain(
        &mut rules,
        "postrouting",
        "type nat hook postrouting priority srcnat",
        &hidden,
    );
    table(&rules)
}

/// Matches for packets to these networks, one per family.
fn destinations(all: &[IpNet]) -> impl Iterator<Item = String> {
    networks(all).map(|(family, list)| format!("{family} daddr {{ {list} }}"))
}

/// The networks by family, as `nft` words them. None overlaps another one: it would be refused.
fn networks(all: &[IpNet]) -> impl Iterator<Item = (&'static str, String)> {
    let (ipv4, ipv6): (Vec<IpNet>, Vec<IpNet>) = IpNet::aggregate(&all.to_vec())
        .into_iter()
        .partition(|net| net.addr().is_ipv4());
    let listed = [("ip", ipv4), ("ip6", ipv6)].into_iter();
    let listed = listed.filter(|(_, networks)| !networks.is_empty());
    listed.map(|(family, networks)| {
        let words: Vec<String> = networks.iter().map(IpNet::to_string).collect();
        (family, words.join(", "))
    })
}

fn chain(rules: &mut String, name: &str, hook: &str, lines: &[String]) {
    let _ = writeln!(rules, "\tchain {name} {{\n\t\t{hook}; policy accept;");
    for line in lines {
        let _ = writeln!(rules, "\t\t{line}");
    }
    rules.push_str("\t}\n");
}

/// In place of whatever is there, in one go.
fn table(rules: &str) -> Script {
    let mut hasher = DefaultHasher::new();
    rules.hash(&mut hasher);
    let comment = format!("headcni, the way to the mesh, {:016x}", hasher.finish());
    let text = format!(
        "{}add table inet {TABLE} {{ comment \"{comment}\"; }}\ntable inet {TABLE} {{\n{rules}}}\n",
        none()
    );
    Script { text, comment }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn desired(local: &[&str]) -> Desired {
        let nets = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        Desired {
            interface: "headcni01".to_owned(),
            port: 41642,
            local: nets(local),
            cluster: nets(&["10.244.0.0/16", "fd00:10:244::/48", "10.244.7.0/24"]),
            resolver: None,
        }
    }

    #[test]
    fn the_host_hides_tailscaled_and_leads_to_it() {
        let Script { text, comment } = on_host(&desired(&[]));
        let expected = format!(
            r#"add table inet headcni-mesh
delete table inet headcni-mesh
add table inet headcni-mesh {{ comment "{comment}"; }}
table inet headcni-mesh {{
	chain prerouting {{
		type nat hook prerouting priority dstnat; policy accept;
		meta nfproto ipv4 iifname != "hcmesh0" fib daddr type local udp dport 41642 dnat ip to 198.51.100.106
		meta nfproto ipv6 iifname != "hcmesh0" fib daddr type local udp dport 41642 dnat ip6 to fd8b:5e1f:7c42::2
	}}
	chain postrouting {{
		type nat hook postrouting priority srcnat; policy accept;
		iifname "hcmesh0" ip daddr {{ 10.244.0.0/16 }} return
		iifname "hcmesh0" ip6 daddr {{ fd00:10:244::/48 }} return
		iifname "hcmesh0" oifgroup != 26723 ip saddr 198.51.100.106 masquerade
		iifname "hcmesh0" oifgroup != 26723 ip6 saddr fd8b:5e1f:7c42::2 masquerade
	}}
}}
"#
        );
        assert_eq!(text, expected);
        let any = Desired {
            port: 0,
            ..desired(&[])
        };
        assert!(!on_host(&any).text.contains("dnat"));
    }

    #[test]
    fn beside_tailscaled_pods_are_reached_by_the_mesh_or_not_at_all() {
        let Script { text, comment } = inside(&desired(&["10.244.7.0/24", "fd00:10:244:7::/64"]));
        let expected = format!(
            r#"add table inet headcni-mesh
delete table inet headcni-mesh
add table inet headcni-mesh {{ comment "{comment}"; }}
table inet headcni-mesh {{
	chain guard {{
		type filter hook postrouting priority -400; policy accept;
		oifname {{ "lo", "headcni01" }} return
		oifname "host0" ip daddr {{ 10.244.7.0/24 }} return
		oifname "host0" ip6 daddr {{ fd00:10:244:7::/64 }} return
		ip daddr {{ 10.244.0.0/16 }} counter packets 0 bytes 0 drop
		ip6 daddr {{ fd00:10:244::/48 }} counter packets 0 bytes 0 drop
	}}
	chain forward {{
		type filter hook forward priority mangle; policy accept;
		tcp flags syn / syn,rst tcp option maxseg size set rt mtu
	}}
	chain postrouting {{
		type nat hook postrouting priority srcnat; policy accept;
		iifname "headcni01" oifname "host0" ip saddr {{ 100.64.0.0/10 }} masquerade
		iifname "headcni01" oifname "host0" ip6 saddr {{ fd7a:115c:a1e0::/48 }} masquerade
		oifname "headcni01" ip saddr {{ 10.244.7.0/24 }} return
		oifname "headcni01" ip6 saddr {{ fd00:10:244:7::/64 }} return
		iifname "host0" oifname "headcni01" masquerade
		oifname "host0" ip saddr 127.0.0.0/8 masquerade
	}}
}}
"#
        );
        assert_eq!(text, expected);
    }

    #[test]
    fn what_a_resolver_on_loopback_is_asked_goes_to_a_real_one() {
        let desired = Desired {
            resolver: Some("192.168.7.1".parse().unwrap()),
            ..desired(&[])
        };
        let rule = "\t\tip daddr 127.0.0.0/8 udp dport 53 dnat ip to 192.168.7.1\n";
        assert!(inside(&desired).text.contains(rule));
    }

    #[test]
    fn another_table_has_another_comment() {
        let comment = |local: &[&str]| inside(&desired(local)).comment;
        assert_eq!(comment(&["10.244.7.0/24"]), comment(&["10.244.7.0/24"]));
        assert_ne!(comment(&["10.244.7.0/24"]), comment(&["10.244.8.0/24"]));
    }

    #[test]
    fn names_that_mean_more_are_refused() {
        assert!(is_plain("headcni01") && is_plain("eth0.7"));
        assert!(!is_plain("a\"b") && !is_plain("a*") && !is_plain(""));
    }
}
