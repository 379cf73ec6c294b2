//! The network that all pods of the node share: forwarding, the nftables tables, gateways, routes
//! and rules.
//!
//! [`Desired`] says how it is to be, [`Observed`] how it is; [`plan`] compares them without touching
//! anything, and [`pass`] does what the plan says. Passes are cheap and may be made at any time; one
//! that finds all in order changes nothing. [`watch`] tells when one is due. [`firewall`] looks after
//! the firewalls of others.
//!
//! Touched are only things of ours: the tables `inet headcni` and `inet headcni-ports`, routes and
//! rules of protocol 104, gateways on `lo` that we put there, files that we wrote, and a few sysctls
//! and features of links whose values before are kept. [`Mesh`] is the way to other nodes; who they
//! are is decided elsewhere.

mod action;
mod apply;
mod desired;
pub mod firewall;
mod memory;
mod mesh;
mod observed;
mod plan;
mod pods;
mod uninstall;
mod unmanaged_links;
mod watch;

use std::io;
use std::path::PathBuf;

use net::nft::NftError;
use net::{NetError, Socket};
use ruleset::ReplaceError;
use ruleset::host_ports::HostPortError;

pub use action::{Action, Edit};
pub use desired::{Desired, DesiredError};
pub use memory::Memory;
pub use mesh::{Mesh, Overlap};
use node_core::error::display_chain;
use node_core::reconcile::Reconciled;
pub use observed::{Observed, TableState, Tables};
pub use plan::{MESH_TABLE, plan};
pub use pods::{PodLink, Pods};
pub use uninstall::{PodLinks, remove};
pub use watch::{Signals, watch};

/// The number of `lo` in every namespace.
const LO_INDEX: u32 = 1;

/// Where files are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// What has to be known again after a restart: `network.json` in it.
    pub state_dir: PathBuf,
    /// `/`, but for tests.
    pub root: PathBuf,
}

impl Default for Place {
    fn default() -> Self {
        Self {
            state_dir: api::paths::DAEMON_STATE_DIR.into(),
            root: "/".into(),
        }
    }
}

/// What a pass is to achieve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// What all pods share.
    pub desired: Desired,
    /// The pods that live, for what a flapped link or a wiped table has lost; nothing as long as they
    /// are not known.
    pub pods: Option<Pods>,
}

/// Why the network is not as it should be.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// A sysctl could not be read or set.
    #[error("{attempt} the sysctl net/{name}: the daemon must be allowed to write /proc/sys")]
    Sysctl {
        /// `read` or `set`.
        attempt: &'static str,
        /// Its name below `/proc/sys/net`.
        name: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The kernel refused something.
    #[error(transparent)]
    Net(#[from] NetError),
    /// A table could not be put back.
    #[error("put an nftables table in place")]
    Replace(#[source] ReplaceError),
    /// A table could not be deleted.
    #[error("delete the nftables table inet {table}")]
    Nft {
        /// Which one.
        table: &'static str,
        /// Why.
        #[source]
        source: NftError,
    },
    /// A hostPort could not be published.
    #[error("publish a hostPort")]
    HostPort(#[source] HostPortError),
    /// A file could not be read or written.
    #[error("{attempt} {}", path.display())]
    File {
        /// `read`, `write` or `remove`.
        attempt: &'static str,
        /// Which one.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A firewall that was told something could not be told otherwise.
    #[error("take back what firewalls were told")]
    Firewall(#[source] firewall::FirewallError),
    /// Several things went wrong; the others were done.
    #[error("{}", .0.iter().map(display_chain).collect::<Vec<_>>().join("; "))]
    Several(Vec<NetworkError>),
}

/// Makes the network what it should be, and tells what had to be done.
pub fn pass(place: &Place, wanted: &Wanted) -> Result<Reconciled, NetworkError> {
    let Wanted { desired, pods } = wanted;
    let sockets = Sockets::open()?;
    let mut memory = Memory::load(place);
    let observed = Observed::look(&sockets, desired, &memory)?;
    let mut actions = plan(desired, &observed, &memory);
    if let Some(pods) = pods {
        actions.extend(pods::plan(pods, &observed, &actions));
    }
    memory.note(desired, &observed, &actions);
    // Before anything is changed: whoever undoes it later has to know how it was.
    memory.save(place)?;
    let mut errors = apply::apply(&sockets, desired, &actions);
    if errors.is_empty() {
        memory.forget_old(desired);
    }
    match memory.note_tables(&sockets, &actions) {
        Ok(()) => errors.extend(memory.save(place).err()),
        Err(error) => errors.push(error.into()),
    }
    let mut repairs: Vec<String> = actions.iter().map(Action::to_string).collect();
    match unmanaged_links::ensure(place, desired.unmanaged_links) {
        Ok(written) => repairs.extend(written),
        Err(error) => errors.push(error),
    }
    match errors.len() {
        0 => Ok(Reconciled {
            message: mesh::Summary(desired).to_string(),
            repairs,
            failure: mesh::trouble(desired, &observed),
        }),
        1 => Err(errors.remove(0)),
        _ => Err(NetworkError::Several(errors)),
    }
}

/// What a pass talks to the kernel by.
struct Sockets {
    route: Socket,
    netfilter: Socket,
}

impl Sockets {
    fn open() -> Result<Self, NetError> {
        Ok(Self {
            route: Socket::route()?,
            netfilter: Socket::netfilter()?,
        })
    }
}
