//! Exclusive access to a store, for as long as it lives.

mod choosing;
mod writing;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use super::address_file::{self, Holder};
use super::file;
use super::owner::Owner;
use super::reconcile::reconcile;
use super::record::{Record, owners_dir};
use super::stamp::{Stamp, directory_mtime, mark_directory};
use super::{Lease, LeaseRequest, StoreError, Usage, fuse, io_error};
use crate::range::{Range, RangeSet};
use writing::Linked;

/// How often a lease is tried when the index turns out to be wrong: it is made anew in between.
const MAX_TRIES: usize = 3;

/// Exclusive access to a store.
#[derive(Debug)]
pub struct Session {
    dir: PathBuf,
    lock: File,
    boot: String,
    index: Index,
}

/// Whether owners can be looked up in the index.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Index {
    Right,
    /// A full disk has no room for one. What is leased can be released all the same, by looking
    /// at every file, as host-local does.
    NoRoom,
}

impl Session {
    /// `boot` is the id of this boot; `None` where it can't be told.
    pub(super) fn begin(dir: &Path, lock: File, boot: Option<String>) -> Result<Self, StoreError> {
        let stamp = Stamp::read(&lock).map_err(io_error("read the lock of", dir))?;
        let last_boot = stamp.as_ref().map(|stamp| stamp.boot.clone());
        let mut session = Self {
            dir: dir.to_owned(),
            lock,
            // A boot that can't be told is taken for the last one: nothing is void by mistake.
            boot: boot
                .or_else(|| last_boot.clone())
                .unwrap_or("unknown".to_owned()),
            index: Index::Right,
        };
        let is_right = session.marks().is_ok_and(|marks| {
            let left = stamp.as_ref().and_then(|stamp| stamp.marks.as_ref());
            last_boot.as_ref() == Some(&session.boot) && left == Some(&marks)
        });
        if !is_right {
            session.make_index_anew(last_boot.as_deref())?;
        }
        Ok(session)
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    fn make_index_anew(&mut self, last_boot: Option<&str>) -> Result<(), StoreError> {
        let outcome = reconcile(&self.dir, &self.boot, last_boot).and_then(|()| self.settle());
        self.index = match outcome {
            Err(error) if error.is_full_disk() => Index::NoRoom,
            outcome => {
                outcome?;
                Index::Right
            }
        };
        Ok(())
    }

    /// Leases one address from each set, or none at all.
    pub fn lease(
        &mut self,
        request: &LeaseRequest<'_>,
    ) -> Result<Vec<(IpAddr, Range)>, StoreError> {
        let owner = request.owner;
        self.check_room()?;
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
            let mut choice = self.choose(request)?;
            match self.write_lease(request, &name, &mut choice)? {
                Linked::All => return Ok(choice.leases),
                // A file that the index doesn't know.
                Linked::NameTaken => self.make_index_anew(None)?,
            }
        }
        Err(io_error("lease an address in", &self.dir)(
            ErrorKind::AlreadyExists.into(),
        ))
    }

    /// Fails if the disk has no room for a lease.
    pub fn check_room(&self) -> Result<(), StoreError> {
        match self.index {
            Index::Right => Ok(()),
            Index::NoRoom => Err(io_error("lease an address in", &self.dir)(
                ErrorKind::StorageFull.into(),
            )),
        }
    }

    /// Releases all that the owner has. Nothing, if it has nothing.
    pub fn release(&mut self, owner: &Owner) -> Result<Vec<IpAddr>, StoreError> {
        let Some(lease) = self.lease_of(owner)? else {
            return Ok(Vec::new());
        };
        self.remove_leases(std::slice::from_ref(&lease))?;
        Ok(lease.addresses)
    }

    /// What the owner has.
    pub fn lease_of(&mut self, owner: &Owner) -> Result<Option<Lease>, StoreError> {
        // Old files name the container alone, and then for all of its interfaces.
        for owner in [owner.clone(), owner.without_ifname()] {
            let lease = match owner.file_name() {
                Some(name) if self.index == Index::Right => self.look_up(&owner, &name)?,
                // No record can have that name, or there are no records.
                _ => self.search(&owner)?,
            };
            if lease.is_some() {
                return Ok(lease);
            }
        }
        Ok(None)
    }

    /// What the index says. If the files say otherwise, it is made anew first.
    fn look_up(&mut self, owner: &Owner, name: &str) -> Result<Option<Lease>, StoreError> {
        let path = owners_dir(&self.dir).join(name);
        let mut record = match file::read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            found => Record::parse(&found.map_err(io_error("read", &path))?),
        };
        if !self.is_true(owner, record.as_ref())? {
            self.make_index_anew(None)?;
            if self.index == Index::NoRoom {
                return self.search(owner);
            }
            record = Record::read(&path).map_err(io_error("read", &path))?;
        }
        Ok(record.map(|record| Lease {
            owner: owner.clone(),
            addresses: record.ips(),
            pod: record.pod,
        }))
    }

    /// Whether a record is whole, this owner's, and of files that are there.
    fn is_true(&self, owner: &Owner, record: Option<&Record>) -> Result<bool, StoreError> {
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

    /// What the files say. Reads all of them.
    fn search(&self, owner: &Owner) -> Result<Option<Lease>, StoreError> {
        let mut by_owner = self.by_owner()?;
        Ok(by_owner.remove(owner).map(|addresses| Lease {
            owner: owner.clone(),
            addresses,
            pod: None,
        }))
    }

    fn by_owner(&self) -> Result<BTreeMap<Owner, Vec<IpAddr>>, StoreError> {
        let mut by_owner: BTreeMap<Owner, Vec<IpAddr>> = BTreeMap::new();
        let mut addresses = self.addresses()?;
        addresses.sort_unstable();
        for address in addresses {
            if let Some(owner) = self.owner_of(address)? {
                by_owner.entry(owner).or_default().push(address);
            }
        }
        Ok(by_owner)
    }

    /// Who has the address.
    pub fn owner_of(&self, address: IpAddr) -> Result<Option<Owner>, StoreError> {
        match self.holder(address)? {
            Holder::Owner(owner) => Ok(Some(owner)),
            Holder::Nobody | Holder::TornFile | Holder::Foreign => Ok(None),
        }
    }

    fn holder(&self, address: IpAddr) -> Result<Holder, StoreError> {
        address_file::holder(&self.dir, address)
            .map_err(io_error("read", &address_file::path(&self.dir, address)))
    }

    /// Everything that is leased. Reads every file.
    pub fn leases(&mut self) -> Result<Vec<Lease>, StoreError> {
        let by_owner = self.by_owner()?;
        by_owner
            .into_iter()
            .map(|(owner, addresses)| {
                let recorded = match owner.file_name() {
                    Some(name) if self.index == Index::Right => self.look_up(&owner, &name)?,
                    _ => None,
                };
                Ok(recorded.unwrap_or(Lease {
                    owner,
                    addresses,
                    pod: None,
                }))
            })
            .collect()
    }

    /// Releases everything whose owner doesn't live, and tells what that was.
    pub fn collect(&mut self, is_live: &dyn Fn(&Owner) -> bool) -> Result<Vec<Lease>, StoreError> {
        let mut dead = self.leases()?;
        dead.retain(|lease| !is_live(&lease.owner));
        self.remove_leases(&dead)?;
        Ok(dead)
    }

    /// How much of a set is leased.
    pub fn usage(&self, set: &RangeSet) -> Result<Usage, StoreError> {
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

    /// Does a change. If it fails or we die in it, the stamp tells the next one to look closely.
    ///
    /// The change is done when `work` has done it: what is wrong with the index afterwards is
    /// mended by whoever comes next.
    fn change<T>(
        &self,
        work: impl FnOnce() -> Result<(T, Upkeep), StoreError>,
    ) -> Result<T, StoreError> {
        let stamp = Stamp {
            boot: self.boot.clone(),
            marks: None,
        };
        match stamp
            .write(&self.lock)
            .map_err(io_error("write the lock of", &self.dir))
        {
            // Without an index there is no stamp that could prove anything.
            Err(_) if self.index == Index::NoRoom => {}
            outcome => outcome?,
        }
        fuse::burn(&self.dir)?;
        let (done, upkeep) = work()?;
        fuse::burn(&self.dir)?;
        if upkeep == Upkeep::Done && self.index == Index::Right {
            match self.settle() {
                Err(error) if error.is_crash() => return Err(error),
                _ => {}
            }
        }
        Ok(done)
    }

    /// Proves to whoever comes next that the index is right.
    fn settle(&self) -> Result<(), StoreError> {
        let mark = |dir: &Path| mark_directory(dir).map_err(io_error("set the time of", dir));
        let of_owners = mark(&owners_dir(&self.dir))?;
        let of_store = mark(&self.dir)?;
        fuse::burn(&self.dir)?;
        let stamp = Stamp {
            boot: self.boot.clone(),
            marks: Some([of_store, of_owners]),
        };
        stamp
            .write(&self.lock)
            .map_err(io_error("write the lock of", &self.dir))
    }

    /// The times of the directories, which change with every file that comes or goes.
    fn marks(&self) -> Result<[(i64, i64); 2], StoreError> {
        let owners = owners_dir(&self.dir);
        let mark = |dir: &Path| directory_mtime(dir).map_err(io_error("look at", dir));
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

/// Whether the index was kept up with a change.
#[derive(Clone, Copy, PartialEq)]
enum Upkeep {
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
