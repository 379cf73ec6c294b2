//! Pods resolve `MagicDNS` names, and the host's resolver is never changed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use lab::scenario::{AttachedPod, JOIN_TIMEOUT, MeshCluster, MeshNode};
use lab::{Netns, eventually};

use crate::host_tailscaled;

/// The addresses where tailscaled answers.
pub(crate) const RESOLVERS: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 100)),
    IpAddr::V6(Ipv6Addr::new(0xfd7a, 0x115c, 0xa1e0, 0, 0, 0, 0, 0x53)),
];
/// Header of a query with one question, recursion desired.
const HEAD: [u8; 12] = [0x48, 0x43, 0x01, 0, 0, 1, 0, 0, 0, 0, 0, 0];
/// Type A, class IN: RFC 1035, 3.2.2 and 3.2.4.
const A_IN: [u8; 4] = [0, 1, 0, 1];

#[test]
fn pods_resolve_magic_dns_names_and_the_host_resolver_is_unchanged() {
    let mut cluster = MeshCluster::prepare(2);
    let before = host_resolv_conf(&cluster.nodes[0]);
    cluster.start_daemons().unwrap();
    let pod = cluster.nodes[0].pod("p").unwrap();
    assert_resolves(&cluster, &pod);
    assert_eq!(host_resolv_conf(&cluster.nodes[0]), before);
    cluster.nodes[0].stop_daemon().unwrap();
    host_tailscaled::uninstall(&cluster.nodes[0]);
    assert_eq!(host_resolv_conf(&cluster.nodes[0]), before);
}

pub(crate) fn host_resolv_conf(node: &MeshNode) -> String {
    node.sh("cat /etc/resolv.conf").unwrap()
}

/// A pod of the first node resolves the second node's name by both resolvers, and gets an error for an
/// unknown name.
pub(crate) fn assert_resolves(cluster: &MeshCluster, pod: &AttachedPod) {
    let listed = cluster.headscale.node_named("node-2").unwrap();
    let expected = listed["ip_addresses"][0].as_str().unwrap();
    for resolver in RESOLVERS {
        let found = eventually(JOIN_TIMEOUT, &format!("an answer of {resolver}"), || {
            query(&pod.pod, resolver, "node-2.tail.test").ok()
        });
        let found = found.unwrap_or_else(|error| {
            let last = query(&pod.pod, resolver, "node-2.tail.test");
            panic!("{error:#}: {last:?}\n{}", cluster.nodes[0].diagnostics())
        });
        assert_eq!(found.to_string(), expected);
        assert!(query(&pod.pod, resolver, "unknown.tail.test").is_err());
    }
}

fn query(from: &impl Netns, resolver: IpAddr, name: &str) -> Result<Ipv4Addr> {
    let mut question = HEAD.to_vec();
    for label in name.split('.') {
        question.push(u8::try_from(label.len())?);
        question.extend(label.as_bytes());
    }
    question.push(0);
    question.extend(A_IN);
    let any: IpAddr = match resolver {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let mut buffer = [0; 512];
    let length = from.enter(|| {
        let socket = UdpSocket::bind((any, 0))?;
        socket.set_read_timeout(Some(Duration::from_secs(3)))?;
        socket.connect((resolver, 53))?;
        socket.send(&question)?;
        socket.recv(&mut buffer)
    })??;
    let answer = &buffer[..length];
    ensure!(answer.len() > question.len(), "no answer in {answer:?}");
    ensure!(answer[..2] == HEAD[..2], "an answer to another question");
    let code = answer[3] & 0xf;
    ensure!(code == 0, "refused with {code}");
    ensure!(answer[6..8] != [0, 0], "no such address");
    // A single A record is at the end of the answer.
    let address = answer.last_chunk::<4>().context("too short")?;
    Ok(Ipv4Addr::from(*address))
}
