//! Firewalls of others that drop what the node forwards, and so what pods send.
//!
//! No table can overrule another one's drop. So such a firewall is found and named with its remedy,
//! and told to let pods through only if the configuration says so (docs/adr/0017). Its own programs are
//! used for that: what they keep in the kernel is not ours to write.

mod detect;
mod firewalld;
mod iptables;
mod nft;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use net::program::{self, ProgramOutput, RunOptions};
use net::{NetError, Socket};

use super::{HostPaths, HostnetError};
use detect::{Backend, DetectedFirewall};
use node_config::Integrate;
use node_core::reconcile::Reconciled;

/// Chains of others whose rules matter, beside those that get packets by themselves.
pub(super) const FOREIGN_CHAINS: [&str; 4] = [
    "FORWARD",
    "DOCKER-USER",
    "ufw-user-forward",
    "ufw6-user-forward",
];

/// How long a firewall's program may take: they wait for each other's lock.
const DEADLINE: Duration = Duration::from_secs(10);
/// More rules than that in one chain are not read, and then none of them counts.
const MAX_OUTPUT: usize = 1 << 20;

/// What firewalls are to let through, and who tells them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirewallSettings {
    /// The networks of pods.
    pub networks: Vec<IpNet>,
    /// Whether we tell them.
    pub integrate: Integrate,
}

/// Why what pods send is not forwarded, or why that is not known.
#[derive(Debug, thiserror::Error)]
pub enum FirewallError {
    /// The kernel does not say which chains there are.
    #[error(transparent)]
    Net(#[from] NetError),
    /// A firewall's program is missing, or could not be run.
    #[error("run {program}")]
    Run {
        /// Its name.
        program: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A firewall's program refused.
    #[error("{line}: {words}")]
    Refused {
        /// What was asked for.
        line: String,
        /// What it said.
        words: String,
    },
    /// What we have told a firewall could not be kept in mind.
    #[error("write {}", path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Something drops what pods send.
    #[error("{}", .0.iter().map(BlockingFirewall::to_string).collect::<Vec<_>>().join("; "))]
    Blocked(Vec<BlockingFirewall>),
}

/// A firewall that drops what pods send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockingFirewall {
    found: DetectedFirewall,
    networks: Vec<IpNet>,
}

impl fmt::Display for BlockingFirewall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let networks: Vec<String> = self.networks.iter().map(IpNet::to_string).collect();
        let networks = networks.join(" and ");
        write!(
            f,
            "{} drops what pods in {networks} send and get: {}",
            self.found,
            self.found.remedy(&self.networks)
        )?;
        if self.found.is_configurable() {
            f.write_str(", or say firewall.integrate: auto")?;
        }
        Ok(())
    }
}

/// Looks for firewalls that drop what pods send, and tells them not to if that is asked for.
pub fn reconcile(
    paths: &HostPaths,
    settings: &FirewallSettings,
) -> Result<Reconciled, FirewallError> {
    let mut repairs = Vec::new();
    let mut blocking = Vec::new();
    let found = look()?;
    for found in &found {
        let is_concerned = |net: &&IpNet| found.handles(net);
        let networks: Vec<IpNet> = settings
            .networks
            .iter()
            .filter(is_concerned)
            .copied()
            .collect();
        let dropped = match &found.backend {
            Backend::Iptables(chain) => iptables::reconcile(
                chain,
                found.is_drop,
                &networks,
                settings.integrate,
                &mut repairs,
            )?,
            Backend::Firewalld => {
                firewalld::reconcile(paths, &networks, settings.integrate, &mut repairs)?
            }
            Backend::Nft(chain) if found.is_drop => nft::dropped(chain, &networks)?,
            Backend::Nft(_) => Vec::new(),
        };
        if !dropped.is_empty() {
            let found = found.clone();
            blocking.push(BlockingFirewall {
                found,
                networks: dropped,
            });
        }
    }
    if !blocking.is_empty() {
        return Err(FirewallError::Blocked(blocking));
    }
    let owners: Vec<&str> = found
        .iter()
        .filter(|found| found.is_drop)
        .map(|found| found.owner.name())
        .collect();
    let message = match owners.as_slice() {
        [] => "no firewall drops what is forwarded".to_owned(),
        owners => format!("{} lets pods through", owners.join(" and ")),
    };
    Ok(Reconciled {
        message,
        repairs,
        ..Reconciled::default()
    })
}

fn look() -> Result<Vec<DetectedFirewall>, FirewallError> {
    let chains = net::nft::chains(&Socket::netfilter()?)?;
    let mut found = detect::detect(&chains);
    found.extend(iptables::detect_legacy()?);
    Ok(found)
}

/// Takes back everything that firewalls were told.
pub(super) fn withdraw(paths: &HostPaths) -> Result<(), HostnetError> {
    let nothing = FirewallSettings {
        networks: Vec::new(),
        integrate: Integrate::Off,
    };
    reconcile(paths, &nothing)
        .map(drop)
        .map_err(HostnetError::Firewall)
}

/// Runs a firewall's program to its end, whatever its exit status.
fn run(program: &str, args: &[&str]) -> Result<ProgramOutput, FirewallError> {
    let failed = |source| FirewallError::Run {
        program: program.to_owned(),
        source,
    };
    let path = program::find(program).ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
    let options = RunOptions {
        stdin: "",
        timeout: DEADLINE,
        max_output: MAX_OUTPUT,
    };
    program::run(&path, args, options)
        .map_err(failed)?
        .ok_or_else(|| failed(io::ErrorKind::TimedOut.into()))
}

/// As [`run`]; it must succeed.
fn run_ok(program: &str, args: &[&str]) -> Result<String, FirewallError> {
    let ended = run(program, args)?;
    if ended.status.success() {
        return Ok(ended.stdout);
    }
    Err(FirewallError::Refused {
        line: format!("{program} {}", args.join(" ")),
        words: ended.stderr,
    })
}
