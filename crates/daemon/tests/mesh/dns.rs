//! Pods ask the mesh for the names of its members, and the host's own resolver is never touched.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use lab::{Cluster, Grounds, JOINED, Netns, Site, eventually};

use crate::turn;

/// Where every tailscaled answers.
const RESOLVER: (Ipv4Addr, u16) = (Ipv4Addr::new(100, 100, 100, 100), 53);
/// The beginning of a question with one name: asked to be looked up by others, too.
const HEAD: [u8; 12] = [0x48, 0x43, 0x01, 0, 0, 1, 0, 0, 0, 0, 0, 0];
/// The address of a name, in the internet: RFC 1035, 3.2.2 and 3.2.4.
const A_IN: [u8; 4] = [0, 1, 0, 1];

#[test]
fn pods_resolve_names_of_the_mesh() {
    let _turn = turn::take();
    let grounds = Grounds::new(&[Site::Open, Site::Open]).unwrap();
    let mut cluster = Cluster::new(&grounds).unwrap();
    let resolver = |cluster: &Cluster<'_>| cluster.members[0].sh("cat /etc/resolv.conf").unwrap();
    let before = resolver(&cluster);
    cluster.start().unwrap();
    let pod = cluster.members[0].pod("p").unwrap();
    let node = cluster.headscale.node_named("node-2").unwrap();
    let addresses = node["ip_addresses"].as_array().unwrap();
    let expected = addresses[0].as_str().unwrap();
    let found = eventually(JOINED, "an answer", || {
        ask(&pod.pod, "node-2.tail.test").ok()
    });
    let found = found.unwrap_or_else(|error| {
        let why = ask(&pod.pod, "node-2.tail.test");
        panic!("{error:#}: {why:?}\n{}", cluster.members[0].told())
    });
    assert_eq!(found.to_string(), expected);
    assert!(ask(&pod.pod, "nobody.tail.test").is_err());
    assert_eq!(resolver(&cluster), before);
}

/// Asks for the IPv4 address of a name.
fn ask(from: &impl Netns, name: &str) -> Result<IpAddr> {
    let mut question = HEAD.to_vec();
    for label in name.split('.') {
        question.push(u8::try_from(label.len())?);
        question.extend(label.as_bytes());
    }
    question.push(0);
    question.extend(A_IN);
    let mut buffer = [0; 512];
    let length = from.enter(|| {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.set_read_timeout(Some(Duration::from_secs(3)))?;
        socket.connect(RESOLVER)?;
        socket.send(&question)?;
        socket.recv(&mut buffer)
    })??;
    let answer = &buffer[..length];
    ensure!(answer.len() > question.len(), "no answer in {answer:?}");
    ensure!(answer[..2] == HEAD[..2], "an answer to another question");
    let code = answer[3] & 0xf;
    ensure!(code == 0, "refused with {code}");
    ensure!(answer[6..8] != [0, 0], "no such address");
    // The address is the last of the answer if it is the only one.
    let address = answer.last_chunk::<4>().context("too short")?;
    Ok(Ipv4Addr::from(*address).into())
}
