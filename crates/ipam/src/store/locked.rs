//! Exclusive access to a lease store.

mod allocate;
mod commit;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use super::address_file::{self, AddressHolder};
use super::file;
use super::owner::LeaseOwner;
use super::rebuild::rebuild_index;
use super::record::{LeaseRecord, owners_dir};
use super::stamp::{Stamp, directory_mtime, set_past_mtime};
use super::{LeaseRequest, StoreError, StoredLease, Usage, fault_injection, io_error};
use crate::range::{Range, RangeSet};
use commit::LinkOutcome;

/// Attempts to lease if the index turns out to be wrong; it is rebuilt in between.
const MAX_TRIES: usize = 3;

/// A lease store under its lock. The index is valid; dropping it unlocks the store.
#[derive(Debug)]
pub struct LockedStore {
    dir: PathBuf,
    lock: File,
    boot: String,
    index: Index,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Index {
    Valid,
    /// There is no space for an index. Leases can still be released, by reading every file.
    DiskFull,
}

impl LockedStore {
    /// `boot` is the current boot ID, if it is known.
    pub(super) fn new(dir: &Path, lock: File, boot: Option<String>) -> Result<Self, StoreError> {
        let stamp = Stamp::read(&lock).map_err(io_error("read the lock of", dir))?;
        let last_boot = stamp.as_ref().map(|stamp| stamp.boot.clone());
        let mut store = Self {
            dir: dir.to_owned(),
            lock,
            // With an unknown boot ID, assume the last one: no lease becomes stale by mistake.
            boot: boot
                .or_else(|| last_boot.clone())
                .unwrap_or("unknown".to_owned()),
            index: Index::Valid,
        };
        let is_valid = store.mtimes().is_ok_and(|mtimes| {
            let stamped = stamp.as_ref().and_then(|stamp| stamp.mtimes.as_ref());
            last_boot.as_ref() == Some(&store.boot) && stamped == Some(&mtimes)
        });
        if !is_valid {
            store.rebuild_index(last_boot.as_deref())?;
        }
        Ok(store)
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    fn rebuild_index(&mut self, last_boot: Option<&str>) -> Result<(), StoreError> {
        let outcome =
            rebuild_index(&self.dir, &self.boot, last_boot).and_then(|()| self.write_stamp());
        self.index = match outcome {
            Err(error) if error.is_full_disk() => Index::DiskFull,
            outcome => {
                outcome?;
                Index::Valid
            }
        };
        Ok(())
    }

    /// Leases one address from each set, or none at all.
    pub(crate) fn lease(
        &mut self,
        request: &LeaseRequest<'_>,
    ) -> Result<Vec<(IpAddr, Range)>, StoreError> {
        let owner = request.owner;
        self.check_disk_space()?;
        if let Some(lease) = self.lease_of(owner)? {
            return Err(StoreError::AlreadyLeased {
                owner: owner.to_string(),
                addresses: list(&lease.addresses),
            });
        }
        let name = owner.file_name().ok_or_else(|| StoreError::LongName {
            owner: owner.to_string(),
        })?;
        for _ in 0..MAX_TRIES {
            let mut allocation = self.allocate(request)?;
            match self.commit_lease(request, &name, &mut allocation)? {
                LinkOutcome::All => return Ok(allocation.leases),
                // The index misses a file.
                LinkOutcome::NameTaken => self.rebuild_index(None)?,
            }
        }
        Err(io_error("lease an address in", &self.dir)(
            ErrorKind::AlreadyExists.into(),
        ))
    }

    /// Fails if the disk has no space for the index, and so none for a lease.
    pub(crate) fn check_disk_space(&self) -> Result<(), StoreError> {
        match self.index {
            Index::Valid => Ok(()),
            Index::DiskFull => Err(io_error("lease an address in", &self.dir)(
                ErrorKind::StorageFull.into(),
            )),
        }
    }

    /// Releases the addresses of an owner and returns them; none if it has no lease.
    pub(crate) fn release(&mut self, owner: &LeaseOwner) -> Result<Vec<IpAddr>, StoreError> {
        let Some(lease) = self.lease_of(owner)? else {
            return Ok(Vec::new());
        };
        self.commit_release(std::slice::from_ref(&lease))?;
        Ok(lease.addresses)
    }

    /// The lease of an owner.
    pub(crate) fn lease_of(
        &mut self,
        owner: &LeaseOwner,
    ) -> Result<Option<StoredLease>, StoreError> {
        // Files of old versions of host-local name only the container.
        for owner in [owner.clone(), owner.without_ifname()] {
            let lease = match owner.file_name() {
                Some(name) if self.index == Index::Valid => self.look_up_record(&owner, &name)?,
                // This name can't have a record, or there is no index.
                _ => self.scan_for(&owner)?,
            };
            if lease.is_some() {
                return Ok(lease);
            }
        }
        Ok(None)
    }

    /// Reads the owner's record. If it contradicts the address files, rebuilds the index first.
    fn look_up_record(
        &mut self,
        owner: &LeaseOwner,
        name: &str,
    ) -> Result<Option<StoredLease>, StoreError> {
        let path = owners_dir(&self.dir).join(name);
        let mut record = match file::read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            found => LeaseRecord::parse(&found.map_err(io_error("read", &path))?),
        };
        if !self.matches_files(owner, record.as_ref())? {
            self.rebuild_index(None)?;
            if self.index == Index::DiskFull {
                return self.scan_for(owner);
            }
            record = LeaseRecord::read(&path).map_err(io_error("read", &path))?;
        }
        Ok(record.map(|record| StoredLease {
            owner: owner.clone(),
            addresses: record.ips(),
            pod: record.pod,
        }))
    }

    /// Whether a record is complete, of this owner, and matches the address files.
    fn matches_files(
        &self,
        owner: &LeaseOwner,
        record: Option<&LeaseRecord>,
    ) -> Result<bool, StoreError> {
        let Some(record) = record.filter(|record| record.is_of(owner)) else {
            return Ok(false);
        };
        for address in record.ips() {
            if self.owner_of(address)?.as_ref() != Some(owner) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Finds the owner's lease by reading every address file.
    fn scan_for(&self, owner: &LeaseOwner) -> Result<Option<StoredLease>, StoreError> {
        let mut by_owner = self.scan_by_owner()?;
        Ok(by_owner.remove(owner).map(|addresses| StoredLease {
            owner: owner.clone(),
            addresses,
            pod: None,
        }))
    }

    fn scan_by_owner(&self) -> Result<BTreeMap<LeaseOwner, Vec<IpAddr>>, StoreError> {
        let mut by_owner: BTreeMap<LeaseOwner, Vec<IpAddr>> = BTreeMap::new();
        let mut addresses = self.addresses()?;
        addresses.sort_unstable();
        for address in addresses {
            if let Some(owner) = self.owner_of(address)? {
                by_owner.entry(owner).or_default().push(address);
            }
        }
        Ok(by_owner)
    }

    /// The owner of an address.
    fn owner_of(&self, address: IpAddr) -> Result<Option<LeaseOwner>, StoreError> {
        match self.holder_of(address)? {
            AddressHolder::LeaseOwner(owner) => Ok(Some(owner)),
            AddressHolder::Free | AddressHolder::TornFile | AddressHolder::Foreign => Ok(None),
        }
    }

    fn holder_of(&self, address: IpAddr) -> Result<AddressHolder, StoreError> {
        address_file::holder(&self.dir, address)
            .map_err(io_error("read", &address_file::path(&self.dir, address)))
    }

    /// All leases. Reads every address file.
    pub(crate) fn leases(&mut self) -> Result<Vec<StoredLease>, StoreError> {
        let by_owner = self.scan_by_owner()?;
        by_owner
            .into_iter()
            .map(|(owner, addresses)| {
                let recorded = match owner.file_name() {
                    Some(name) if self.index == Index::Valid => {
                        self.look_up_record(&owner, &name)?
                    }
                    _ => None,
                };
                Ok(recorded.unwrap_or(StoredLease {
                    owner,
                    addresses,
                    pod: None,
                }))
            })
            .collect()
    }

    /// Releases the leases of all owners that are not live, and returns them.
    pub(crate) fn release_orphans(
        &mut self,
        is_live: &dyn Fn(&LeaseOwner) -> bool,
    ) -> Result<Vec<StoredLease>, StoreError> {
        let mut orphans = self.leases()?;
        orphans.retain(|lease| !is_live(&lease.owner));
        self.commit_release(&orphans)?;
        Ok(orphans)
    }

    /// Leased addresses and capacity of a range set.
    pub(crate) fn usage(&self, set: &RangeSet) -> Result<Usage, StoreError> {
        let mut usage = Usage {
            leased: 0,
            capacity: 0,
        };
        for range in set.ranges() {
            usage.capacity = usage.capacity.saturating_add(range.capacity());
            usage.leased += self.leased_in(range)?;
        }
        Ok(usage)
    }

    /// Runs a change between two stamps. If it fails or the process dies, the stamp makes the next
    /// call rebuild the index.
    ///
    /// A change that `work` completed is final: an index update that fails is repaired by the next
    /// call.
    fn transaction<T>(
        &self,
        work: impl FnOnce() -> Result<(T, IndexUpdate), StoreError>,
    ) -> Result<T, StoreError> {
        let stamp = Stamp {
            boot: self.boot.clone(),
            mtimes: None,
        };
        match stamp
            .write(&self.lock)
            .map_err(io_error("write the lock of", &self.dir))
        {
            // Without an index the stamp proves nothing.
            Err(_) if self.index == Index::DiskFull => {}
            outcome => outcome?,
        }
        fault_injection::checkpoint(&self.dir)?;
        let (done, index) = work()?;
        fault_injection::checkpoint(&self.dir)?;
        if index == IndexUpdate::Done && self.index == Index::Valid {
            match self.write_stamp() {
                Err(error) if error.is_crash() => return Err(error),
                _ => {}
            }
        }
        Ok(done)
    }

    /// Certifies that the index is valid.
    fn write_stamp(&self) -> Result<(), StoreError> {
        let mark = |dir: &Path| set_past_mtime(dir).map_err(io_error("set the time of", dir));
        let of_owners = mark(&owners_dir(&self.dir))?;
        let of_store = mark(&self.dir)?;
        fault_injection::checkpoint(&self.dir)?;
        let stamp = Stamp {
            boot: self.boot.clone(),
            mtimes: Some([of_store, of_owners]),
        };
        stamp
            .write(&self.lock)
            .map_err(io_error("write the lock of", &self.dir))
    }

    /// The current mtimes of the directories.
    fn mtimes(&self) -> Result<[(i64, i64); 2], StoreError> {
        let owners = owners_dir(&self.dir);
        let mark = |dir: &Path| directory_mtime(dir).map_err(io_error("stat", dir));
        Ok([mark(&self.dir)?, mark(&owners)?])
    }

    fn addresses(&self) -> Result<Vec<IpAddr>, StoreError> {
        let names = fs::read_dir(&self.dir).and_then(|entries| {
            entries
                .map(|entry| entry.map(|entry| entry.file_name()))
                .collect::<Result<Vec<_>, _>>()
        });
        let names = names.map_err(io_error("list", &self.dir))?;
        Ok(names
            .iter()
            .filter_map(|name| name.to_str()?.parse().ok())
            .collect())
    }
}

#[derive(Clone, Copy, PartialEq)]
enum IndexUpdate {
    Done,
    Failed,
}

fn list<T: ToString>(items: &[T]) -> String {
    items
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}
