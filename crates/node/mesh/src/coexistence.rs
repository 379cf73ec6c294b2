//! Moves the managed tailscaled into its own netns beside a host tailscaled: two in one netns delete
//! each other's rules.

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

const STATUS_TIMEOUT: Duration = Duration::from_secs(2);
/// Where no host tailscaled runs, a check is one system call.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// Whether a tailscaled that is not ours answers at the host's socket.
pub(crate) async fn has_another(config: &Config) -> bool {
    let socket: &Path = &config.tailscale.socket;
    if socket == managed::socket() {
        return false;
    }
    let theirs = LocalApi::new(socket).with_timeout(STATUS_TIMEOUT);
    theirs.status().await.is_ok()
}

/// Watches for a host tailscaled while ours runs in the host netns.
pub(crate) struct HostTailscaledWatch {
    /// None if a host tailscaled makes no difference.
    config: Option<Arc<Config>>,
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
            due: Instant::now() + CHECK_INTERVAL,
        }
    }

    /// Waits until it runs. Cancel safe.
    pub(crate) async fn comes(&mut self) {
        let Some(config) = &self.config else {
            return std::future::pending().await;
        };
        loop {
            sleep_until(self.due).await;
            let has_come = has_another(config).await;
            self.due = Instant::now() + CHECK_INTERVAL;
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
    /// Chooses the mode and records whether tailscaled has its own netns.
    pub(crate) async fn choose(&self, config: &Config, has_another: bool) -> TailscaledMode {
        let (config, dir) = (config.clone(), self.state_dir.clone());
        let chosen = spawn_blocking(move || {
            let mut state = MeshStateFile::load(&dir);
            let mode = TailscaledMode::choose(&config, has_another || state.memory().is_apart);
            if let Err(error) =
                state.change(|memory| memory.is_apart = mode == TailscaledMode::ManagedNetns)
            {
                tracing::warn!(%error, "failed to write the mesh state file");
            }
            mode
        });
        // It fails only if the process ends.
        chosen.await.unwrap_or(TailscaledMode::Disabled)
    }

    /// Returns whether the netns is new. `outside` are pod addresses outside the pod CIDRs.
    pub(crate) async fn ensure_netns(
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

    /// No process may be in the netns any more.
    pub(crate) async fn remove_netns(&self) {
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

/// An existing netns stays as it is while the pod CIDRs are unknown: without them, new flows of pods
/// would be masqueraded for as long as they last.
fn may_change(are_networks_known: bool, is_made: bool) -> bool {
    are_networks_known || !is_made
}

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
    fn an_existing_netns_is_unchanged_while_the_pod_cidr_is_unknown() {
        assert!(!may_change(false, true));
        // tailscaled needs one to start in.
        assert!(may_change(false, false));
        assert!(may_change(true, true));
    }

    #[test]
    fn a_pod_outside_the_pod_cidr_is_local() {
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
