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

use crate::inputs::MeshInputs;
use crate::state::MeshStateFile;
use crate::{MeshController, TailscaledMode, managed, netns, resolver};
use node_config::{Config, TailscaleMode, TailscaledNetns};
use node_core::error::display_chain;

/// How long another tailscaled may take to answer.
const ANSWER: Duration = Duration::from_secs(2);
/// How often it is looked for: where there is none, that is one system call.
const LOOK: Duration = Duration::from_secs(10);

/// Whether another tailscaled than ours runs in the host's network: it answers at its socket.
pub(crate) async fn has_another(config: &Config) -> bool {
    let socket: &Path = &config.tailscale.socket;
    if socket == managed::socket() {
        return false;
    }
    let theirs = LocalApi::new(socket).with_timeout(ANSWER);
    theirs.status().await.is_ok()
}

/// Another tailscaled that may come while ours is in the host's network.
pub(crate) struct HostTailscaledWatch {
    /// By which it is found; nothing if it would make no difference.
    config: Option<Arc<Config>>,
    /// When it is looked for next.
    due: Instant,
}

impl HostTailscaledWatch {
    pub(crate) fn new(mode: TailscaledMode, config: &Arc<Config>) -> Self {
        let tailscale = &config.tailscale;
        let may_move = tailscale.mode != TailscaleMode::Container;
        let matters =
            mode == TailscaledMode::Managed && may_move && tailscale.netns == TailscaledNetns::Auto;
        Self {
            config: matters.then(|| Arc::clone(config)),
            due: Instant::now() + LOOK,
        }
    }

    /// Waits until it is there. Nothing is lost if this is cancelled.
    pub(crate) async fn comes(&mut self) {
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
                    "host tailscaled appeared, moving ours into its own netns"
                );
                return;
            }
        }
    }
}

impl MeshController {
    /// Chooses the way, and keeps in mind whether ours goes out of another's way.
    pub(crate) async fn choose(&self, config: &Config, has_another: bool) -> TailscaledMode {
        let (config, dir) = (config.clone(), self.state_dir.clone());
        let chosen = spawn_blocking(move || {
            let mut kept = MeshStateFile::load(&dir);
            let mode = TailscaledMode::choose(&config, has_another || kept.memory().is_apart);
            if let Err(error) =
                kept.change(|memory| memory.is_apart = mode == TailscaledMode::ManagedNetns)
            {
                tracing::warn!(%error, "failed to write the mesh state file");
            }
            mode
        });
        // It fails only if the process ends.
        chosen.await.unwrap_or(TailscaledMode::Disabled)
    }

    /// Makes the network of its own what it should be; whether it was made anew. `outside` are
    /// addresses of this node's pods that are in none of its networks.
    pub(crate) async fn keep_apart(
        &self,
        settings: &MeshInputs,
        outside: &BTreeSet<IpNet>,
    ) -> Result<bool, String> {
        let are_known = settings.pod_cidrs.is_some();
        let mut desired = desired(settings, outside);
        let ensured = spawn_blocking(move || {
            if !may_change(are_known, netns::is_made()) {
                return Ok(netns::Ensured::default());
            }
            desired.resolver = resolver::find(Path::new("/"));
            netns::ensure(&desired)
        });
        let ensured = match ensured.await {
            Ok(outcome) => outcome.map_err(|error| display_chain(&error))?,
            Err(error) => return Err(error.to_string()),
        };
        for repair in &ensured.repairs {
            tracing::info!(repair, "repaired tailscaled's netns");
        }
        Ok(ensured.is_new)
    }

    /// Takes the network of its own away, if there is one. Nobody may be in it any more.
    pub(crate) async fn clear_apart(&self) {
        let cleared = spawn_blocking(|| {
            if !netns::is_there() {
                return;
            }
            match netns::remove() {
                Ok(()) => tracing::info!("removed tailscaled's netns"),
                Err(errors) => {
                    for error in errors {
                        let error = display_chain(&error);
                        tracing::warn!(error, "failed to remove tailscaled's netns");
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
fn desired(settings: &MeshInputs, outside: &BTreeSet<IpNet>) -> netns::Desired {
    let tailscale = &settings.config.tailscale;
    let networks = settings.pod_cidrs.as_ref();
    let mut local: Vec<IpNet> = networks.map_or_else(Vec::new, |known| known.local.clone());
    local.extend(outside);
    let base = networks.map_or(&[][..], |known| known.base.as_slice());
    let all = [base, &local, &settings.published.peer_routes].concat();
    netns::Desired {
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
    use node_config::NodeConfig;
    use node_core::node_name;
    use node_core::{CidrSource, PodCidrs};

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
        let mut settings = MeshInputs::new(
            NodeConfig::new(Arc::default(), node),
            Arc::default(),
            Arc::default(),
        );
        settings.pod_cidrs = Some(Arc::new(PodCidrs {
            local: nets(&["10.244.1.0/24"]),
            base: nets(&["10.244.0.0/16"]),
            source: CidrSource::NodeLocal,
            base_source: None,
        }));
        let outside = nets(&["10.7.0.9/32", "10.244.200.9/32"]);
        let desired = desired(&settings, &outside.into_iter().collect());
        let local = nets(&["10.244.1.0/24", "10.7.0.9/32", "10.244.200.9/32"]);
        assert_eq!(desired.local, local);
        assert_eq!(desired.cluster, nets(&["10.7.0.9/32", "10.244.0.0/16"]));
    }
}
