//! Firewalls of others that drop what is forwarded, with the real iptables and nft.

use lab::Netns;
use node_config::Integrate;
use node_core::reconcile::Reconciled;
use node_hostnet::firewall::{self, FirewallError, FirewallSettings};
use node_hostnet::{self, PodLinks};
use rstest::rstest;

use crate::scene::{BASE, Scene, networks, reaches, wanted};

fn settings(integrate: Integrate) -> FirewallSettings {
    FirewallSettings {
        networks: networks(BASE),
        integrate,
    }
}

fn pass(scene: &Scene, integrate: Integrate) -> Result<Reconciled, FirewallError> {
    let place = scene.place();
    let enter = || firewall::reconcile(&place, &settings(integrate));
    scene.node.enter(enter).unwrap()
}

/// Why what pods send is dropped.
#[track_caller]
fn complaint(scene: &Scene) -> String {
    let error = pass(scene, Integrate::Off).unwrap_err();
    assert!(matches!(error, FirewallError::Blocked(_)), "{error}");
    error.to_string()
}

#[test]
fn a_node_without_a_firewall_is_fine() {
    let scene = Scene::new();
    scene.passed(&wanted());
    let outcome = pass(&scene, Integrate::Auto).unwrap();
    assert_eq!(outcome.message, "no firewall drops forwarded packets");
    assert!(outcome.repairs.is_empty());
    // And nobody's tables were made by asking.
    assert!(!scene.run("nft list ruleset").contains("filter FORWARD"));
    assert!(!scene.run("nft list tables").contains(" ip "));
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
fn a_policy_of_drop_is_named_and_integrated_on_request(
    #[case] setup: &str,
    #[case] chain: &str,
    #[case] owner: &str,
    #[values("-nft", "-legacy")] form: &str,
) {
    let scene = Scene::new();
    scene.passed(&wanted());
    let (a, _) = scene.pod("a");
    let (_b, of_b) = scene.pod("b");
    let programs = [format!("iptables{form}"), format!("ip6tables{form}")];
    for program in &programs {
        scene.run(&setup.replace("$T", program));
        scene.run(&format!("{program} -P FORWARD DROP"));
    }
    let talk = || of_b.addresses.iter().all(|address| reaches(&a, address));
    assert!(!reaches(&a, of_b.addresses[0]) && !reaches(&a, of_b.addresses[1]));

    let words = complaint(&scene);
    for part in [
        owner,
        "10.9.0.0/16",
        "fd00:9::/48",
        "firewall.integrate: auto",
    ] {
        assert!(words.contains(part), "{part} in {words}");
    }
    assert!(!talk(), "it was to be named only");

    let outcome = pass(&scene, Integrate::Auto).unwrap();
    assert_eq!(outcome.repairs.len(), 4, "{:?}", outcome.repairs);
    assert!(talk());
    for (program, network) in programs.iter().zip(networks(BASE)) {
        let rules = scene.run(&format!("{program} -S {chain}"));
        for flag in ["-s", "-d"] {
            let rule =
                format!("-A {chain} {flag} {network} -m comment --comment headcni -j ACCEPT");
            assert!(rules.contains(&rule), "{rule} in {rules}");
        }
    }
    assert!(pass(&scene, Integrate::Auto).unwrap().repairs.is_empty());

    // Somebody flushes the chain.
    scene.run(&format!("{} -D {chain} 1", programs[0]));
    assert_eq!(pass(&scene, Integrate::Auto).unwrap().repairs.len(), 1);
    assert!(talk());

    // And it is not wanted any more.
    complaint(&scene);
    assert!(!reaches(&a, of_b.addresses[0]));
    for program in &programs {
        assert!(!scene.run(&format!("{program} -S")).contains("headcni"));
    }
}

#[test]
fn what_an_administrator_allows_counts() {
    let scene = Scene::new();
    scene.run("iptables -P FORWARD DROP");
    let words = complaint(&scene);
    // The remedy is what makes the complaint go away.
    let lines: Vec<&str> = words.split('`').skip(1).step_by(2).collect();
    assert_eq!(lines.len(), 2, "{words}");
    for line in lines {
        scene.run(line);
    }
    let outcome = pass(&scene, Integrate::Off).unwrap();
    assert_eq!(outcome.message, "iptables lets pods through");
    assert!(scene.run("iptables -S FORWARD").contains("-s 10.9.0.0/16"));
}

#[test]
fn a_chain_of_nobody_we_know_is_named_and_never_touched() {
    let scene = Scene::new();
    scene.passed(&wanted());
    let (a, _) = scene.pod("a");
    let (_b, of_b) = scene.pod("b");
    scene.run(
        "nft 'add table inet mine
              add chain inet mine fwd_all { type filter hook forward priority 0; policy drop; }'",
    );
    let before = scene.run("nft list table inet mine");
    for integrate in [Integrate::Off, Integrate::Auto] {
        let words = pass(&scene, integrate).unwrap_err().to_string();
        assert!(
            words.contains("nftables (table inet mine fwd_all)"),
            "{words}"
        );
        assert!(!words.contains("integrate"), "{words}");
    }
    assert_eq!(scene.run("nft list table inet mine"), before);
    assert!(!reaches(&a, of_b.addresses[0]));
    // Its remedy, for each family.
    for (family, network) in ["ip", "ip6"].iter().zip(networks(BASE)) {
        let words = complaint(&scene);
        let line = format!("nft insert rule inet mine fwd_all {family} saddr {network} accept");
        if *family == "ip" {
            assert!(words.contains(&line), "{words}");
        }
        scene.run(&line);
        scene.run(&line.replace("saddr", "daddr"));
    }
    pass(&scene, Integrate::Off).unwrap();
    assert!(reaches(&a, of_b.addresses[0]) && reaches(&a, of_b.addresses[1]));
}

#[test]
fn only_the_family_that_is_dropped_is_complained_of() {
    let scene = Scene::new();
    scene.run("ip6tables -P FORWARD DROP; iptables -P FORWARD ACCEPT");
    let words = complaint(&scene);
    assert!(
        words.contains("fd00:9::/48") && !words.contains("10.9."),
        "{words}"
    );
}

#[test]
fn uninstalling_takes_back_what_firewalls_were_told() {
    let scene = Scene::new();
    scene.passed(&wanted());
    scene.run("iptables -P FORWARD DROP; iptables-legacy -P FORWARD DROP");
    let before = [scene.run("iptables -S"), scene.run("iptables-legacy -S")];
    pass(&scene, Integrate::Auto).unwrap();
    let place = scene.place();
    for _ in 0..2 {
        let removed = scene
            .node
            .enter(|| node_hostnet::remove(&place, PodLinks::Keep));
        removed.unwrap().unwrap();
        let after = [scene.run("iptables -S"), scene.run("iptables-legacy -S")];
        assert_eq!(after, before);
    }
}
