//! MeshController another way to be a member than the one that was chosen: two members of one node would both
//! claim its networks.

use std::time::Duration;

use tailscaled::localapi::{LocalApi, MaskedPrefs};
use tailscaled::supervisor::Supervisor;
use tokio::task::spawn_blocking;

use crate::state::MeshStateFile;
use crate::uninstall::{self, GivenBack};
use crate::{MeshController, TailscaledMode, managed};
use node_config::Config;
use node_core::error::display_chain;

/// For an answer of a tailscaled.
const ANSWER: Duration = Duration::from_secs(3);

impl MeshController {
    /// MeshController every way but this one. What the mesh's server knows of this node's own member stays: it may
    /// be one again, and a key for another login may not be there.
    pub(crate) async fn end_other_ways(
        &self,
        mode: TailscaledMode,
        config: &Config,
    ) -> Result<(), String> {
        if mode != TailscaledMode::Host {
            self.give_back(config).await?;
        }
        match mode {
            TailscaledMode::Disabled | TailscaledMode::Host => self.end_ours(config).await,
            TailscaledMode::Managed | TailscaledMode::ManagedNetns => Ok(()),
        }
    }

    /// The host's tailscaled gets back what it had.
    async fn give_back(&self, config: &Config) -> Result<(), String> {
        let dir = self.state_dir.clone();
        let kept = spawn_blocking(move || MeshStateFile::load(&dir)).await;
        let mut kept = kept.map_err(|error| error.to_string())?;
        if kept.memory().host.is_none() {
            return Ok(());
        }
        let mut tell = |line: String| tracing::info!(line, "restoring the host tailscaled's prefs");
        let outcome = uninstall::give_back(config, kept.memory(), &mut tell).await?;
        // One that is away has it all still, and gets it back when it is seen again.
        if outcome == GivenBack::All {
            let outcome = kept.change_aside(|memory| memory.host = None).await;
            outcome.map_err(|error| format!("write the mesh state file: {error}"))?;
        }
        Ok(())
    }

    /// Ours ends, wherever it is, and nobody sends packets to it any more.
    async fn end_ours(&self, config: &Config) -> Result<(), String> {
        let tailscaled = LocalApi::new(managed::socket()).with_timeout(ANSWER);
        let nothing = MaskedPrefs {
            advertise_routes: Some(Vec::new()),
            ..MaskedPrefs::default()
        };
        if let Err(error) = tailscaled.edit_prefs(&nothing).await
            && !error.is_not_running()
        {
            // Its end says it as well, only later.
            tracing::warn!(
                error = display_chain(&error),
                "failed to withdraw advertised routes"
            );
        }
        let mut supervisor = Supervisor::new(managed::settings(config, TailscaledMode::Managed));
        let outcome = supervisor.stop().await;
        outcome.map_err(|error| display_chain(&error))?;
        self.clear_apart().await;
        Ok(())
    }
}
