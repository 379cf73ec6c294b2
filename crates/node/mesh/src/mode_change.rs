//! Leaves the previous [`TailscaledMode`]: two tailnet nodes on one host would both advertise its pod
//! CIDRs.

use std::time::Duration;

use tailscaled::localapi::{LocalApi, MaskedPrefs};
use tailscaled::supervisor::Supervisor;
use tokio::task::spawn_blocking;

use crate::state::MeshStateFile;
use crate::uninstall::{self, HostRestored};
use crate::{MeshController, TailscaledMode, managed};
use node_config::Config;
use node_core::error::display_chain;

const LOCALAPI_TIMEOUT: Duration = Duration::from_secs(3);

impl MeshController {
    /// Leaves every mode but this one. The node stays in Headscale: it may be needed again, and there may
    /// be no key for another login.
    pub(crate) async fn leave_other_modes(
        &self,
        mode: TailscaledMode,
        config: &Config,
    ) -> Result<(), String> {
        if mode != TailscaledMode::Host {
            self.restore_host(config).await?;
        }
        match mode {
            TailscaledMode::Disabled | TailscaledMode::Host => self.stop_managed(config).await,
            TailscaledMode::Managed | TailscaledMode::ManagedNetns => Ok(()),
        }
    }

    /// Restores the host tailscaled's prefs.
    async fn restore_host(&self, config: &Config) -> Result<(), String> {
        let dir = self.state_dir.clone();
        let state = spawn_blocking(move || MeshStateFile::load(&dir)).await;
        let mut state = state.map_err(|error| error.to_string())?;
        if state.memory().host.is_none() {
            return Ok(());
        }
        let mut log = |line: String| tracing::info!(line, "restoring the host tailscaled's prefs");
        let outcome = uninstall::restore_host(config, state.memory(), &mut log).await?;
        // One that does not run is restored when it runs again.
        if outcome == HostRestored::All {
            let outcome = state.change_async(|memory| memory.host = None).await;
            outcome.map_err(|error| format!("write the mesh state file: {error}"))?;
        }
        Ok(())
    }

    /// Withdraws the routes and stops the managed tailscaled.
    async fn stop_managed(&self, config: &Config) -> Result<(), String> {
        let tailscaled = LocalApi::new(managed::socket()).with_timeout(LOCALAPI_TIMEOUT);
        let nothing = MaskedPrefs {
            advertise_routes: Some(Vec::new()),
            ..MaskedPrefs::default()
        };
        if let Err(error) = tailscaled.edit_prefs(&nothing).await
            && !error.is_not_running()
        {
            // Headscale withdraws them when tailscaled is offline, only later.
            tracing::warn!(
                error = display_chain(&error),
                "failed to withdraw advertised routes"
            );
        }
        let mut supervisor = Supervisor::new(managed::settings(config, TailscaledMode::Managed));
        let outcome = supervisor.stop().await;
        outcome.map_err(|error| display_chain(&error))?;
        self.remove_netns().await;
        Ok(())
    }
}
