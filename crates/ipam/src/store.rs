//! The lease store: host-local's directory, with an index of our own beside it.
//!
//! ```text
//! <dataDir>/<network>/
//!   10.244.1.5             one file per leased address: container id, line break, interface name
//!   last_reserved_ip.0     the newest lease of each range set
//!   lock                   held by whoever reads or writes here; our stamp is in it
//!   .headcni/owners/…      one record per owner: addresses, pod, boot
//!   .headcni/used.…        one bitmap per subnet
//!   .headcni/pending       a lease that is being made or released
//!   .headcni/new.0         a file that a release has left for the next lease
//! ```
//!
//! The files are the truth, and host-local knows no others. The index is a cache of them that is
//! used only while the stamp proves that nobody else has changed the directory and that no call
//! of ours ended half-way; else it is made anew from the files (`reconcile`).

mod address_file;
mod boot;
mod file;
mod fuse;
mod look;
mod newest;
mod owner;
mod reconcile;
mod record;
mod session;
mod stamp;
mod used;

use std::fs::{self, File};
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cni::{Error, NetworkName, Pod, code};
use rustix::fs::OFlags;

use crate::range::RangeSet;
use crate::strategy::Strategy;

pub use look::{Presence, SeenLease};
pub use owner::Owner;
pub use session::Session;

/// What an owner has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Who has it.
    pub owner: Owner,
    /// The addresses, in the order of the range sets that they are from.
    pub addresses: Vec<IpAddr>,
    /// The pod that the owner is a container of, if that is known.
    pub pod: Option<Pod>,
}

/// What an owner is to get.
#[derive(Clone, Copy)]
pub struct LeaseRequest<'a> {
    /// Who.
    pub owner: &'a Owner,
    /// For which pod, if it is one.
    pub pod: Option<&'a Pod>,
    /// One address from each.
    pub sets: &'a [RangeSet],
    /// Addresses that it must be, each in another set.
    pub requested: &'a [IpAddr],
    /// How to choose the others.
    pub strategy: Strategy,
    /// Tells owners that still run, where the caller knows; for the error when no address is left.
    pub is_live: Option<&'a dyn Fn(&Owner) -> bool>,
}

/// How much of a range set is leased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Addresses that are leased.
    pub leased: u128,
    /// Addresses that can be.
    pub capacity: u128,
}

/// Why the store did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Reading or writing went wrong.
    #[error("{attempt} {}", path.display())]
    Io {
        /// What was attempted.
        attempt: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// Others had the store for too long.
    #[error("the lease store {} is busy: no turn within {seconds} s", path.display())]
    Busy {
        /// The store.
        path: PathBuf,
        /// How long was waited.
        seconds: f64,
    },
    /// The owner has addresses already.
    #[error("{owner} has {addresses} already: DEL it first")]
    AlreadyLeased {
        /// Who.
        owner: String,
        /// Which.
        addresses: String,
    },
    /// Every address is leased.
    #[error("{set} is full: {leased} of {capacity} leased{dead}")]
    Exhausted {
        /// The range set.
        set: String,
        /// How many are leased.
        leased: u128,
        /// How many there are.
        capacity: u128,
        /// What is known about owners that no longer run; begins with a comma.
        dead: String,
    },
    /// Somebody else has the address that was asked for.
    #[error("requested address {address} is leased to {owner}")]
    Taken {
        /// The address.
        address: IpAddr,
        /// Who has it.
        owner: String,
    },
    /// The address that was asked for can't be leased at all.
    #[error(
        "requested address {address} is reserved: it is the gateway, network or broadcast address of {subnet}"
    )]
    Reserved {
        /// The address.
        address: IpAddr,
        /// Its subnet.
        subnet: String,
    },
    /// The address that was asked for is in no range, or two are asked for from one set.
    #[error(
        "requested address {address} can't be given: it is not in a range set of its own ({sets})"
    )]
    Outside {
        /// The address.
        address: IpAddr,
        /// The range sets.
        sets: String,
    },
    /// The owner's name can't be a file's name.
    #[error("CNI_CONTAINERID is too long a name for a lease: {owner}")]
    LongName {
        /// The owner.
        owner: String,
    },
}

/// Codes of our own for what only an IPAM plugin can say.
pub(crate) mod own_code {
    /// No address is left.
    pub(crate) const EXHAUSTED: u32 = 110;
    /// The address that was asked for can't be had.
    pub(crate) const NOT_TO_BE_HAD: u32 = 111;
    /// A lease that should be there isn't.
    pub(crate) const NOT_LEASED: u32 = 112;
}

impl StoreError {
    /// Whether there is no room left.
    pub(crate) fn is_full_disk(&self) -> bool {
        use io::ErrorKind::{QuotaExceeded, StorageFull};
        matches!(self, Self::Io { source, .. } if matches!(source.kind(), StorageFull | QuotaExceeded))
    }

    /// Whether it is the end of a test's fuse.
    pub(crate) fn is_crash(&self) -> bool {
        matches!(self, Self::Io { attempt, .. } if *attempt == fuse::CRASH)
    }

    /// Whether the same call could work a moment later.
    pub fn is_passing(&self) -> bool {
        // A full or read-only disk stays so for longer than a call can wait.
        matches!(self, Self::Io { source, .. } if matches!(
            source.kind(),
            io::ErrorKind::Interrupted
                | io::ErrorKind::WouldBlock
                | io::ErrorKind::ResourceBusy
                | io::ErrorKind::NotFound
                | io::ErrorKind::StaleNetworkFileHandle
        ))
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        let code = match &error {
            StoreError::Io { .. } => code::IO_FAILURE,
            StoreError::Busy { .. } => code::TRY_AGAIN_LATER,
            StoreError::AlreadyLeased { .. } => code::ALREADY_ATTACHED,
            StoreError::Exhausted { .. } => own_code::EXHAUSTED,
            StoreError::Taken { .. } | StoreError::Reserved { .. } | StoreError::Outside { .. } => {
                own_code::NOT_TO_BE_HAD
            }
            StoreError::LongName { .. } => code::INVALID_ENVIRONMENT,
        };
        Self::caused(code, &error)
    }
}

/// For `map_err`: what was attempted on which path.
pub(crate) fn io_error(attempt: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    move |source| StoreError::Io {
        attempt,
        path: path.to_owned(),
        source,
    }
}

/// A network's leases on this node.
#[derive(Clone, Debug)]
pub struct Store {
    dir: PathBuf,
    patience: Duration,
    boot: Option<String>,
}

impl Store {
    /// The store of `network` below `data_dir`.
    ///
    /// A `data_dir` that ends in the network's name is taken as it is.
    pub fn new(data_dir: &Path, network: &NetworkName, patience: Duration) -> Self {
        let below = data_dir.join(network.as_str());
        let is_named = data_dir
            .file_name()
            .is_some_and(|name| name == network.as_str());
        // Host-local would make a directory of that name once more. Where it has, and we have not
        // been here before, its leases are below.
        let is_ours = || record::index_dir(data_dir).is_dir() || !below.join("lock").is_file();
        let dir = if is_named && is_ours() {
            data_dir.to_owned()
        } else {
            below
        };
        Self {
            dir,
            patience,
            boot: None,
        }
    }

    /// The same, for a caller who knows the id of this boot: it isn't asked for again.
    #[must_use]
    pub fn in_boot(self, id: &str) -> Self {
        let boot = id.split_whitespace().next().map(str::to_owned);
        Self { boot, ..self }
    }

    /// Exclusive access, with an index that is known to be right.
    pub fn open(&self) -> Result<Session, StoreError> {
        let lock = match self.open_lock() {
            // The first call of all: there is no directory yet.
            Err(StoreError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                fs::create_dir_all(&self.dir).map_err(io_error("create", &self.dir))?;
                self.open_lock()?
            }
            lock => lock?,
        };
        self.session(lock)
    }

    /// As [`Store::open`], but `None` if there is no store yet.
    pub fn open_existing(&self) -> Result<Option<Session>, StoreError> {
        match self.open_lock() {
            Err(_) if !self.dir.is_dir() => Ok(None),
            lock => self.session(lock?).map(Some),
        }
    }

    fn open_lock(&self) -> Result<File, StoreError> {
        let path = self.dir.join("lock");
        file::open(&path, OFlags::RDWR | OFlags::CREATE).map_err(io_error("open", &path))
    }

    fn session(&self, lock: File) -> Result<Session, StoreError> {
        let path = self.dir.join("lock");
        if !crate::lock::lock_within(&lock, self.patience).map_err(io_error("lock", &path))? {
            let seconds = self.patience.as_secs_f64();
            return Err(StoreError::Busy {
                path: self.dir.clone(),
                seconds,
            });
        }
        Session::begin(&self.dir, lock, self.boot.clone().or_else(boot::id))
    }
}

#[cfg(test)]
mod tests;
