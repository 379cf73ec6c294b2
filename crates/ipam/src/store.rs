//! The lease store: host-local's directory with an index in `.headcni`.
//!
//! ```text
//! <dataDir>/<network>/
//!   10.244.1.5             a lease: container ID, CR LF, interface name
//!   last_reserved_ip.0     the last reserved address of each range set
//!   lock                   locked during a call; contains the stamp
//!   .headcni/owners/…      one record per owner: addresses, pod, boot ID
//!   .headcni/used.…        one bitmap per subnet
//!   .headcni/pending       the lease that is being committed or released
//!   .headcni/new.0         an address file before it is linked to its address
//! ```
//!
//! The address files are authoritative. The index is used only while the stamp proves that no other
//! process changed the directory and that no call died half-way; otherwise it is rebuilt.

mod address_file;
mod bitmaps;
mod boot;
pub(crate) mod fault_injection;
mod file;
mod last_reserved;
mod locked;
mod owner;
mod rebuild;
mod record;
mod snapshot;
mod stamp;

use std::fs::{self, File};
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cni::{Error, NetworkName, Pod, code};
use ipnet::IpNet;
use rustix::fs::OFlags;

use crate::range::RangeSet;
use crate::strategy::AllocationStrategy;

pub use locked::LockedStore;
pub use owner::LeaseOwner;
pub use snapshot::{LeaseSnapshot, StorePresence};

/// The lease of an owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredLease {
    pub(crate) owner: LeaseOwner,
    /// In the order of the range sets.
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) pod: Option<Pod>,
}

#[derive(Clone, Copy)]
pub(crate) struct LeaseRequest<'a> {
    pub(crate) owner: &'a LeaseOwner,
    pub(crate) pod: Option<&'a Pod>,
    /// One address is leased from each.
    pub(crate) sets: &'a [RangeSet],
    /// Each is in a different set.
    pub(crate) requested: &'a [IpAddr],
    pub(crate) strategy: AllocationStrategy,
}

/// Addresses of a range set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) leased: u128,
    pub(crate) capacity: u128,
}

/// Why an operation on the store failed.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the message of each variant describes it")]
pub enum StoreError {
    #[error("{attempt} {}", path.display())]
    Io {
        attempt: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("lease store {} is locked by another process for more than {seconds} s", path.display())]
    Busy { path: PathBuf, seconds: f64 },
    #[error("{owner} already has a lease for {addresses}: DEL it first")]
    AlreadyLeased { owner: String, addresses: String },
    #[error(
        "{set} is full: {leased} of {capacity} leased; GC releases leases of containers that no \
         longer run"
    )]
    Exhausted {
        set: String,
        leased: u128,
        capacity: u128,
    },
    #[error("requested address {address} is leased to {owner}")]
    Taken { address: IpAddr, owner: String },
    #[error("requested address {address} is occupied by {}, which is not a lease", path.display())]
    Occupied { address: IpAddr, path: PathBuf },
    #[error(
        "requested address {address} is reserved: it is the gateway, network or broadcast \
         address of {subnet}"
    )]
    Reserved { address: IpAddr, subnet: IpNet },
    #[error(
        "requested address {address} is outside the ranges, or its range set already has a \
         requested address ({sets})"
    )]
    Outside { address: IpAddr, sets: String },
    #[error("CNI_CONTAINERID is too long for a lease record: {owner}")]
    LongName { owner: String },
}

/// Error codes of this plugin, above those of the CNI specification.
pub(crate) mod ipam_code {
    pub(crate) const EXHAUSTED: u32 = 110;
    pub(crate) const ADDRESS_UNAVAILABLE: u32 = 111;
    pub(crate) const NOT_LEASED: u32 = 112;
}

impl StoreError {
    pub(crate) fn is_full_disk(&self) -> bool {
        use io::ErrorKind::{QuotaExceeded, StorageFull};
        matches!(self, Self::Io { source, .. } if matches!(source.kind(), StorageFull | QuotaExceeded))
    }

    /// Whether a unit test injected this error.
    pub(crate) fn is_crash(&self) -> bool {
        matches!(self, Self::Io { attempt, .. } if *attempt == fault_injection::CRASH)
    }

    /// Whether a retry within milliseconds can succeed: an I/O error may be transient, and another
    /// call may release an address. A lock timeout is not retried, because the deadline has passed.
    pub(crate) fn is_retryable(&self) -> bool {
        use io::ErrorKind::{
            IsADirectory, NotADirectory, PermissionDenied, QuotaExceeded, ReadOnlyFilesystem,
            StorageFull,
        };
        match self {
            Self::Io { source, .. } => !matches!(
                source.kind(),
                StorageFull
                    | QuotaExceeded
                    | ReadOnlyFilesystem
                    | PermissionDenied
                    | NotADirectory
                    | IsADirectory
            ),
            Self::Exhausted { .. } | Self::Taken { .. } => true,
            _ => false,
        }
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        let code = match &error {
            StoreError::Io { .. } => code::IO_FAILURE,
            StoreError::Busy { .. } => code::TRY_AGAIN_LATER,
            StoreError::AlreadyLeased { .. } => code::ALREADY_ATTACHED,
            StoreError::Exhausted { .. } => ipam_code::EXHAUSTED,
            StoreError::Taken { .. }
            | StoreError::Occupied { .. }
            | StoreError::Reserved { .. }
            | StoreError::Outside { .. } => ipam_code::ADDRESS_UNAVAILABLE,
            StoreError::LongName { .. } => code::INVALID_ENVIRONMENT,
        };
        Self::caused(code, &error)
    }
}

pub(crate) fn io_error(attempt: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    move |source| StoreError::Io {
        attempt,
        path: path.to_owned(),
        source,
    }
}

/// The leases of a network on this node.
#[derive(Clone, Debug)]
pub struct LeaseStore {
    dir: PathBuf,
    lock_timeout: Duration,
    boot: Option<String>,
}

impl LeaseStore {
    /// The store of `network` in `data_dir`. A `data_dir` that already ends in the network's name
    /// is used as it is.
    pub fn new(data_dir: &Path, network: &NetworkName, lock_timeout: Duration) -> Self {
        let below = data_dir.join(network.as_str());
        let is_named = data_dir
            .file_name()
            .is_some_and(|name| name == network.as_str());
        // host-local always appends the network's name. If it did so here before us, use its
        // directory.
        let is_ours = || record::index_dir(data_dir).is_dir() || !below.join("lock").is_file();
        let dir = if is_named && is_ours() {
            data_dir.to_owned()
        } else {
            below
        };
        Self {
            dir,
            lock_timeout,
            boot: None,
        }
    }

    /// Saves reading the boot ID from the kernel. An empty one is ignored.
    #[must_use]
    pub fn with_boot_id(self, id: &str) -> Self {
        let boot = id.split_whitespace().next().map(str::to_owned);
        Self { boot, ..self }
    }

    /// Locks the store and validates its index; creates it if it does not exist.
    pub(crate) fn open(&self) -> Result<LockedStore, StoreError> {
        let lock = match self.open_lock() {
            Err(StoreError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                fs::create_dir_all(&self.dir).map_err(io_error("create", &self.dir))?;
                self.open_lock()?
            }
            lock => lock?,
        };
        self.lock(lock)
    }

    /// Locks an existing store; `None` if there is none.
    pub fn open_existing(&self) -> Result<Option<LockedStore>, StoreError> {
        match self.open_lock() {
            Err(_) if !self.dir.is_dir() => Ok(None),
            lock => self.lock(lock?).map(Some),
        }
    }

    fn open_lock(&self) -> Result<File, StoreError> {
        let path = self.dir.join("lock");
        file::open(&path, OFlags::RDWR | OFlags::CREATE).map_err(io_error("open", &path))
    }

    fn lock(&self, lock: File) -> Result<LockedStore, StoreError> {
        let path = self.dir.join("lock");
        if !crate::lock::lock_within(&lock, self.lock_timeout).map_err(io_error("lock", &path))? {
            let seconds = self.lock_timeout.as_secs_f64();
            return Err(StoreError::Busy {
                path: self.dir.clone(),
                seconds,
            });
        }
        LockedStore::new(&self.dir, lock, self.boot.clone().or_else(boot::id))
    }
}

#[cfg(test)]
mod tests;
