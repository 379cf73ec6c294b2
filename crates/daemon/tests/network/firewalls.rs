//! Other firewalls that drop forwarded packets, with the real iptables and nft.

use lab::Netns;
use node_config::Integrate;
use node_core::reconcile::Reconciled;
use node_hostnet::firewall::{self, FirewallError, FirewallSettings};
use node_hostnet::{self, PodLinks};
use rstest::rstest;

use crate::fixture::{BASE, HostnetNode, networks, reaches, wanted};

fn settings(integrate: Integrate) -> FirewallSettings {
    FirewallSettings {
        networks: networks(BASE),
        integrate,
    }
}

fn pass(fixture: &HostnetNode, integrate: Integrate) -> Result<Reconciled, FirewallError> {
    let place = fixture.place();
    let enter = || firewall::reconcile(&place, &settings(integrate));
    fixture.node.enter(enter).unwrap()
}

/// The error for blocked pods.
#[track_caller]
fn blocked_message(fixture: &HostnetNode) -> String {
    let error = pass(fixture, Integrate::Off).unwrap_err();
    assert!(matches!(error, FirewallError::Blocked(_)), "{error}");
    error.to_string()
}

#[test]
fn a_node_without_a_firewall_is_not_blocked() {
    let fixture = HostnetNode::new();
    fixture.passed(&wanted());
    let outcome = pass(&fixture, Integrate::Auto).unwrap();
    assert_eq!(outcome.message, "no firewall drops forwarded packets");
    assert!(outcome.repairs.is_empty());
    // The check created no tables.
    assert!(!fixture.run("nft list ruleset").contains("filter FORWARD"));
    assert!(!fixture.run("nft list tables").contains(" ip "));
}

#[rstest]
#[case::iptables("", "FORWARD", "iptables (chain FORWARD of")]
#[case::docker(
    "$T -N DOCKER-USER; $T -A DOCKER-USER -j RETURN; $T -I FORWARD -j DOCKER-USER",
    "DOCKER-USER",
    "docker (chain FORWARD of"
)]
#[case::ufw(
    "$T -N ufw-user-forward; $T -N ufw6-user-forward; $T -A FORWARD -j ufw-user-forward",
    "FORWARD",
    "ufw (chain FORWARD of"
)]
fn a_drop_policy_is_reported_and_integrated_on_request(
    #[case] setup: &str,
    #[case] chain: &str,
    #[case] owner: &str,
    #[values("-nft", "-legacy")] form: &str,
) {
    let fixture = HostnetNode::new();
    fixture.passed(&wanted());
    let (a, _) = fixture.pod("a");
    let (_b, of_b) = fixture.pod("b");
    let programs = [format!("iptables{form}"), format!("ip6tables{form}")];
    for program in &programs {
        fixture.run(&setup.replace("$T", program));
        fixture.run(&format!("{program} -P FORWARD DROP"));
    }
    let connected = || of_b.addresses.iter().all(|address| reaches(&a, address));
    assert!(!reaches(&a, of_b.addresses[0]) && !reaches(&a, of_b.addresses[1]));

    let message = blocked_message(&fixture);
    for part in [
        owner,
        "10.9.0.0/16",
        "fd00:9::/48",
        "firewall.integrate: auto",
    ] {
        assert!(message.contains(part), "{part} in {message}");
    }
    assert!(!connected(), "only reported without integrate: auto");

    let outcome = pass(&fixture, Integrate::Auto).unwrap();
    assert_eq!(outcome.repairs.len(), 4, "{:?}", outcome.repairs);
    assert!(connected());
    for (program, network) in programs.iter().zip(networks(BASE)) {
        let rules = fixture.run(&format!("{program} -S {chain}"));
        for flag in ["-s", "-d"] {
            let rule =
                format!("-A {chain} {flag} {network} -m comment --comment headcni -j ACCEPT");
            assert!(rules.contains(&rule), "{rule} in {rules}");
        }
    }
    assert!(pass(&fixture, Integrate::Auto).unwrap().repairs.is_empty());

    // An administrator deletes a rule.
    fixture.run(&format!("{} -D {chain} 1", programs[0]));
    assert_eq!(pass(&fixture, Integrate::Auto).unwrap().repairs.len(), 1);
    assert!(connected());

    // integrate: off again.
    blocked_message(&fixture);
    assert!(!reaches(&a, of_b.addresses[0]));
    for program in &programs {
        assert!(!fixture.run(&format!("{program} -S")).contains("headcni"));
    }
}

#[test]
fn the_proposed_remedy_resolves_the_condition() {
    let fixture = HostnetNode::new();
    fixture.run("iptables -P FORWARD DROP");
    let message = blocked_message(&fixture);
    let lines: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    assert_eq!(lines.len(), 2, "{message}");
    for line in lines {
        fixture.run(line);
    }
    let outcome = pass(&fixture, Integrate::Off).unwrap();
    assert_eq!(outcome.message, "iptables lets pods through");
    assert!(
        fixture
            .run("iptables -S FORWARD")
            .contains("-s 10.9.0.0/16")
    );
}

#[test]
fn an_unknown_nft_chain_is_reported_and_never_changed() {
    let fixture = HostnetNode::new();
    fixture.passed(&wanted());
    let (a, _) = fixture.pod("a");
    let (_b, of_b) = fixture.pod("b");
    fixture.run(
        "nft 'add table inet mine
              add chain inet mine fwd_all { type filter hook forward priority 0; policy drop; }'",
    );
    let before = fixture.run("nft list table inet mine");
    for integrate in [Integrate::Off, Integrate::Auto] {
        let message = pass(&fixture, integrate).unwrap_err().to_string();
        assert!(
            message.contains("nftables (table inet mine fwd_all)"),
            "{message}"
        );
        assert!(!message.contains("integrate"), "{message}");
    }
    assert_eq!(fixture.run("nft list table inet mine"), before);
    assert!(!reaches(&a, of_b.addresses[0]));
    // The remedy, for each family.
    for (family, network) in ["ip", "ip6"].iter().zip(networks(BASE)) {
        let message = blocked_message(&fixture);
        let line = format!("nft insert rule inet mine fwd_all {family} saddr {network} accept");
        if *family == "ip" {
            assert!(message.contains(&line), "{message}");
        }
        fixture.run(&line);
        fixture.run(&line.replace("saddr", "daddr"));
    }
    pass(&fixture, Integrate::Off).unwrap();
    assert!(reaches(&a, of_b.addresses[0]) && reaches(&a, of_b.addresses[1]));
}

#[test]
fn only_the_blocked_family_is_reported() {
    let fixture = HostnetNode::new();
    fixture.run("ip6tables -P FORWARD DROP; iptables -P FORWARD ACCEPT");
    let message = blocked_message(&fixture);
    assert!(
        message.contains("fd00:9::/48") && !message.contains("10.9."),
        "{message}"
    );
}

#[test]
fn uninstall_removes_our_rules_from_other_firewalls() {
    let fixture = HostnetNode::new();
    fixture.passed(&wanted());
    fixture.run("iptables -P FORWARD DROP; iptables-legacy -P FORWARD DROP");
    let before = [
        fixture.run("iptables -S"),
        fixture.run("iptables-legacy -S"),
    ];
    pass(&fixture, Integrate::Auto).unwrap();
    let place = fixture.place();
    for _ in 0..2 {
        let removed = fixture
            .node
            .enter(|| node_hostnet::remove(&place, PodLinks::Keep));
        removed.unwrap().unwrap();
        let after = [
            fixture.run("iptables -S"),
            fixture.run("iptables-legacy -S"),
        ];
        assert_eq!(after, before);
    }
}
