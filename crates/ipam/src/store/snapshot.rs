//! Reads leases without the store's lock, so that no CNI call has to wait.

use std::fs;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::Path;
use std::time::SystemTime;

use super::address_file::{FileIdentity, path};
use super::locked::LockedStore;
use super::owner::LeaseOwner;
use super::{LeaseStore, StoreError, file, io_error};

/// The file of a leased address at one point in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseSnapshot {
    /// The leased address.
    pub address: IpAddr,
    /// The container interface that holds it.
    pub owner: LeaseOwner,
    /// The file's mtime, which is when it was leased.
    pub modified: Option<SystemTime>,
    /// Inode and mtime: differs if the address is leased again.
    pub stamp: String,
}

/// Whether the store's directory exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorePresence {
    /// It exists.
    Present,
    /// It does not exist.
    Absent,
}

impl LeaseStore {
    /// Visits every lease without locking the store. Skips files that name no owner.
    pub fn for_each_lease(
        &self,
        visit: &mut dyn FnMut(LeaseSnapshot),
    ) -> Result<StorePresence, StoreError> {
        self.each_address(&mut |address| {
            if let Some(seen) = snapshot_at(&self.dir, address)? {
                visit(seen);
            }
            Ok(())
        })
    }

    /// Visits every address that has a file, without locking the store.
    pub fn for_each_address(
        &self,
        visit: &mut dyn FnMut(IpAddr),
    ) -> Result<StorePresence, StoreError> {
        self.each_address(&mut |address| {
            visit(address);
            Ok(())
        })
    }

    /// The lease of one address, read without locking the store.
    pub fn lease_at(&self, address: IpAddr) -> Result<Option<LeaseSnapshot>, StoreError> {
        snapshot_at(&self.dir, address)
    }

    /// The store's directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    fn each_address(
        &self,
        visit: &mut dyn FnMut(IpAddr) -> Result<(), StoreError>,
    ) -> Result<StorePresence, StoreError> {
        let entries = match fs::read_dir(&self.dir) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(StorePresence::Absent),
            entries => entries.map_err(io_error("list", &self.dir))?,
        };
        for entry in entries {
            let name = entry.map_err(io_error("list", &self.dir))?.file_name();
            if let Some(address) = name.to_str().and_then(|name| name.parse().ok()) {
                visit(address)?;
            }
        }
        Ok(StorePresence::Present)
    }
}

impl LockedStore {
    /// Releases the owner's lease if it is unchanged since the snapshot; returns whether it did.
    pub fn release_if_unchanged(
        &mut self,
        owner: &LeaseOwner,
        seen: &[LeaseSnapshot],
    ) -> Result<bool, StoreError> {
        let Some(lease) = self.lease_of(owner)? else {
            return Ok(false);
        };
        if lease.owner != *owner || lease.addresses.len() != seen.len() {
            return Ok(false);
        }
        for address in &lease.addresses {
            let now = snapshot_at(self.dir(), *address)?;
            if !seen.iter().any(|then| Some(then) == now.as_ref()) {
                return Ok(false);
            }
        }
        self.release(owner).map(|released| !released.is_empty())
    }
}

fn snapshot_at(dir: &Path, address: IpAddr) -> Result<Option<LeaseSnapshot>, StoreError> {
    let path = path(dir, address);
    let metadata = match fs::symlink_metadata(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        metadata => metadata.map_err(io_error("stat", &path))?,
    };
    if !metadata.is_file() {
        return Ok(None);
    }
    let bytes = match file::read(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        bytes => bytes.map_err(io_error("read", &path))?,
    };
    let owner = LeaseOwner::from_text(&String::from_utf8_lossy(&bytes));
    Ok(owner.map(|owner| LeaseSnapshot {
        address,
        owner,
        modified: metadata.modified().ok(),
        stamp: FileIdentity::of(&metadata).0,
    }))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use cni::{ContainerId, IfName, NetworkName};
    use tempfile::TempDir;

    use super::*;
    use crate::range::{Range, RangeSet};
    use crate::store::LeaseRequest;
    use crate::strategy::AllocationStrategy;

    fn owner(container: &str) -> LeaseOwner {
        let container = ContainerId::new(container).unwrap();
        LeaseOwner::new(&container, &IfName::new("eth0").unwrap())
    }

    fn store(directory: &TempDir) -> LeaseStore {
        let network = NetworkName::new("net").unwrap();
        LeaseStore::new(directory.path(), &network, Duration::from_secs(5))
    }

    fn lease(store: &LeaseStore, owner: &LeaseOwner) {
        let range = Range::new("10.0.0.0/24".parse().unwrap(), None, None, None).unwrap();
        let request = LeaseRequest {
            owner,
            pod: None,
            sets: &[RangeSet::new(vec![range]).unwrap()],
            requested: &[],
            strategy: AllocationStrategy::DensePack,
        };
        store.open().unwrap().lease(&request).unwrap();
    }

    fn snapshot(store: &LeaseStore) -> Vec<LeaseSnapshot> {
        let mut seen = Vec::new();
        store.for_each_lease(&mut |lease| seen.push(lease)).unwrap();
        seen.sort_by_key(|lease| lease.address);
        seen
    }

    #[test]
    fn leases_are_readable_while_the_store_is_locked() {
        let directory = TempDir::new().unwrap();
        let store = store(&directory);
        assert_eq!(
            store.for_each_lease(&mut |_| ()).unwrap(),
            StorePresence::Absent
        );
        lease(&store, &owner("a"));
        lease(&store, &owner("b"));
        let locked = store.open().unwrap();
        let seen = snapshot(&store);
        let owners: Vec<_> = seen.iter().map(|lease| lease.owner.clone()).collect();
        assert_eq!(owners, [owner("a"), owner("b")]);
        let mut count = 0;
        store.for_each_address(&mut |_| count += 1).unwrap();
        assert_eq!(count, 2);
        drop(locked);
    }

    #[test]
    fn a_lease_that_changed_since_the_snapshot_is_not_released() {
        let directory = TempDir::new().unwrap();
        let store = store(&directory);
        lease(&store, &owner("a"));
        lease(&store, &owner("b"));
        // Leases within one clock tick have the same mtime.
        let file = fs::File::open(store.dir().join("10.0.0.2")).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        let old = snapshot(&store);
        let mut locked = store.open().unwrap();
        locked.release(&owner("a")).unwrap();
        drop(locked);
        // The same address and owner, but a file with another mtime.
        lease(&store, &owner("a"));

        let mut locked = store.open().unwrap();
        assert!(!locked.release_if_unchanged(&owner("a"), &old[..1]).unwrap());
        assert!(!locked.release_if_unchanged(&owner("a"), &[]).unwrap());
        assert!(!locked.release_if_unchanged(&owner("c"), &old[..1]).unwrap());
        assert_eq!(snapshot(&store).len(), 2);
        assert!(locked.release_if_unchanged(&owner("b"), &old[1..]).unwrap());
        let remaining: Vec<_> = snapshot(&store)
            .into_iter()
            .map(|lease| lease.owner)
            .collect();
        assert_eq!(remaining, [owner("a")]);
    }
}
