//! Exclusive access to a store, for as long as it lives.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use ipnet::IpNet;

use super::address_file::{self, Holder, Unnamed};
use super::owner::Owner;
use super::reconcile::reconcile;
use super::record::{Record, RecordedAddress, owners_dir, pending_path, remove, replace};
use super::stamp::{Stamp, directory_mtime, mark_directory};
use super::used::{self, Bit};
use super::{Lease, LeaseRequest, StoreError, Usage, io_error};
use super::{boot, fuse};
use crate::bitmap::Bitmap;
use crate::range::{Range, RangeSet};
use crate::strategy::{Used, count_leased};

/// How often a lease is tried when the index turns out to be wrong: it is made anew in between.
const MAX_TRIES: usize = 3;

/// Exclusive access to a store. Whoever has it may trust the index.
#[derive(Debug)]
pub struct Session {
    dir: PathBuf,
    lock: File,
    boot: String,
}

impl Session {
    pub(super) fn begin(dir: &Path, lock: File) -> Result<Self, StoreError> {
        let session = Self {
            dir: dir.to_owned(),
            lock,
            boot: boot::id(),
        };
        let stamp = Stamp::read(&session.lock).map_err(io_error("read the lock of", dir))?;
        let mtime = directory_mtime(dir).map_err(io_error("look at", dir))?;
        let is_right = stamp
            .as_ref()
            .is_some_and(|stamp| stamp.boot == session.boot && stamp.mtime == Some(mtime));
        if !is_right {
            session.make_index_anew(stamp.as_ref())?;
        }
        Ok(session)
    }

    fn make_index_anew(&self, stamp: Option<&Stamp>) -> Result<(), StoreError> {
        reconcile(
            &self.dir,
            &self.boot,
            stamp.map(|stamp| stamp.boot.as_str()),
        )?;
        self.settle()
    }

    /// Leases one address from each set, or none at all.
    pub fn lease(&self, request: &LeaseRequest<'_>) -> Result<Vec<(IpAddr, Range)>, StoreError> {
        let owner = request.owner;
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
            let chosen = self.choose(request)?;
            let addresses: Vec<IpAddr> = chosen.iter().map(|(address, _)| *address).collect();
            match self.change(|| self.write_lease(request, &name, &addresses))? {
                Linked::All => return Ok(chosen),
                // A file that the index doesn't know.
                Linked::NameTaken => self.make_index_anew(None)?,
            }
        }
        Err(io_error("lease an address in", &self.dir)(
            ErrorKind::AlreadyExists.into(),
        ))
    }

    /// Releases all that the owner has. Nothing, if it has nothing.
    pub fn release(&self, owner: &Owner) -> Result<Vec<IpAddr>, StoreError> {
        let Some(lease) = self.lease_of(owner)? else {
            return Ok(Vec::new());
        };
        self.change(|| self.remove_lease(&lease))?;
        Ok(lease.addresses)
    }

    /// What the owner has.
    pub fn lease_of(&self, owner: &Owner) -> Result<Option<Lease>, StoreError> {
        // Old files name the container alone, and then for all of its interfaces.
        for owner in [owner.clone(), owner.without_ifname()] {
            let Some(name) = owner.file_name() else {
                continue;
            };
            let path = owners_dir(&self.dir).join(name);
            let Some(record) = Record::read(&path).map_err(io_error("read", &path))? else {
                continue;
            };
            let mut addresses = Vec::new();
            for address in record.ips() {
                if self.owner_of(address)?.as_ref() == Some(&owner) {
                    addresses.push(address);
                }
            }
            if !addresses.is_empty() {
                return Ok(Some(Lease {
                    owner,
                    addresses,
                    pod: record.pod,
                }));
            }
        }
        Ok(None)
    }

    /// Who has the address.
    pub fn owner_of(&self, address: IpAddr) -> Result<Option<Owner>, StoreError> {
        let holder = address_file::holder(&self.dir, address)
            .map_err(io_error("read", &address_file::path(&self.dir, address)))?;
        match holder {
            Holder::Owner(owner) => Ok(Some(owner)),
            Holder::Nobody | Holder::TornFile => Ok(None),
        }
    }

    /// Everything that is leased. Reads every file.
    pub fn leases(&self) -> Result<Vec<Lease>, StoreError> {
        let mut by_owner: BTreeMap<Owner, Vec<IpAddr>> = BTreeMap::new();
        for address in self.addresses()? {
            if let Some(owner) = self.owner_of(address)? {
                by_owner.entry(owner).or_default().push(address);
            }
        }
        by_owner
            .into_iter()
            .map(|(owner, mut addresses)| {
                addresses.sort_unstable();
                let lease = self.lease_of(&owner)?.filter(|lease| lease.owner == owner);
                Ok(lease.unwrap_or(Lease {
                    owner,
                    addresses,
                    pod: None,
                }))
            })
            .collect()
    }

    /// Releases everything whose owner doesn't live, and tells what that was.
    pub fn collect(&self, is_live: &dyn Fn(&Owner) -> bool) -> Result<Vec<Lease>, StoreError> {
        let dead: Vec<Lease> = self
            .leases()?
            .into_iter()
            .filter(|lease| !is_live(&lease.owner))
            .collect();
        if !dead.is_empty() {
            self.change(|| dead.iter().try_for_each(|lease| self.remove_lease(lease)))?;
        }
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

    fn leased_in(&self, range: &Range) -> Result<u128, StoreError> {
        if let Some(map) = self.map(range.subnet())? {
            return Ok(count_leased(range, &map) as u128);
        }
        let is_leased = |a: &&IpAddr| range.contains(**a) && !range.is_reserved(**a);
        Ok(self.addresses()?.iter().filter(is_leased).count() as u128)
    }

    /// One address per set: those that are asked for, and others by strategy.
    fn choose(&self, request: &LeaseRequest<'_>) -> Result<Vec<(IpAddr, Range)>, StoreError> {
        let mut asked = request.requested.to_vec();
        let chosen = request
            .sets
            .iter()
            .enumerate()
            .map(|(number, set)| {
                let position = asked
                    .iter()
                    .position(|address| set.range_of(*address).is_some());
                match position.map(|position| asked.remove(position)) {
                    Some(address) => self.check_requested(address, set),
                    None => self.choose_free(number, set, request),
                }
            })
            .collect::<Result<Vec<_>, _>>()?;
        match asked.first() {
            None => Ok(chosen),
            Some(address) => Err(StoreError::Outside {
                address: *address,
                sets: list(request.sets),
            }),
        }
    }

    fn check_requested(
        &self,
        address: IpAddr,
        set: &RangeSet,
    ) -> Result<(IpAddr, Range), StoreError> {
        let Some(range) = set.range_of(address) else {
            return Err(StoreError::Outside {
                address,
                sets: set.to_string(),
            });
        };
        if range.is_reserved(address) {
            let subnet = range.subnet().to_string();
            return Err(StoreError::Reserved { address, subnet });
        }
        match self.owner_of(address)? {
            Some(owner) => Err(StoreError::Taken {
                address,
                owner: owner.to_string(),
            }),
            None => Ok((address, *range)),
        }
    }

    fn choose_free(
        &self,
        number: usize,
        set: &RangeSet,
        request: &LeaseRequest<'_>,
    ) -> Result<(IpAddr, Range), StoreError> {
        let last = self.last_lease(number);
        let subnets = set.ranges().iter().map(Range::subnet);
        let maps: Vec<_> = subnets
            .map(|subnet| self.map(subnet))
            .collect::<Result<_, _>>()?;
        if let Some(found) = self.choose_with(&maps, set, request, last) {
            return Ok(found);
        }
        // Before somebody is sent away: does the directory say the same as the maps?
        let reloaded: Vec<_> = set
            .ranges()
            .iter()
            .map(|range| used::reload(&self.dir, range.subnet()))
            .collect::<Result<_, _>>()
            .map_err(io_error("list", &self.dir))?;
        if let Some(found) = self.choose_with(&reloaded, set, request, last) {
            return Ok(found);
        }
        let usage = self.usage(set)?;
        Err(StoreError::Exhausted {
            set: set.to_string(),
            leased: usage.leased,
            capacity: usage.capacity,
            dead: self.count_dead(set, request)?,
        })
    }

    fn choose_with(
        &self,
        maps: &[Option<Bitmap>],
        set: &RangeSet,
        request: &LeaseRequest<'_>,
        last: Option<IpAddr>,
    ) -> Option<(IpAddr, Range)> {
        let exists = |address| address_file::path(&self.dir, address).exists();
        let used = |index: usize| match &maps[index] {
            Some(map) => Used::Map(map),
            None => Used::Ask(&exists),
        };
        let (index, address) = request.strategy.choose(set, &used, last, &random_below)?;
        Some((address, set.ranges()[index]))
    }

    /// What the caller knows about owners that no longer run.
    fn count_dead(&self, set: &RangeSet, request: &LeaseRequest<'_>) -> Result<String, StoreError> {
        let Some(is_live) = request.is_live else {
            return Ok("; GC releases those of containers that no longer run".to_owned());
        };
        let dead = self
            .leases()?
            .iter()
            .filter(|lease| !is_live(&lease.owner))
            .flat_map(|lease| &lease.addresses)
            .filter(|address| set.range_of(**address).is_some())
            .count();
        Ok(format!(
            ", {dead} by containers that no longer run; GC releases those"
        ))
    }

    fn write_lease(
        &self,
        request: &LeaseRequest<'_>,
        name: &str,
        addresses: &[IpAddr],
    ) -> Result<Linked, StoreError> {
        let on_dir = || io_error("write a lease to", &self.dir);
        let files = (0..addresses.len())
            .map(|number| Unnamed::new(&self.dir, request.owner, number))
            .collect::<Result<Vec<_>, _>>()
            .map_err(on_dir())?;
        let recorded = addresses.iter().zip(&files);
        let recorded = recorded.map(|(ip, file)| RecordedAddress::new(*ip, &file.identity));
        let mut record = Record::of(request.owner, recorded.collect(), &self.boot);
        record.pod = request.pod.cloned();

        // From here to the renaming, a crash is undone by whoever opens the store next.
        let pending = pending_path(&self.dir);
        record
            .write(&pending)
            .map_err(io_error("write", &pending))?;
        for (number, (address, file)) in addresses.iter().zip(&files).enumerate() {
            fuse::burn(&self.dir)?;
            if let Err(error) = self.link(file, *address) {
                self.unlink(&addresses[..number]).map_err(on_dir())?;
                remove(&pending).map_err(on_dir())?;
                if error.kind() == ErrorKind::AlreadyExists {
                    return Ok(Linked::NameTaken);
                }
                return Err(on_dir()(error));
            }
        }
        fuse::burn(&self.dir)?;
        fs::rename(&pending, owners_dir(&self.dir).join(name)).map_err(on_dir())?;

        fuse::burn(&self.dir)?;
        used::note(&self.dir, addresses, Bit::Used).map_err(on_dir())?;
        fuse::burn(&self.dir)?;
        for (number, address) in addresses.iter().enumerate() {
            let path = self.last_lease_path(number);
            replace(&path, address.to_string().as_bytes()).map_err(io_error("write", &path))?;
        }
        Ok(Linked::All)
    }

    /// Gives the file its name, in place of a torn one if need be.
    fn link(&self, file: &Unnamed, address: IpAddr) -> std::io::Result<()> {
        match file.link(&self.dir, address) {
            Err(error)
                if error.kind() == ErrorKind::AlreadyExists
                    && matches!(
                        address_file::holder(&self.dir, address),
                        Ok(Holder::TornFile)
                    ) =>
            {
                remove(&address_file::path(&self.dir, address))?;
                file.link(&self.dir, address)
            }
            outcome => outcome,
        }
    }

    fn unlink(&self, addresses: &[IpAddr]) -> std::io::Result<()> {
        addresses
            .iter()
            .try_for_each(|ip| remove(&address_file::path(&self.dir, *ip)))
    }

    fn remove_lease(&self, lease: &Lease) -> Result<(), StoreError> {
        let on_dir = || io_error("release a lease in", &self.dir);
        // From here on the lease is an unfinished one, which a crash doesn't bring back.
        let pending = pending_path(&self.dir);
        if let Some(name) = lease.owner.file_name() {
            match fs::rename(owners_dir(&self.dir).join(name), &pending) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(on_dir()(error)),
                _ => fuse::burn(&self.dir)?,
            }
        }
        for address in &lease.addresses {
            self.unlink(&[*address]).map_err(on_dir())?;
            fuse::burn(&self.dir)?;
        }
        used::note(&self.dir, &lease.addresses, Bit::Free).map_err(on_dir())?;
        fuse::burn(&self.dir)?;
        remove(&pending).map_err(on_dir())?;
        Ok(())
    }

    /// Does a change. If it fails or we die in it, the stamp tells the next one to look closely.
    fn change<T>(&self, work: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
        let stamp = Stamp {
            boot: self.boot.clone(),
            mtime: None,
        };
        stamp
            .write(&self.lock)
            .map_err(io_error("write the lock of", &self.dir))?;
        fuse::burn(&self.dir)?;
        let done = work()?;
        fuse::burn(&self.dir)?;
        self.settle()?;
        Ok(done)
    }

    /// Proves to whoever comes next that the index is right.
    fn settle(&self) -> Result<(), StoreError> {
        let mtime = mark_directory(&self.dir).map_err(io_error("set the time of", &self.dir))?;
        fuse::burn(&self.dir)?;
        let stamp = Stamp {
            boot: self.boot.clone(),
            mtime: Some(mtime),
        };
        stamp
            .write(&self.lock)
            .map_err(io_error("write the lock of", &self.dir))
    }

    fn map(&self, subnet: IpNet) -> Result<Option<Bitmap>, StoreError> {
        used::load(&self.dir, subnet).map_err(io_error("read the index of", &self.dir))
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

    fn last_lease_path(&self, number: usize) -> PathBuf {
        self.dir.join(format!("last_reserved_ip.{number}"))
    }

    /// The newest lease of a set; a hint, so that a torn one does no harm.
    fn last_lease(&self, number: usize) -> Option<IpAddr> {
        fs::read_to_string(self.last_lease_path(number))
            .ok()?
            .trim()
            .parse()
            .ok()
    }
}

/// Whether all files of a lease got their names.
enum Linked {
    All,
    NameTaken,
}

/// A number below `limit`, each as likely as the other.
fn random_below(limit: u128) -> u128 {
    let mut bytes = [0; 16];
    // What the kernel gives at once is enough; a short read leaves zeros, which is still fair
    // to correctness.
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    // 128 random bits against at most 2^64 addresses: the bias can't be seen.
    u128::from_ne_bytes(bytes) % limit.max(1)
}

fn list<T: ToString>(items: &[T]) -> String {
    items
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}
