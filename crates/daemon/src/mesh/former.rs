//! Ends another way to be a member than the one that was chosen: two members of one node would both
//! claim its networks.

use std::time::Duration;

use tailscaled::localapi::{LocalApi, MaskedPrefs};
use tailscaled::supervisor::Supervisor;
use tokio::task::spawn_blocking;

use super::memory::Kept;
use super::remove::{self, GivenBack};
use super::{Ends, Way, ours};
use crate::causes::with_causes;
use crate::config::Config;

/// For an answer of a tailscaled.
const ANSWER: Duration = Duration::from_secs(3);

impl Ends {
    /// Ends every way but this one. What the mesh's server knows of this node's own member stays: it may
    /// be one again, and a key for another login may not be there.
    pub(super) async fn end_other_ways(&self, way: Way, config: &Config) -> Result<(), String> {
        if way != Way::Hosts {
            self.give_back(config).await?;
        }
        match way {
            Way::None | Way::Hosts => self.end_ours(config).await,
            Way::Ours | Way::OursApart => Ok(()),
        }
    }

    /// The host's tailscaled gets back what it had.
    async fn give_back(&self, config: &Config) -> Result<(), String> {
        let dir = self.state_dir.clone();
        let kept = spawn_blocking(move || Kept::load(&dir)).await;
        let mut kept = kept.map_err(|error| error.to_string())?;
        if kept.memory().host.is_none() {
            return Ok(());
        }
        let mut tell = |line: String| tracing::info!(line, "the host's tailscaled is left");
        let outcome = remove::give_back(config, kept.memory(), &mut tell).await?;
        // One that is away has it all still, and gets it back when it is seen again.
        if outcome == GivenBack::All {
            let outcome = kept.change_aside(|memory| memory.host = None).await;
            outcome.map_err(|error| format!("keep what is known of the mesh: {error}"))?;
        }
        Ok(())
    }

    /// Ours ends, wherever it is, and nobody sends packets to it any more.
    async fn end_ours(&self, config: &Config) -> Result<(), String> {
        let tailscaled = LocalApi::new(ours::socket()).with_timeout(ANSWER);
        let nothing = MaskedPrefs {
            advertise_routes: Some(Vec::new()),
            ..MaskedPrefs::default()
        };
        if let Err(error) = tailscaled.edit_prefs(&nothing).await
            && !error.is_not_running()
        {
            // Its end says it as well, only later.
            tracing::warn!(error = with_causes(&error), "networks are not withdrawn");
        }
        let mut supervisor = Supervisor::new(ours::settings(config, Way::Ours));
        let outcome = supervisor.stop().await;
        outcome.map_err(|error| with_causes(&error))?;
        self.clear_apart().await;
        Ok(())
    }
}
