//! The record of an owner: its addresses, and what address files can't store.

use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use cni::Pod;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use super::address_file::FileIdentity;
use super::file;
use super::owner::LeaseOwner;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LeaseRecord {
    pub(super) container: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) ifname: Option<String>,
    pub(super) addresses: Vec<RecordedAddress>,
    /// The boot in which the lease was made or adopted.
    pub(super) boot: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) pod: Option<Pod>,
    /// Checksum of the fields above: a torn or edited record is ignored.
    #[serde(default)]
    sum: u64,
}

/// An address and the identity of its file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RecordedAddress {
    pub(super) ip: IpAddr,
    file: String,
}

impl RecordedAddress {
    pub(super) fn new(ip: IpAddr, identity: &FileIdentity) -> Self {
        Self {
            ip,
            file: identity.0.clone(),
        }
    }

    pub(super) fn is_file(&self, identity: &FileIdentity) -> bool {
        self.file == identity.0
    }
}

impl LeaseRecord {
    pub(super) fn of(owner: &LeaseOwner, addresses: Vec<RecordedAddress>, boot: &str) -> Self {
        Self {
            container: owner.container().to_owned(),
            ifname: owner.ifname().map(str::to_owned),
            addresses,
            boot: boot.to_owned(),
            pod: None,
            sum: 0,
        }
    }

    pub(super) fn ips(&self) -> Vec<IpAddr> {
        self.addresses.iter().map(|address| address.ip).collect()
    }

    pub(super) fn is_of(&self, owner: &LeaseOwner) -> bool {
        self.container == owner.container() && self.ifname.as_deref() == owner.ifname()
    }

    /// A copy without checksum.
    fn bare(&self) -> Self {
        Self {
            sum: 0,
            ..self.clone()
        }
    }

    fn sum_up(&self) -> u64 {
        // FNV-1a: <http://www.isthe.com/chongo/tech/comp/fnv/>
        let bytes = serde_json::to_vec(&self.bare()).unwrap_or_default();
        bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
            (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        })
    }

    /// Reads a record; `None` if it is missing or torn.
    pub(super) fn read(path: &Path) -> io::Result<Option<Self>> {
        match file::read(path) {
            Ok(bytes) => Ok(Self::parse(&bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let record: Self = serde_json::from_slice(bytes).ok()?;
        (record.sum == record.sum_up()).then(|| record.bare())
    }

    pub(super) fn write(&self, path: &Path) -> io::Result<()> {
        let summed = Self {
            sum: self.sum_up(),
            ..self.clone()
        };
        replace(path, &serde_json::to_vec(&summed).unwrap_or_default())
    }
}

/// Writes an index file. A crash may tear it, which the stamp reveals.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    overwrite(path, bytes).map(drop)
}

/// Writes an index file and returns its metadata.
///
/// It does not truncate the file first: ext4 treats that as replace-via-truncate and flushes the
/// file.
pub(super) fn overwrite(path: &Path, bytes: &[u8]) -> io::Result<Metadata> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW;
    let file = match file::open(path, flags) {
        // A symbolic link or a FIFO: replace it.
        Err(_) if path.symlink_metadata().is_ok_and(|found| !found.is_file()) => {
            remove(path)?;
            file::open(path, flags)?
        }
        file => file?,
    };
    file.write_all_at(bytes, 0)?;
    let metadata = file.metadata()?;
    if metadata.len() == bytes.len() as u64 {
        return Ok(metadata);
    }
    file.set_len(bytes.len() as u64)?;
    file.metadata()
}

/// Truncates a file, which the next call reuses.
pub(super) fn empty(path: &Path) -> io::Result<()> {
    match file::open(path, OFlags::WRONLY | OFlags::NOFOLLOW) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        file => file?.set_len(0),
    }
}

/// Removes a file that may be gone already.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        outcome => outcome,
    }
}

pub(super) fn index_dir(dir: &Path) -> PathBuf {
    dir.join(".headcni")
}

pub(super) fn owners_dir(dir: &Path) -> PathBuf {
    dir.join(".headcni/owners")
}

pub(super) fn pending_path(dir: &Path) -> PathBuf {
    dir.join(".headcni/pending")
}
