//! A tailscaled in the words of [`plan`](crate::plan), and back.

use ipnet::IpNet;
use tailscaled::localapi::{BackendState, MaskedPrefs, PeerStatus, Prefs, StartPrefs, Status};

use crate::membership::plan::{
    self, HeadscaleView, LoginState, ManagedPrefs, Observed, OtherDevice, PrefsPatch,
};
use crate::peers::select::Advertisement;

/// How a tailscaled is.
pub(crate) fn observed(status: &Status, prefs: &Prefs, server: HeadscaleView) -> Observed {
    Observed {
        login: login(status),
        prefs: plan::Prefs {
            server: prefs.control_url.clone(),
            hostname: prefs.hostname.clone(),
            advertised: prefs.advertise_routes.clone(),
            accepts_routes: prefs.route_all,
            keeps_source: prefs.no_snat,
            passes_stateless: prefs.no_stateful_filtering == Some(true),
            takes_dns: prefs.corp_dns,
            shields_up: prefs.shields_up,
        },
        serving: status.self_node.primary_routes.clone(),
        peers: status
            .peers
            .iter()
            .map(|peer| OtherDevice {
                id: peer.node_id.unwrap_or_default(),
                name: name(peer),
                is_namesake: false,
                is_gone: false,
                routes: peer.primary_routes.clone(),
            })
            .collect(),
        server,
    }
}

/// What the server calls a member. Its own word for itself can be another's name.
fn name(peer: &PeerStatus) -> String {
    let given = peer.dns_name.split('.').next().unwrap_or_default();
    if given.is_empty() {
        return peer.host_name.clone();
    }
    given.to_owned()
}

fn login(status: &Status) -> LoginState {
    match status.state {
        BackendState::NoState | BackendState::Starting | BackendState::Running
            if status.is_rejected_by_control() =>
        {
            LoginState::Needed
        }
        BackendState::NeedsLogin => LoginState::Needed,
        BackendState::NeedsMachineAuth => LoginState::Awaited,
        BackendState::Stopped => LoginState::Stopped,
        BackendState::Running if status.self_node.is_expired => LoginState::Needed,
        BackendState::Running => LoginState::Running,
        BackendState::NoState
        | BackendState::InUseOtherUser
        | BackendState::Starting
        | BackendState::Other(_) => LoginState::Starting,
    }
}

/// What other members say that they serve.
pub(crate) fn claims(status: &Status) -> Vec<Advertisement> {
    let claim = |peer: &PeerStatus| Advertisement {
        id: lasting_id(peer).to_owned(),
        node: name(peer),
        tags: peer.tags.clone(),
        addresses: peer.addresses.clone(),
        served: peer.primary_routes.clone(),
    };
    status.peers.iter().map(claim).collect()
}

/// What tells a member from all others: the server's number for it, or its key where there is none.
fn lasting_id(member: &PeerStatus) -> &str {
    if member.id.is_empty() {
        &member.public_key
    } else {
        &member.id
    }
}

/// A change, as tailscaled takes it.
pub(crate) fn prefs_edit(edit: &PrefsPatch) -> MaskedPrefs {
    MaskedPrefs {
        want_running: edit.run.then_some(true),
        hostname: edit.hostname.clone(),
        advertise_routes: edit.advertised.clone(),
        route_all: edit.accept_routes.then_some(true),
        no_snat: edit.keep_source.then_some(true),
        no_stateful_filtering: edit.pass_stateless.then_some(Some(true)),
        corp_dns: edit.leave_dns.then_some(false),
        shields_up: edit.lower_shields.then_some(false),
        ..MaskedPrefs::default()
    }
}

/// All that our own is told with its login.
pub(crate) fn start_prefs(own: &ManagedPrefs, routes: Vec<IpNet>) -> StartPrefs {
    StartPrefs::new(&MaskedPrefs {
        control_url: Some(own.server.clone()),
        hostname: Some(own.hostname.clone()),
        advertise_routes: Some(routes),
        route_all: Some(true),
        no_snat: Some(true),
        no_stateful_filtering: Some(Some(true)),
        ..MaskedPrefs::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_called_as_the_server_calls_it() {
        let called = |dns_name: &str| {
            name(&PeerStatus {
                host_name: "node-1".to_owned(),
                dns_name: dns_name.to_owned(),
                ..PeerStatus::default()
            })
        };
        assert_eq!(called("node-1-x7.tail.test."), "node-1-x7");
        assert_eq!(called(""), "node-1");
    }

    #[test]
    fn a_member_is_known_by_what_it_did_not_choose() {
        let member = |id: &str| PeerStatus {
            id: id.to_owned(),
            public_key: "nodekey:ab".to_owned(),
            host_name: "n1".to_owned(),
            ..PeerStatus::default()
        };
        assert_eq!(lasting_id(&member("7")), "7");
        assert_eq!(lasting_id(&member("")), "nodekey:ab");
    }
}
