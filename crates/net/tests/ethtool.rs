//! Offload features, compared with `ethtool -k`.

#![expect(
    clippy::unwrap_used,
    reason = "clippy exempts only functions marked as tests"
)]

use lab::{Netns, Node};
use net::Socket;
use net::ethtool::{Ethtool, Switch};

const FEATURE: &str = "rx-udp-gro-forwarding";

fn shown(node: &Node) -> String {
    let all = node.run(["ethtool", "-k", "v0"]).unwrap().stdout;
    let line = all.lines().find(|line| line.starts_with(FEATURE)).unwrap();
    line.rsplit(' ').next().unwrap().to_owned()
}

#[test]
fn a_feature_is_turned_on_and_off() {
    let node = Node::new("n1").unwrap();
    node.run(["ip", "link", "add", "v0", "type", "veth"])
        .unwrap();
    let open = || (Ethtool::open().unwrap().unwrap(), Socket::route().unwrap());
    let (ethtool, socket) = node.enter(open).unwrap();
    let index = net::link(&socket, "v0").unwrap().unwrap().index;
    let wanted = |name: &str| ethtool.features(index).unwrap().unwrap().is_wanted(name);
    assert_eq!(wanted(FEATURE), Some(false));
    for (switch, is_on) in [(Switch::On, true), (Switch::On, true), (Switch::Off, false)] {
        ethtool.set(index, FEATURE, switch).unwrap();
        assert_eq!(wanted(FEATURE), Some(is_on));
        assert_eq!(shown(&node), switch.to_string());
    }
    assert_eq!(wanted("generic-receive-offload"), None, "unknown name");
    assert_eq!(wanted("tx-scatter-gather"), Some(true));
    assert_eq!(wanted("loopback"), None, "fixed");
    let error = ethtool.set(index, "no-such-thing", Switch::On).unwrap_err();
    let error = error.to_string();
    assert!(error.contains("turn no-such-thing on"), "{error}");
    assert_eq!(ethtool.features(9999).unwrap(), None);
}
