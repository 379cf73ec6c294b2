//! The host network that all pods of a node share: forwarding, nftables tables, gateways, routes and
//! rules.
//!
//! [`reconcile`] observes the kernel ([`Observed`]), compares it with [`Desired`] ([`plan`], which is
//! pure) and applies the difference. A reconcile that finds everything in order changes nothing.
//! [`monitor`] triggers it on kernel events. [`firewall`] handles foreign firewalls.
//!
//! Only managed objects change: the tables `inet headcni` and `inet headcni-ports`, routes and rules of
//! protocol 104, gateways that this crate added to `lo`, files that it wrote, and a few sysctls and
//! link features whose previous values are on record.

mod action;
mod apply;
mod desired;
pub mod firewall;
mod mesh_routes;
mod monitor;
mod observe;
mod plan;
mod pods;
mod record;
mod uninstall;
mod unmanaged_links;

use std::io;
use std::path::{Path, PathBuf};

use net::nft::NftError;
use net::{NetError, Socket};
use node_core::error::display_chain;
use node_core::reconcile::Reconciled;
use ruleset::ReplaceError;
use ruleset::host_ports::HostPortError;

pub use action::{Action, TableFault};
pub use desired::{Desired, DesiredError};
pub use mesh_routes::{MeshRoutes, RejectedRoute};
pub use monitor::{Signals, monitor};
pub use observe::{Observed, TableState, Tables};
pub use plan::{MESH_TABLE, plan};
pub use pods::{DesiredPodLink, DesiredPods};
pub use record::HostnetRecord;
pub use uninstall::{PodLinks, remove};

/// `lo` has this index in every netns.
const LO_INDEX: u32 = 1;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPaths {
    /// Holds `network.json` and `firewalld.json`.
    pub state_dir: PathBuf,
    /// `/`, except in tests.
    pub root: PathBuf,
}

impl Default for HostPaths {
    fn default() -> Self {
        Self {
            state_dir: api::paths::DAEMON_STATE_DIR.into(),
            root: "/".into(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReconcileInput {
    pub desired: Desired,
    /// Running pods, whose routes, neighbours and hostPorts are restored; `None` until they are known.
    pub pods: Option<DesiredPods>,
}

#[derive(Debug, thiserror::Error)]
pub enum HostnetError {
    #[error("{attempt} the sysctl net/{name}: the daemon must be allowed to write /proc/sys")]
    Sysctl {
        /// `read` or `set`.
        attempt: &'static str,
        /// Relative to `/proc/sys/net`.
        name: String,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Net(#[from] NetError),
    #[error("replace an nftables table")]
    Replace(#[source] ReplaceError),
    #[error("delete the nftables table inet {table}")]
    Nft {
        table: &'static str,
        #[source]
        source: NftError,
    },
    #[error("publish a hostPort")]
    HostPort(#[source] HostPortError),
    #[error("{attempt} {}", path.display())]
    File {
        /// `read`, `write` or `remove`.
        attempt: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("remove our rules from foreign firewalls")]
    Firewall(#[source] firewall::FirewallError),
    /// Everything else was done.
    #[error("{}", .0.iter().map(display_chain).collect::<Vec<_>>().join("; "))]
    Multiple(Vec<HostnetError>),
}

impl HostnetError {
    fn file(attempt: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::File {
            attempt,
            path,
            source,
        }
    }

    fn from_all(mut errors: Vec<Self>) -> Result<(), Self> {
        match errors.len() {
            0 => Ok(()),
            1 => Err(errors.remove(0)),
            _ => Err(Self::Multiple(errors)),
        }
    }
}

/// Makes the host network what it should be, and reports the repairs.
pub fn reconcile(paths: &HostPaths, input: &ReconcileInput) -> Result<Reconciled, HostnetError> {
    let ReconcileInput { desired, pods } = input;
    let sockets = Sockets::open()?;
    let mut file = record::load(paths);
    let mut record = file.get().of_this_boot();
    let observed = Observed::read(&sockets, desired, &record)?;
    let mut actions = plan(desired, &observed, &record);
    if let Some(pods) = pods {
        actions.extend(pods::plan(pods, &observed, &actions));
    }
    record.add_planned(desired, &observed, &actions);
    // Before the first change: uninstall needs the previous values.
    record::save(&mut file, &record)?;
    let mut errors = apply::apply(&sockets, desired, &actions);
    if errors.is_empty() {
        record.drop_undesired(desired);
    }
    match record.update_fingerprints(&sockets, &actions) {
        Ok(()) => errors.extend(record::save(&mut file, &record).err()),
        Err(error) => errors.push(error.into()),
    }
    let mut repairs: Vec<String> = actions.iter().map(Action::to_string).collect();
    match unmanaged_links::ensure(paths, desired.unmanaged_links) {
        Ok(written) => repairs.extend(written),
        Err(error) => errors.push(error),
    }
    HostnetError::from_all(errors)?;
    Ok(Reconciled {
        message: mesh_routes::Summary(desired).to_string(),
        repairs,
        failure: mesh_routes::unreachable_reason(desired, &observed),
    })
}

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
