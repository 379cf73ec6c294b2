//! Which link leads into the mesh.

use std::net::IpAddr;

use ipnet::IpNet;
use net::{RouteKind, Socket};
use tailscaled::localapi::Status;

use crate::{TailscaledMode, netns};
use node_core::MeshLink;
use node_core::tailnet::RESOLVER;

/// The host's links that have addresses, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Host {
    pub(crate) addresses: Vec<(String, IpAddr)>,
    /// The networks that these are in.
    pub(crate) networks: Vec<(String, IpNet)>,
    /// All that are on.
    pub(crate) on: Vec<String>,
    /// Those that a tailscaled's routes lead by.
    pub(crate) led_by: Vec<String>,
}

/// Whether the routes of our tailscaled, which are not ours to make, are where it put them. With a link
/// that is switched off they go, and it does not put them back.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    were_there: bool,
    are_lost: bool,
}

impl Routes {
    /// Takes note of how it is while tailscaled is a member.
    pub(crate) fn note(&mut self, interface: &str, host: &Host) {
        let has = |names: &[String]| names.iter().any(|name| name == interface);
        // Without its link, tailscaled ends and is started again. Where another one has come and leads all
        // by its own, ours gets out of its way.
        self.are_lost = self.were_there && host.led_by.is_empty() && has(&host.on);
        self.were_there |= has(&host.led_by);
    }

    /// Whether they are lost. Who is told so once helps, and is not told again until they were back.
    pub(crate) fn take_loss(&mut self) -> bool {
        let are_lost = self.are_lost;
        if are_lost {
            *self = Self::default();
        }
        are_lost
    }
}

/// Asks the kernel.
pub(crate) async fn look() -> Result<Host, String> {
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
        let on = links.iter().filter(|link| link.is_up);
        let resolvers = [IpAddr::V4(RESOLVER.0), IpAddr::V6(RESOLVER.1)].map(IpNet::from);
        let routes = net::routes(&socket)?;
        let led_by = routes.iter().filter_map(|route| match route.kind {
            RouteKind::Via { link, .. } if resolvers.contains(&route.dst) => name(link),
            _ => None,
        });
        Ok::<_, net::NetError>(Host {
            addresses,
            networks,
            on: on.map(|link| link.name.clone()).collect(),
            led_by: led_by.map(|link| link.name.clone()).collect(),
        })
    });
    match looked.await {
        Ok(outcome) => {
            outcome.map_err(|error| format!("list the host's addresses and routes: {error}"))
        }
        Err(error) => Err(error.to_string()),
    }
}

/// The link that packets for other nodes go by, if it is known.
pub(crate) fn of(
    mode: TailscaledMode,
    interface: &str,
    status: &Status,
    host: &Host,
) -> Option<MeshLink> {
    let named = |name: String| MeshLink {
        name,
        via: Vec::new(),
    };
    match mode {
        TailscaledMode::Managed => Some(named(interface.to_owned())),
        // The host's may be called anything.
        TailscaledMode::Host => {
            let mut links = host.addresses.iter();
            let link =
                links.find(|(name, address)| name != "lo" && status.addresses.contains(address));
            link.map(|(name, _)| named(name.clone()))
        }
        TailscaledMode::ManagedNetns => Some(netns::link()),
        TailscaledMode::Disabled => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_are_lost_once_if_they_were_there_and_their_link_still_is() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let host = |on: &[&str], led_by: &[&str]| Host {
            on: names(on),
            led_by: names(led_by),
            ..Host::default()
        };
        let mut routes = Routes::default();
        let mut is_lost = |on: &[&str], led_by: &[&str]| {
            routes.note("headcni01", &host(on, led_by));
            routes.take_loss()
        };
        let on = &["eth0", "headcni01"];
        assert!(!is_lost(on, &[]), "not there yet");
        assert!(!is_lost(on, &["headcni01"]));
        assert!(!is_lost(&["eth0"], &[]), "without a link");
        assert!(!is_lost(on, &["tailscale0"]), "another one came");
        assert!(is_lost(on, &[]));
        assert!(!is_lost(on, &[]), "told already");
        assert!(!is_lost(on, &["headcni01"]));
        assert!(is_lost(on, &[]), "again");
    }
}
