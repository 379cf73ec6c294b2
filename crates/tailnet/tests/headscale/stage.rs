//! A server in a node, and a client in this process that reaches it.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use lab::tools::GoModule;
use lab::{Headscale, Netns, Node};
use tailnet::headscale::{Client, Proxies, Secret, Settings};

/// The server's address in its node.
pub(crate) const ADDRESS: &str = "10.99.0.1";
/// Another of its node, which is not in its certificate.
pub(crate) const OTHER_ADDRESS: &str = "10.99.0.3";
/// The other node's.
pub(crate) const PEER_ADDRESS: &str = "10.99.0.2";
/// A busy machine is slow.
const TIMEOUT: Duration = Duration::from_secs(20);
const DEADLINE: Duration = Duration::from_mins(1);

/// Two nodes with a wire between them: one for the server, one for a member.
pub(crate) fn nodes() -> (Node, Node) {
    let (server, member) = (Node::new("server").unwrap(), Node::new("member").unwrap());
    let (ours, theirs) = (format!("{ADDRESS}/24"), format!("{PEER_ADDRESS}/24"));
    server.wire("eth0", &ours, &member, &theirs).unwrap();
    let other = format!("{OTHER_ADDRESS}/24");
    server
        .run(["ip", "address", "add", &other, "dev", "eth0"])
        .unwrap();
    (server, member)
}

pub(crate) fn start(node: &Node, version: &GoModule) -> (Headscale, Access) {
    let address: IpAddr = ADDRESS.parse().unwrap();
    let headscale = Headscale::start(node, version, address).unwrap();
    let access = Access {
        url: headscale.url(),
        ca_file: Some(headscale.ca_file().to_owned()),
        api_key: headscale.api_key().unwrap(),
    };
    (headscale, access)
}

/// What a client needs.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    pub(crate) url: String,
    pub(crate) ca_file: Option<PathBuf>,
    pub(crate) api_key: String,
}

impl Access {
    pub(crate) fn client(&self) -> Client {
        Client::new(&self.settings()).unwrap()
    }

    pub(crate) fn settings(&self) -> Settings {
        Settings {
            url: self.url.clone(),
            api_key: Some(Secret::new(&self.api_key)),
            ca_file: self.ca_file.clone(),
            timeout: TIMEOUT,
            proxies: Proxies::none(),
        }
    }
}

/// Does something in a node's network.
pub(crate) fn inside<T: Send>(node: &Node, work: impl AsyncFnOnce() -> T + Send) -> T {
    let run = || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().build().unwrap().block_on(work())
    };
    node.enter(run).unwrap()
}

/// Asks until there is an answer.
pub(crate) async fn eventually<T>(what: &str, mut probe: impl AsyncFnMut() -> Option<T>) -> T {
    let end = Instant::now() + DEADLINE;
    loop {
        if let Some(answer) = probe().await {
            return answer;
        }
        assert!(Instant::now() < end, "{what}: not within {DEADLINE:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
