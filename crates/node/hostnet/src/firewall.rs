//! Firewalls of others that drop what the node forwards, and so what pods send.
//!
//! No table can overrule another one's drop. So such a firewall is found and named with its remedy,
//! and told to let pods through only if the configuration says so (docs/adr/0017). Its own programs are
//! used for that: what they keep in the kernel is not ours to write.

mod firewalld;
mod found;
mod iptables;
mod natively;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use net::program::{self, ProgramOutput, RunOptions};
use net::{NetError, Socket, nft};

use super::{NetworkError, Place};
use found::{Found, Way};
use node_config::Integrate;
use node_core::reconcile::Reconciled;

/// Chains of others whose rules matter, beside those that get packets by themselves.
pub(super) const CHAINS_OF_OTHERS: [&str; 4] = [
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
pub struct Settings {
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
    Memory {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Something drops what pods send.
    #[error("{}", .0.iter().map(Obstacle::to_string).collect::<Vec<_>>().join("; "))]
    Blocked(Vec<Obstacle>),
}

/// A firewall that drops what pods send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    found: Found,
    networks: Vec<IpNet>,
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let networks: Vec<String> = self.networks.iter().map(IpNet::to_string).collect();
        let networks = networks.join(" and ");
        write!(
            f,
            "{} drops what pods in {networks} send and get: {}",
            self.found,
            self.found.remedy(&self.networks)
        )?;
        if self.found.can_be_told() {
            f.write_str(", or say firewall.integrate: auto")?;
        }
        Ok(())
    }
}

/// Looks for firewalls that drop what pods send, and tells them not to if that is asked for.
pub fn pass(place: &Place, settings: &Settings) -> Result<Reconciled, FirewallError> {
    let mut repairs = Vec::new();
    let mut obstacles = Vec::new();
    let found = look()?;
    for found in &found {
        let is_concerned = |net: &&IpNet| found.concerns(net);
        let networks: Vec<IpNet> = settings
            .networks
            .iter()
            .filter(is_concerned)
            .copied()
            .collect();
        let dropped = match &found.way {
            Way::Iptables(chain) => iptables::settle(
                chain,
                found.is_drop,
                &networks,
                settings.integrate,
                &mut repairs,
            )?,
            Way::Firewalld => {
                firewalld::settle(place, &networks, settings.integrate, &mut repairs)?
            }
            Way::Natively(chain) if found.is_drop => natively::dropped(chain, &networks)?,
            Way::Natively(_) => Vec::new(),
        };
        if !dropped.is_empty() {
            let found = found.clone();
            obstacles.push(Obstacle {
                found,
                networks: dropped,
            });
        }
    }
    if !obstacles.is_empty() {
        return Err(FirewallError::Blocked(obstacles));
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

fn look() -> Result<Vec<Found>, FirewallError> {
    let chains = nft::chains(&Socket::netfilter()?)?;
    let mut found = found::in_nftables(&chains);
    found.extend(iptables::find_legacy()?);
    Ok(found)
}

/// Takes back everything that firewalls were told.
pub(super) fn withdraw(place: &Place) -> Result<(), NetworkError> {
    let nothing = Settings {
        networks: Vec::new(),
        integrate: Integrate::Off,
    };
    pass(place, &nothing)
        .map(drop)
        .map_err(NetworkError::Firewall)
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
fn run_well(program: &str, args: &[&str]) -> Result<String, FirewallError> {
    let ended = run(program, args)?;
    if ended.status.success() {
        return Ok(ended.stdout);
    }
    Err(FirewallError::Refused {
        line: format!("{program} {}", args.join(" ")),
        words: ended.stderr,
    })
}
