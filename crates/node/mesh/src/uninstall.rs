//! Takes this node out of the mesh for good: the host's tailscaled gets back what it had, ours ends
//! and is forgotten, here and at the server.
//!
//! All of it is tried, whatever fails. A server that does not answer is no reason to stay: what is
//! left there is told. Nor does it take long: every step has its time.

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

/// For an answer of a tailscaled.
const ANSWER: Duration = Duration::from_secs(3);
/// For all that the server is asked, or a tailscaled has to ask it.
const SERVER: Duration = Duration::from_secs(7);
/// What tailscaled makes in the directory that is its own.
const STATE_FILE: &str = "tailscaled.state";

/// Who hears what was done.
type Tell<'a> = &'a mut (dyn FnMut(String) + Send);

/// Does it, and tells line by line what was done and what is left elsewhere. What is returned could
/// not be done, and is still on record in `state_dir` for another try.
pub fn remove(config: &Config, state_dir: &Path, tell: Tell<'_>) -> Vec<String> {
    let kept = MeshStateFile::load(state_dir);
    // Ours may still run with another directory, if the configuration was changed since.
    let in_use = managed::settings(config, TailscaledMode::Managed).running_state_dir();
    let has_own = in_use.is_some() || config.tailscale.state_dir.join(STATE_FILE).exists();
    if !has_own && kept.memory().host.is_none() && !netns::is_there() {
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
        memory: kept.memory().clone(),
        tell,
    };
    let former = in_use.filter(|dir| *dir != config.tailscale.state_dir);
    runtime.block_on(async {
        errors.extend(leaving.give_back().await.err());
        if has_own {
            errors.extend(leaving.end_own().await.err());
        }
    });
    if let Some(dir) = former {
        let dir = dir.display();
        tell(format!(
            "not removed: the keys in {dir}, which tailscaled ran with and the configuration does not \
             name; remove them yourself"
        ));
    }
    // Nobody is in it any more, unless something went wrong.
    if errors.is_empty() && netns::is_there() {
        match netns::remove() {
            Ok(()) => tell("removed tailscaled's netns".to_owned()),
            Err(causes) => errors.extend(causes.iter().map(display_chain)),
        }
    }
    // Whoever is asked again must not give back what somebody has changed since.
    if errors.is_empty() {
        let outcome = kept.erase();
        errors.extend(
            outcome
                .err()
                .map(|error| format!("remove the mesh state file: {error}")),
        );
    }
    errors
}

/// Gives the host's tailscaled back what it had, and tells line by line what was done.
pub(crate) async fn give_back(
    config: &Config,
    memory: &MeshRecord,
    tell: Tell<'_>,
) -> Result<GivenBack, String> {
    let mut leaving = Leaving {
        config,
        memory: memory.clone(),
        tell,
    };
    leaving.give_back().await
}

/// How much was given back to the host's tailscaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GivenBack {
    /// It has what it had.
    All,
    /// It does not run.
    Nothing,
}

struct Leaving<'a> {
    config: &'a Config,
    memory: MeshRecord,
    tell: Tell<'a>,
}

impl Leaving<'_> {
    fn report(&mut self, line: impl Into<String>) {
        (self.tell)(line.into());
    }

    /// The host's tailscaled is as it was.
    async fn give_back(&mut self) -> Result<GivenBack, String> {
        let Some(before) = self.memory.host else {
            return Ok(GivenBack::All);
        };
        let tailscaled = LocalApi::new(&self.config.tailscale.socket).with_timeout(ANSWER);
        let prefs = match tailscaled.prefs().await {
            Ok(prefs) => prefs,
            Err(error) if error.is_not_running() => {
                self.report(format!(
                    "the host's tailscaled does not run, so its prefs stay: it may still advertise {}",
                    list(&self.memory.routes)
                ));
                return Ok(GivenBack::Nothing);
            }
            Err(error) => return Err(display_chain(&error)),
        };
        let edit = given_back(&prefs, &self.memory.routes, before);
        if !edit.is_empty() {
            let outcome = tailscaled.edit_prefs(&edit).await;
            outcome.map_err(|error| display_chain(&error))?;
        }
        self.report("restored the host tailscaled's prefs");
        let Ok(status) = tailscaled.status().await else {
            return Ok(GivenBack::All);
        };
        let left = self.disapprove(&status).await.err();
        if let Some(why) = left {
            self.report(format!(
                "not undone in Headscale: {} may still be approved for {}: {why}",
                list(&self.memory.routes),
                status.self_node.host_name
            ));
        }
        Ok(GivenBack::All)
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

    /// Ours is no member any more, ends, and leaves nothing here.
    async fn end_own(&mut self) -> Result<(), String> {
        let tailscaled = LocalApi::new(managed::socket()).with_timeout(ANSWER);
        let status = tailscaled.status().await.ok();
        if status.is_some() {
            // From now on nobody sends packets here, even if the server can't be asked.
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

    /// Deletes our node at the server. Whoever may not do that logs out at least.
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
            look(&mut server).await?;
            let own = status.and_then(|status| own_in(&server, status));
            let ids = this_node(own.as_ref(), &server.everybody(&hostname), &memory);
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
        let said = self.config.tailscale.hostname.as_deref();
        let variable = env::var_os(node_name::VARIABLE);
        match node_name::find(None, variable.as_deref()) {
            Ok(name) => hostname::hostname(said, &name),
            Err(_) => said.unwrap_or_default().to_owned(),
        }
    }
}

/// This node in the server's list.
async fn listed(server: &mut ControlServer, status: &Status) -> Result<Option<OwnDevice>, String> {
    look(server).await?;
    Ok(own_in(server, status))
}

/// The same, of a list that was read.
fn own_in(server: &ControlServer, status: &Status) -> Option<OwnDevice> {
    match server.view(status, &status.self_node.host_name) {
        HeadscaleView::Listed { own, .. } => own,
        HeadscaleView::Unknown => None,
    }
}

async fn look(server: &mut ControlServer) -> Result<(), String> {
    server.look(false).await;
    match server.problem() {
        Some(problem) => Err(problem),
        None => Ok(()),
    }
}

/// This node by what its tailscaled says. One that does not run, or has only just started and does not
/// know its own key, says nothing: then by what was known before.
fn this_node(own: Option<&OwnDevice>, everybody: &[OtherDevice], memory: &MeshRecord) -> Vec<u64> {
    own.map_or_else(|| former(everybody, memory), |own| vec![own.id])
}

/// Nodes that were this one and have its networks: by their number, or if nobody has that, by their
/// name, which a node of another cluster may have as well. A server takes one that has just ended to be
/// online for a while.
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

/// What the host's tailscaled has to be told to be as it was.
fn given_back(prefs: &Prefs, ours: &[IpNet], before: HostPrefs) -> MaskedPrefs {
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
    let outcome = timeout(SERVER, work).await;
    outcome.unwrap_or_else(|_| Err(format!("no answer within {SERVER:?}")))
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
    fn only_our_networks_are_taken_from_a_list() {
        let all = nets(&["192.168.77.0/24", "10.244.1.0/24", "10.244.1.9/32"]);
        let ours = nets(&["10.244.1.0/24", "10.244.2.0/24"]);
        let left = nets(&["192.168.77.0/24", "10.244.1.9/32"]);
        assert_eq!(without(&all, &ours), left);
    }

    #[test]
    fn only_what_was_this_node_is_deleted_when_it_can_t_say_who_it_is() {
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
    fn who_does_not_know_its_own_key_is_known_by_what_was_before() {
        let everybody = [
            other(2, false, &["10.244.1.0/24"]),
            other(7, false, &["10.244.2.0/24"]),
        ];
        let memory = MeshRecord {
            id: Some(2),
            routes: nets(&["10.244.1.0/24"]),
            ..MeshRecord::default()
        };
        assert_eq!(this_node(None, &everybody, &memory), [2]);
        assert_eq!(this_node(None, &everybody, &MeshRecord::default()), [0; 0]);
        let own = OwnDevice {
            id: 7,
            advertised: Vec::new(),
            approved: Vec::new(),
            serving: Vec::new(),
        };
        assert_eq!(this_node(Some(&own), &everybody, &memory), [7]);
    }

    #[test]
    fn where_nothing_was_joined_nothing_is_asked() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config::default();
        config.tailscale.state_dir = dir.path().join("tailscale");
        let mut told = Vec::new();
        let errors = remove(&config, dir.path(), &mut |line| told.push(line));
        assert_eq!((errors, told), (Vec::new(), Vec::new()));
    }
}
