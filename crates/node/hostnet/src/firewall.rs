//! Foreign firewalls that drop forwarded packets, and so those of pods.
//!
//! No nftables table can overrule the drop of another one. So the condition names such a firewall with
//! the remedy. With `firewall.integrate: auto`, its own command-line tool adds accept rules for pods
//! (docs/adr/0017); this crate never writes foreign chains itself.

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

/// Foreign chains whose rules matter, besides base chains.
pub(super) const FOREIGN_CHAINS: [&str; 4] = [
    "FORWARD",
    "DOCKER-USER",
    "ufw-user-forward",
    "ufw6-user-forward",
];

/// For one run of a tool: they wait for each other's lock.
const TIMEOUT: Duration = Duration::from_secs(10);
const MAX_OUTPUT: usize = 1 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirewallSettings {
    /// Prefixes to accept: pod CIDRs, and the link to the netns of tailscaled.
    pub networks: Vec<IpNet>,
    pub integrate: Integrate,
}

#[derive(Debug, thiserror::Error)]
pub enum FirewallError {
    #[error(transparent)]
    Net(#[from] NetError),
    #[error("run {program}")]
    Run {
        program: String,
        #[source]
        source: io::Error,
    },
    #[error("{command}: {stderr}")]
    Refused { command: String, stderr: String },
    #[error("write {}", path.display())]
    State {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{}", .0.iter().map(BlockingFirewall::to_string).collect::<Vec<_>>().join("; "))]
    Blocked(Vec<BlockingFirewall>),
}

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
            "{} drops packets of pods in {networks}: {}",
            self.found,
            self.found.remedy(&self.networks)
        )?;
        if self.found.is_configurable() {
            f.write_str(", or set firewall.integrate: auto")?;
        }
        Ok(())
    }
}

/// Detects firewalls that drop packets of pods, and adds accept rules if so configured.
pub fn reconcile(
    paths: &HostPaths,
    settings: &FirewallSettings,
) -> Result<Reconciled, FirewallError> {
    let mut repairs = Vec::new();
    let mut blocking = Vec::new();
    let found = detect_all()?;
    for found in &found {
        let is_handled = |net: &&IpNet| found.handles(net);
        let networks: Vec<IpNet> = settings
            .networks
            .iter()
            .filter(is_handled)
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
        [] => "no firewall drops forwarded packets".to_owned(),
        owners => format!("{} lets pods through", owners.join(" and ")),
    };
    Ok(Reconciled {
        message,
        repairs,
        ..Reconciled::default()
    })
}

fn detect_all() -> Result<Vec<DetectedFirewall>, FirewallError> {
    let chains = net::nft::chains(&Socket::netfilter()?)?;
    let mut found = detect::detect(&chains);
    found.extend(iptables::detect_legacy()?);
    Ok(found)
}

/// Removes our rules from all firewalls.
pub(super) fn withdraw(paths: &HostPaths) -> Result<(), HostnetError> {
    let nothing = FirewallSettings {
        networks: Vec::new(),
        integrate: Integrate::Off,
    };
    reconcile(paths, &nothing)
        .map(drop)
        .map_err(HostnetError::Firewall)
}

/// Runs a tool, whatever its exit status.
fn run(program: &str, args: &[&str]) -> Result<ProgramOutput, FirewallError> {
    let failed = |source| FirewallError::Run {
        program: program.to_owned(),
        source,
    };
    let path = program::find(program).ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
    let options = RunOptions {
        stdin: "",
        timeout: TIMEOUT,
        max_output: MAX_OUTPUT,
    };
    program::run(&path, args, options)
        .map_err(failed)?
        .ok_or_else(|| failed(io::ErrorKind::TimedOut.into()))
}

/// As [`run`], but a failure is an error.
fn run_ok(program: &str, args: &[&str]) -> Result<String, FirewallError> {
    let output = run(program, args)?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(FirewallError::Refused {
        command: format!("{program} {}", args.join(" ")),
        stderr: output.stderr,
    })
}
