//! Leases as somebody sees them who doesn't hold the store: nobody waits for him.

use std::fs;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::Path;
use std::time::SystemTime;

use super::address_file::{Identity, path};
use super::owner::Owner;
use super::session::Session;
use super::{Store, StoreError, file, io_error};

/// The file of a leased address, seen in passing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenLease {
    /// The address.
    pub address: IpAddr,
    /// Who has it.
    pub owner: Owner,
    /// When it was leased, by the clock of that time; `None` where that isn't known.
    pub modified: Option<SystemTime>,
    /// Tells this file from another one that takes its name later.
    pub stamp: String,
}

/// Whether there is a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// There is a directory.
    There,
    /// There is none.
    Absent,
}

impl Store {
    /// Shows every lease, without the store's lock. Files that name no owner are passed over.
    pub fn look(&self, show: &mut dyn FnMut(SeenLease)) -> Result<Presence, StoreError> {
        self.each_address(&mut |address| {
            if let Some(seen) = seen_at(&self.dir, address)? {
                show(seen);
            }
            Ok(())
        })
    }

    /// Shows every address that has a file, without the store's lock.
    pub fn addresses(&self, show: &mut dyn FnMut(IpAddr)) -> Result<Presence, StoreError> {
        self.each_address(&mut |address| {
            show(address);
            Ok(())
        })
    }

    /// The lease of one address, without the store's lock.
    pub fn lease_at(&self, address: IpAddr) -> Result<Option<SeenLease>, StoreError> {
        seen_at(&self.dir, address)
    }

    /// Where the leases are.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    fn each_address(
        &self,
        visit: &mut dyn FnMut(IpAddr) -> Result<(), StoreError>,
    ) -> Result<Presence, StoreError> {
        let entries = match fs::read_dir(&self.dir) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Presence::Absent),
            entries => entries.map_err(io_error("list", &self.dir))?,
        };
        for entry in entries {
            let name = entry.map_err(io_error("list", &self.dir))?.file_name();
            if let Some(address) = name.to_str().and_then(|name| name.parse().ok()) {
                visit(address)?;
            }
        }
        Ok(Presence::There)
    }
}

impl Session {
    /// Releases what the owner has, if that is the very lease that was seen; whether it was.
    pub fn release_seen(&mut self, owner: &Owner, seen: &[SeenLease]) -> Result<bool, StoreError> {
        let Some(lease) = self.lease_of(owner)? else {
            return Ok(false);
        };
        if lease.owner != *owner || lease.addresses.len() != seen.len() {
            return Ok(false);
        }
        for address in &lease.addresses {
            let now = seen_at(self.dir(), *address)?;
            if !seen.iter().any(|then| Some(then) == now.as_ref()) {
                return Ok(false);
            }
        }
        self.release(owner).map(|released| !released.is_empty())
    }
}

fn seen_at(dir: &Path, address: IpAddr) -> Result<Option<SeenLease>, StoreError> {
    let path = path(dir, address);
    let metadata = match fs::symlink_metadata(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        metadata => metadata.map_err(io_error("look at", &path))?,
    };
    if !metadata.is_file() {
        return Ok(None);
    }
    let bytes = match file::read(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        bytes => bytes.map_err(io_error("read", &path))?,
    };
    let owner = Owner::from_text(&String::from_utf8_lossy(&bytes));
    Ok(owner.map(|owner| SeenLease {
        address,
        owner,
        modified: metadata.modified().ok(),
        stamp: Identity::of(&metadata).0,
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
    use crate::strategy::Strategy;

    fn owner(container: &str) -> Owner {
        let container = ContainerId::new(container).unwrap();
        Owner::new(&container, &IfName::new("eth0").unwrap())
    }

    fn store(directory: &TempDir) -> Store {
        let network = NetworkName::new("net").unwrap();
        Store::new(directory.path(), &network, Duration::from_secs(5))
    }

    fn lease(store: &Store, owner: &Owner) {
        let range = Range::new("10.0.0.0/24".parse().unwrap(), None, None, None).unwrap();
        let request = LeaseRequest {
            owner,
            pod: None,
            sets: &[RangeSet::new(vec![range]).unwrap()],
            requested: &[],
            strategy: Strategy::DensePack,
            is_live: None,
        };
        store.open().unwrap().lease(&request).unwrap();
    }

    fn look(store: &Store) -> Vec<SeenLease> {
        let mut seen = Vec::new();
        store.look(&mut |lease| seen.push(lease)).unwrap();
        seen.sort_by_key(|lease| lease.address);
        seen
    }

    #[test]
    fn leases_are_seen_while_somebody_holds_the_store() {
        let directory = TempDir::new().unwrap();
        let store = store(&directory);
        assert_eq!(store.look(&mut |_| ()).unwrap(), Presence::Absent);
        lease(&store, &owner("a"));
        lease(&store, &owner("b"));
        let session = store.open().unwrap();
        let seen = look(&store);
        let owners: Vec<_> = seen.iter().map(|lease| lease.owner.clone()).collect();
        assert_eq!(owners, [owner("a"), owner("b")]);
        let mut count = 0;
        store.addresses(&mut |_| count += 1).unwrap();
        assert_eq!(count, 2);
        drop(session);
    }

    #[test]
    fn only_the_lease_that_was_seen_is_released() {
        let directory = TempDir::new().unwrap();
        let store = store(&directory);
        lease(&store, &owner("a"));
        lease(&store, &owner("b"));
        // Two that are leased within a tick of the kernel's clock have the same time.
        let file = fs::File::open(store.dir().join("10.0.0.2")).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        let old = look(&store);
        let mut session = store.open().unwrap();
        session.release(&owner("a")).unwrap();
        drop(session);
        // The same address, for the same owner, by a file with another time.
        lease(&store, &owner("a"));

        let mut session = store.open().unwrap();
        assert!(!session.release_seen(&owner("a"), &old[..1]).unwrap());
        assert!(!session.release_seen(&owner("a"), &[]).unwrap());
        assert!(!session.release_seen(&owner("c"), &old[..1]).unwrap());
        assert_eq!(look(&store).len(), 2);
        assert!(session.release_seen(&owner("b"), &old[1..]).unwrap());
        let left: Vec<_> = look(&store).into_iter().map(|lease| lease.owner).collect();
        assert_eq!(left, [owner("a")]);
    }
}
