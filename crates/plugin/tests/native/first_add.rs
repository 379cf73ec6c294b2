//! What is made once per boot, by whoever comes first: there for everyone who comes later, even if
//! the first one was killed in the middle of it.

use lab::{Netns, Syscalls};

use crate::kill_sweep::with_all;
use crate::networks::{
    call, dual_stack, headcni, host_link, ip, ipv4, plugin_node, used_node, with,
};

#[test]
fn a_network_with_ipv6_works_after_one_without() {
    let plugin = used_node(&with(ipv4(), "name", "first".into()));
    let conf = dual_stack();
    let (one, _) = plugin.attached("one", &conf);
    let (_two, second) = plugin.attached("two", &conf);
    one.ping(&ip(&second, 1)).unwrap();
}

#[test]
fn a_first_add_killed_at_any_kernel_message_is_made_good_by_the_next_pod() {
    const FORGET: &str = "nft flush ruleset
        ip address flush dev lo scope global
        rm -rf /var/lib/cni/*
        echo 0 > /proc/sys/net/ipv4/ip_forward
        echo 0 > /proc/sys/net/ipv6/conf/all/forwarding";
    let conf = with_all(dual_stack());
    let plugin = plugin_node();
    let one = plugin.pod("one");
    let two = plugin.pod("two");
    let add = |pod| call("ADD", &conf).pod(pod);
    let forget = || plugin.node.run(["sh", "-ec", FORGET]).unwrap();

    forget();
    let trace = add(&one).trace(&plugin.node, headcni(), Syscalls::All);
    let trace = trace.unwrap();
    trace.outcome.ok().unwrap();
    plugin.succeed("DEL", &conf, &one);
    let rules = plugin.ruleset();
    // And whenever it writes: settings of the kernel, say.
    let names = [
        "sendto", "sendmsg", "write", "clone", "vfork", "wait4", "waitid",
    ];
    let is_action = |name: &str| names.contains(&name);
    let moments = trace
        .moments
        .iter()
        .filter(|moment| is_action(&moment.name));
    let mut killed = 0;
    for moment in moments {
        forget();
        let call = add(&one);
        killed += usize::from(call.kill_at(&plugin.node, headcni(), moment).unwrap());
        // Of the killed one nobody knows anything but that it is to be undone.
        plugin.succeed("DEL", &conf, &one);
        let result = plugin.succeed("ADD", &conf, &two).ok_json().unwrap();
        plugin.node.ping(&ip(&result, 0)).unwrap();
        plugin.node.ping(&ip(&result, 1)).unwrap();
        assert_eq!(
            plugin.node.links().unwrap(),
            [host_link(&result)],
            "{moment:?}"
        );
        for family in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
            let cat = ["cat", &format!("/proc/sys/net/{family}")];
            let is_on = plugin.node.run(cat).unwrap().stdout;
            assert_eq!(is_on, "1\n", "{family} after {moment:?}");
        }
        plugin.succeed("DEL", &conf, &two);
        assert_eq!(plugin.ruleset(), rules, "killed before {moment:?}");
    }
    assert!(killed > 8, "only {killed} were killed");
}
