//! Removes this node from the tailnet: restores the host tailscaled's prefs, stops the managed one,
//! and deletes its keys and its node in Headscale.
//!
//! Every step is tried and has a timeout. What remains in Headscale is printed.

use std::env;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use tailscaled::localapi::{LocalApi, MaskedPrefs, Prefs, Status};
use tailscaled::supervisor::Supervisor;
use tokio::time::timeout;

use crate::control_server::ControlServer;
use crate::membership::plan::{HeadscaleView, OtherDevice, OwnDevice};
use crate::state::{HostPrefs, MeshRecord, MeshStateFile};
use crate::{TailscaledMode, hostname, managed, netns};
use node_config::{Config, Secrets};
use node_core::error::display_chain;
use node_core::metrics::Metrics;
use node_core::node_name;
use node_core::text::truncate_list;

const LOCALAPI_TIMEOUT: Duration = Duration::from_secs(3);
/// For all requests to Headscale, also tailscaled's.
const HEADSCALE_TIMEOUT: Duration = Duration::from_secs(7);
/// In tailscaled's state directory.
const STATE_FILE: &str = "tailscaled.state";

/// Prints one line.
type Print<'a> = &'a mut (dyn FnMut(String) + Send);

/// Prints what was done and what remains elsewhere. Returns what failed; the record in `state_dir`
/// stays for a retry.
pub fn remove(config: &Config, state_dir: &Path, print: Print<'_>) -> Vec<String> {
    let state = MeshStateFile::load(state_dir);
    // Ours may still run with another directory, if the configuration was changed since.
    let in_use = managed::settings(config, TailscaledMode::Managed).running_state_dir();
    let has_own = in_use.is_some() || config.tailscale.state_dir.join(STATE_FILE).exists();
    if !has_own && state.memory().host.is_none() && !netns::is_there() {
        return Vec::new();
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return vec![format!("leave the mesh: {error}")],
    };
    let mut errors = Vec::new();
    let mut leaving = Leaving {
        config,
        memory: state.memory().clone(),
        print,
    };
    let former = in_use.filter(|dir| *dir != config.tailscale.state_dir);
    runtime.block_on(async {
        errors.extend(leaving.restore_host().await.err());
        if has_own {
            errors.extend(leaving.stop_managed().await.err());
        }
    });
    if let Some(dir) = former {
        let dir = dir.display();
        print(format!(
            "not removed: the keys in {dir}, which tailscaled ran with and the configuration does not \
             name; remove them yourself"
        ));
    }
    // After an error, a process may still be in the netns.
    if errors.is_empty() && netns::is_there() {
        match netns::remove() {
            Ok(()) => print("removed tailscaled's netns".to_owned()),
            Err(causes) => errors.extend(causes.iter().map(display_chain)),
        }
    }
    // A second run must not overwrite what a user has changed since.
    if errors.is_empty() {
        let outcome = state.erase();
        errors.extend(
            outcome
                .err()
                .map(|error| format!("remove the mesh state file: {error}")),
        );
    }
    errors
}

/// Restores the host tailscaled's prefs and prints what was done.
pub(crate) async fn restore_host(
    config: &Config,
    memory: &MeshRecord,
    print: Print<'_>,
) -> Result<HostRestored, String> {
    let mut leaving = Leaving {
        config,
        memory: memory.clone(),
        print,
    };
    leaving.restore_host().await
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostRestored {
    All,
    /// It does not run.
    Nothing,
}

struct Leaving<'a> {
    config: &'a Config,
    memory: MeshRecord,
    print: Print<'a>,
}

impl Leaving<'_> {
    fn report(&mut self, line: impl Into<String>) {
        (self.print)(line.into());
    }

    async fn restore_host(&mut self) -> Result<HostRestored, String> {
        let Some(before) = self.memory.host else {
            return Ok(HostRestored::All);
        };
        let tailscaled =
            LocalApi::new(&self.config.tailscale.socket).with_timeout(LOCALAPI_TIMEOUT);
        let prefs = match tailscaled.prefs().await {
            Ok(prefs) => prefs,
            Err(error) if error.is_not_running() => {
                self.report(format!(
                    "the host's tailscaled does not run, so its prefs stay: it may still advertise {}",
                    list(&self.memory.routes)
                ));
                return Ok(HostRestored::Nothing);
            }
            Err(error) => return Err(display_chain(&error)),
        };
        let edit = restoring_prefs(&prefs, &self.memory.routes, before);
        if !edit.is_empty() {
            let outcome = tailscaled.edit_prefs(&edit).await;
            outcome.map_err(|error| display_chain(&error))?;
        }
        self.report("restored the host tailscaled's prefs");
        let Ok(status) = tailscaled.status().await else {
            return Ok(HostRestored::All);
        };
        let left = self.disapprove(&status).await.err();
        if let Some(why) = left {
            self.report(format!(
                "not undone in Headscale: {} may still be approved for {}: {why}",
                list(&self.memory.routes),
                status.self_node.host_name
            ));
        }
        Ok(HostRestored::All)
    }

    async fn disapprove(&mut self, status: &Status) -> Result<(), String> {
        let Some(mut server) = self.server()? else {
            return Ok(());
        };
        let routes = self.memory.routes.clone();
        let work = async {
            let Some(own) = listed(&mut server, status).await? else {
                return Ok(false);
            };
            let theirs = without(&own.approved, &routes);
            if theirs.len() == own.approved.len() {
                return Ok(false);
            }
            server.approve(own.id, &theirs).await?;
            Ok(true)
        };
        if in_time(work).await? {
            self.report(format!("removed the approval of {}", list(&routes)));
        }
        Ok(())
    }

    /// Withdraws the routes, leaves Headscale, stops tailscaled and removes its keys.
    async fn stop_managed(&mut self) -> Result<(), String> {
        let tailscaled = LocalApi::new(managed::socket()).with_timeout(LOCALAPI_TIMEOUT);
        let status = tailscaled.status().await.ok();
        if status.is_some() {
            // Peers stop sending packets here even if Headscale's API does not answer.
            let edit = MaskedPrefs {
                advertise_routes: Some(Vec::new()),
                ..MaskedPrefs::default()
            };
            if let Err(error) = tailscaled.edit_prefs(&edit).await {
                self.report(format!(
                    "failed to withdraw advertised routes: {}",
                    display_chain(&error)
                ));
            }
        }
        let left = self.leave_server(&tailscaled, status.as_ref()).await.err();
        if let Some(why) = left {
            self.report(format!(
                "not deleted in Headscale: {why}; delete this node there (headscale nodes delete)"
            ));
        }
        let outcome = Supervisor::new(managed::settings(self.config, TailscaledMode::Managed))
            .stop()
            .await;
        outcome.map_err(|error| display_chain(&error))?;
        let dir = &self.config.tailscale.state_dir;
        match fs::remove_dir_all(dir) {
            Err(error) if !is_gone_or_mounted(&error) => {
                return Err(format!("remove {}: {error}", dir.display()));
            }
            _ => self.report("stopped tailscaled and removed its keys"),
        }
        Ok(())
    }

    /// Deletes this node in Headscale; without an API key it only logs out.
    async fn leave_server(
        &mut self,
        tailscaled: &LocalApi,
        status: Option<&Status>,
    ) -> Result<(), String> {
        let server = self.server()?.filter(ControlServer::has_key);
        let Some(mut server) = server else {
            if status.is_some() {
                in_time(async {
                    let outcome = tailscaled.logout().await;
                    outcome.map_err(|error| display_chain(&error))
                })
                .await?;
                self.report("logged out of the tailnet");
            }
            return Err("there is no API key (headscale.apiKeyFile)".to_owned());
        };
        let memory = self.memory.clone();
        let hostname = self.hostname();
        let work = async {
            refresh(&mut server).await?;
            let own = status.and_then(|status| own_in(&server, status));
            let ids = this_node(own.as_ref(), &server.all_devices(&hostname), &memory);
            for id in &ids {
                server.delete(*id).await?;
            }
            Ok(ids.len())
        };
        match in_time(work).await? {
            0 => self.report(
                "found no node in Headscale that is this one; if there is one, delete it there (headscale \
                 nodes delete)",
            ),
            _ => self.report("deleted this node in Headscale"),
        }
        Ok(())
    }

    fn server(&self) -> Result<Option<ControlServer>, String> {
        let secrets = Secrets::current(&self.config.headscale);
        let metrics = Arc::new(Metrics::new());
        ControlServer::new(self.config, &secrets, &metrics).map_err(|error| error.to_string())
    }

    fn hostname(&self) -> String {
        let configured = self.config.tailscale.hostname.as_deref();
        let variable = env::var_os(node_name::VARIABLE);
        match node_name::find(None, variable.as_deref()) {
            Ok(name) => hostname::hostname(configured, &name),
            Err(_) => configured.unwrap_or_default().to_owned(),
        }
    }
}

/// This node in Headscale's list.
async fn listed(server: &mut ControlServer, status: &Status) -> Result<Option<OwnDevice>, String> {
    refresh(server).await?;
    Ok(own_in(server, status))
}

fn own_in(server: &ControlServer, status: &Status) -> Option<OwnDevice> {
    match server.view(status, &status.self_node.host_name) {
        HeadscaleView::Listed { own, .. } => own,
        HeadscaleView::Unknown => None,
    }
}

async fn refresh(server: &mut ControlServer) -> Result<(), String> {
    server.refresh(false).await;
    match server.problem() {
        Some(problem) => Err(problem),
        None => Ok(()),
    }
}

/// This node by tailscaled's key, or by the record if tailscaled does not run or has just started and
/// does not report its key yet.
fn this_node(
    own: Option<&OwnDevice>,
    all_devices: &[OtherDevice],
    memory: &MeshRecord,
) -> Vec<u64> {
    own.map_or_else(|| former(all_devices, memory), |own| vec![own.id])
}

/// Nodes with our routes that were this node: by ID, else by name, which a node of another cluster may
/// have too. Headscale lists a node as online for a while after its tailscaled ended.
fn former(others: &[OtherDevice], memory: &MeshRecord) -> Vec<u64> {
    let has_ours = |other: &&OtherDevice| {
        let mut routes = other.routes.iter();
        routes.any(|route| memory.routes.contains(route))
    };
    let having: Vec<&OtherDevice> = others.iter().filter(has_ours).collect();
    let numbered = having.iter().filter(|other| memory.id == Some(other.id));
    let numbered: Vec<u64> = numbered.map(|other| other.id).collect();
    if !numbered.is_empty() {
        return numbered;
    }
    let named = having.iter().filter(|other| other.is_namesake);
    named.map(|other| other.id).collect()
}

/// The patch that restores the host's prefs.
fn restoring_prefs(prefs: &Prefs, ours: &[IpNet], before: HostPrefs) -> MaskedPrefs {
    let theirs = without(&prefs.advertise_routes, ours);
    let is_other = |now: bool, before: bool| (now != before).then_some(before);
    MaskedPrefs {
        advertise_routes: (theirs != prefs.advertise_routes).then_some(theirs),
        route_all: is_other(prefs.route_all, before.accepts_routes),
        no_snat: is_other(prefs.no_snat, before.keeps_source),
        no_stateful_filtering: (prefs.no_stateful_filtering != before.passes_stateless)
            .then_some(before.passes_stateless),
        ..MaskedPrefs::default()
    }
}

fn without(all: &[IpNet], some: &[IpNet]) -> Vec<IpNet> {
    let others = all.iter().filter(|route| !some.contains(route));
    others.copied().collect()
}

async fn in_time<T>(work: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let outcome = timeout(HEADSCALE_TIMEOUT, work).await;
    outcome.unwrap_or_else(|_| Err(format!("no answer within {HEADSCALE_TIMEOUT:?}")))
}

fn is_gone_or_mounted(error: &io::Error) -> bool {
    [io::ErrorKind::NotFound, io::ErrorKind::ResourceBusy].contains(&error.kind())
}

fn list(networks: &[IpNet]) -> String {
    truncate_list(networks, " and ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nets(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn other(id: u64, is_namesake: bool, routes: &[&str]) -> OtherDevice {
        OtherDevice {
            id,
            name: "n1".to_owned(),
            is_namesake,
            is_gone: false,
            routes: nets(routes),
        }
    }

    #[test]
    fn only_our_routes_are_withdrawn() {
        let all = nets(&["192.168.77.0/24", "10.244.1.0/24", "10.244.1.9/32"]);
        let ours = nets(&["10.244.1.0/24", "10.244.2.0/24"]);
        let left = nets(&["192.168.77.0/24", "10.244.1.9/32"]);
        assert_eq!(without(&all, &ours), left);
    }

    #[test]
    fn without_a_node_key_only_former_nodes_of_this_host_are_deleted() {
        let others = [
            other(1, true, &["10.244.1.0/24"]),
            other(2, false, &["10.244.1.0/24"]),
            other(3, true, &["192.168.77.0/24"]),
            other(4, false, &["192.168.77.0/24"]),
        ];
        let known = |id: Option<u64>| MeshRecord {
            id,
            routes: nets(&["10.244.1.0/24"]),
            ..MeshRecord::default()
        };
        assert_eq!(former(&others, &known(None)), [1]);
        // The first may be another cluster's, which is just restarting.
        assert_eq!(former(&others, &known(Some(2))), [2]);
        // Another server may have numbered its nodes in the same way.
        assert_eq!(former(&others, &known(Some(4))), [1]);
    }

    #[test]
    fn a_tailscaled_without_a_node_key_is_identified_by_the_record() {
        let all_devices = [
            other(2, false, &["10.244.1.0/24"]),
            other(7, false, &["10.244.2.0/24"]),
        ];
        let memory = MeshRecord {
            id: Some(2),
            routes: nets(&["10.244.1.0/24"]),
            ..MeshRecord::default()
        };
        assert_eq!(this_node(None, &all_devices, &memory), [2]);
        assert_eq!(
            this_node(None, &all_devices, &MeshRecord::default()),
            [0; 0]
        );
        let own = OwnDevice {
            id: 7,
            advertised: Vec::new(),
            approved: Vec::new(),
            serving: Vec::new(),
        };
        assert_eq!(this_node(Some(&own), &all_devices, &memory), [7]);
    }

    #[test]
    fn uninstall_does_nothing_on_a_node_that_never_joined() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config::default();
        config.tailscale.state_dir = dir.path().join("tailscale");
        let mut printed = Vec::new();
        let errors = remove(&config, dir.path(), &mut |line| printed.push(line));
        assert_eq!((errors, printed), (Vec::new(), Vec::new()));
    }
}
