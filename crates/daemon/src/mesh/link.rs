//! Which link leads into the mesh.

use std::net::IpAddr;

use ipnet::IpNet;
use net::Socket;
use tailnet::localapi::Status;

use super::{MeshLink, Way, namespace};

/// The host's links that have addresses, by name.
#[derive(Clone, Debug, Default)]
pub(super) struct Host {
    pub(super) addresses: Vec<(String, IpAddr)>,
    /// The networks that these are in.
    pub(super) networks: Vec<(String, IpNet)>,
}

/// Asks the kernel.
pub(super) async fn look() -> Result<Host, String> {
    let looked = tokio::task::spawn_blocking(|| {
        let socket = Socket::route()?;
        let links = net::links(&socket)?;
        let addresses = net::addresses(&socket)?;
        let name = |index: u32| links.iter().find(|link| link.index == index);
        let named = addresses.iter().filter_map(|address| {
            let link = name(address.link)?;
            Some((link.name.clone(), address.net))
        });
        let (mut addresses, mut networks) = (Vec::new(), Vec::new());
        for (name, net) in named {
            addresses.push((name.clone(), net.addr()));
            networks.push((name, net.trunc()));
        }
        Ok::<_, net::NetError>(Host {
            addresses,
            networks,
        })
    });
    match looked.await {
        Ok(outcome) => outcome.map_err(|error| format!("look at the host's addresses: {error}")),
        Err(error) => Err(error.to_string()),
    }
}

/// The link that packets for other nodes go by, if it is known.
pub(super) fn of(way: Way, interface: &str, status: &Status, host: &Host) -> Option<MeshLink> {
    let named = |name: String| MeshLink {
        name,
        via: Vec::new(),
    };
    match way {
        Way::Ours => Some(named(interface.to_owned())),
        // The host's may be called anything.
        Way::Hosts => {
            let mut links = host.addresses.iter();
            let link =
                links.find(|(name, address)| name != "lo" && status.addresses.contains(address));
            link.map(|(name, _)| named(name.clone()))
        }
        Way::OursApart => Some(namespace::link()),
        Way::None => None,
    }
}
