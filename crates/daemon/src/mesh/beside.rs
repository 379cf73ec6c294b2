//! Keeps our tailscaled out of the way of another one in the host's network: two in one destroy each
//! other's rules.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use tailscaled::localapi::LocalApi;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until};

use super::memory::Kept;
use super::{Ends, Way, namespace, ours, resolver};
use crate::causes::with_causes;
use crate::config::{Config, MeshMode, MeshNamespace};
use crate::settings::Settings;

/// How long another tailscaled may take to answer.
const ANSWER: Duration = Duration::from_secs(2);
/// How often it is looked for: where there is none, that is one system call.
const LOOK: Duration = Duration::from_secs(10);

/// Whether another tailscaled than ours runs in the host's network: it answers at its socket.
pub(super) async fn has_another(config: &Config) -> bool {
    let socket: &Path = &config.tailscale.socket;
    if socket == ours::socket() {
        return false;
    }
    let theirs = LocalApi::new(socket).with_timeout(ANSWER);
    theirs.status().await.is_ok()
}

/// Another tailscaled that may come while ours is in the host's network.
pub(super) struct Intruder {
    /// By which it is found; nothing if it would make no difference.
    config: Option<Arc<Config>>,
    /// When it is looked for next.
    due: Instant,
}

impl Intruder {
    pub(super) fn new(way: Way, config: &Arc<Config>) -> Self {
        let tailscale = &config.tailscale;
        let may_move = tailscale.mode != MeshMode::Container;
        let matters = way == Way::Ours && may_move && tailscale.namespace == MeshNamespace::Auto;
        Self {
            config: matters.then(|| Arc::clone(config)),
            due: Instant::now() + LOOK,
        }
    }

    /// Waits until it is there. Nothing is lost if this is cancelled.
    pub(super) async fn comes(&mut self) {
        let Some(config) = &self.config else {
            return std::future::pending().await;
        };
        loop {
            sleep_until(self.due).await;
            let has_come = has_another(config).await;
            self.due = Instant::now() + LOOK;
            if has_come {
                let socket = config.tailscale.socket.display();
                tracing::warn!(
                    %socket,
                    "another tailscaled has come: ours moves to a network of its own"
                );
                return;
            }
        }
    }
}

impl Ends {
    /// Chooses the way, and keeps in mind whether ours goes out of another's way.
    pub(super) async fn choose(&self, config: &Config, has_another: bool) -> Way {
        let (config, dir) = (config.clone(), self.state_dir.clone());
        let chosen = spawn_blocking(move || {
            let mut kept = Kept::load(&dir);
            let way = Way::choose(&config, has_another || kept.memory().is_apart);
            if let Err(error) = kept.change(|memory| memory.is_apart = way == Way::OursApart) {
                tracing::warn!(%error, "where tailscaled runs can't be kept");
            }
            way
        });
        // It fails only if the process ends.
        chosen.await.unwrap_or(Way::None)
    }

    /// Makes the network of its own what it should be; whether it was made anew. `outside` are
    /// addresses of this node's pods that are in none of its networks.
    pub(super) async fn keep_apart(
        &self,
        settings: &Settings,
        outside: &BTreeSet<IpNet>,
    ) -> Result<bool, String> {
        let are_known = settings.networks.is_some();
        let mut wanted = wanted(settings, outside);
        let ensured = spawn_blocking(move || {
            if !may_change(are_known, namespace::is_made()) {
                return Ok(namespace::Ensured::default());
            }
            wanted.resolver = resolver::find(Path::new("/"));
            namespace::ensure(&wanted)
        });
        let ensured = match ensured.await {
            Ok(outcome) => outcome.map_err(|error| with_causes(&error))?,
            Err(error) => return Err(error.to_string()),
        };
        for repair in &ensured.repairs {
            tracing::info!(repair, "the mesh's own network was repaired");
        }
        Ok(ensured.is_new)
    }

    /// Takes the network of its own away, if there is one. Nobody may be in it any more.
    pub(super) async fn clear_apart(&self) {
        let cleared = spawn_blocking(|| {
            if !namespace::is_there() {
                return;
            }
            match namespace::remove() {
                Ok(()) => tracing::info!("the mesh's own network is gone"),
                Err(errors) => {
                    for error in errors {
                        let error = with_causes(&error);
                        tracing::warn!(error, "the mesh's own network is not gone");
                    }
                }
            }
        });
        // It fails only if the process ends.
        let _ = cleared.await;
    }
}

/// Whether that network may be changed. As long as it is not known what this node's networks are, one
/// that is made knows better: without them, new flows of pods would be hidden behind an address that
/// they keep for life.
fn may_change(are_networks_known: bool, is_made: bool) -> bool {
    are_networks_known || !is_made
}

/// What that network has to know.
fn wanted(settings: &Settings, outside: &BTreeSet<IpNet>) -> namespace::Wanted {
    let tailscale = &settings.config.tailscale;
    let networks = settings.networks.as_ref();
    let mut local: Vec<IpNet> = networks.map_or_else(Vec::new, |known| known.local.clone());
    local.extend(outside);
    let base = networks.map_or(&[][..], |known| known.base.as_slice());
    let all = [base, &local, &settings.mesh.remotes].concat();
    namespace::Wanted {
        interface: tailscale.interface.clone(),
        port: tailscale.port,
        local: local.iter().map(IpNet::trunc).collect(),
        cluster: IpNet::aggregate(&all),
        resolver: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node_name;
    use crate::podcidr::{NodeNetworks, Source};

    fn nets(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn while_the_nodes_networks_are_unknown_what_is_made_stays_as_it_is() {
        assert!(!may_change(false, true));
        // tailscaled needs one to start in.
        assert!(may_change(false, false));
        assert!(may_change(true, true));
    }

    #[test]
    fn an_address_outside_the_nodes_networks_is_this_nodes_all_the_same() {
        let node = node_name::find(Some("n1"), None).unwrap();
        let mut settings = Settings::new(Config::default(), node);
        settings.networks = Some(Arc::new(NodeNetworks {
            local: nets(&["10.244.1.0/24"]),
            base: nets(&["10.244.0.0/16"]),
            source: Source::NodeLocal,
            base_source: None,
        }));
        let outside = nets(&["10.7.0.9/32", "10.244.200.9/32"]);
        let wanted = wanted(&settings, &outside.into_iter().collect());
        let local = nets(&["10.244.1.0/24", "10.7.0.9/32", "10.244.200.9/32"]);
        assert_eq!(wanted.local, local);
        assert_eq!(wanted.cluster, nets(&["10.7.0.9/32", "10.244.0.0/16"]));
    }
}
