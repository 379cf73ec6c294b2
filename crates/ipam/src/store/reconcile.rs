//! Makes the index anew from the files: after a crash, after host-local, after a reboot.
//!
//! What it finds is healed, never guessed: an address is given up only if its lease was never
//! finished, its file is torn, or it is known to be of an earlier boot.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::address_file::Identity;
use super::owner::Owner;
use super::record::{Record, RecordedAddress, index_dir, owners_dir, pending_path, remove};
use super::{StoreError, address_file, boot, file, fuse, io_error, used};

/// `last_boot` is the boot that we last left the store in; `None` if that was never.
pub(super) fn reconcile(
    dir: &Path,
    this_boot: &str,
    last_boot: Option<&str>,
) -> Result<(), StoreError> {
    let owners = owners_dir(dir);
    fs::create_dir_all(&owners).map_err(io_error("create", &owners))?;
    undo_pending(dir).map_err(io_error("undo an unfinished lease in", dir))?;
    fuse::burn(dir)?;
    used::forget(dir).map_err(io_error("renew the index of", dir))?;
    let records = read_records(dir).map_err(io_error("read the index of", dir))?;
    // Without a boot of ours before this one, nothing is known about the age of a file.
    let rebooted = last_boot.is_some_and(|last| last != this_boot);
    let living = Living {
        this_boot,
        not_after: if rebooted { boot::not_after() } else { None },
        records: &records,
    };
    let by_owner = living.keep(dir)?;
    fuse::burn(dir)?;
    write_records(dir, this_boot, &records, by_owner).map_err(io_error("renew the index of", dir))
}

/// Removes the files of a lease that did not get as far as its record.
fn undo_pending(dir: &Path) -> io::Result<()> {
    let path = pending_path(dir);
    if let Some(record) = Record::read(&path)? {
        for address in &record.addresses {
            let file = address_file::path(dir, address.ip);
            // Only the very file of that lease: the address may be another's by now.
            if fs::metadata(&file).is_ok_and(|m| address.is_file(&Identity::of(&m))) {
                // One that can't be removed is a lease like any other.
                let _ = remove(&file);
            }
        }
    }
    remove(&path)?;
    for entry in fs::read_dir(index_dir(dir))? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("new.") {
            remove(&entry.path())?;
        }
    }
    Ok(())
}

type Records = BTreeMap<String, Record>;

fn read_records(dir: &Path) -> io::Result<Records> {
    let mut records = Records::new();
    for entry in fs::read_dir(owners_dir(dir))? {
        let entry = entry?;
        let record = Record::read(&entry.path()).unwrap_or_default();
        match (entry.file_name().into_string(), record) {
            (Ok(name), Some(record)) => {
                records.insert(name, record);
            }
            // Torn, or not ours. A directory stays if something is in it.
            _ => drop(remove(&entry.path()).or_else(|_| fs::remove_dir(entry.path()))),
        }
    }
    Ok(records)
}

/// Tells living leases from those of an earlier boot.
struct Living<'a> {
    this_boot: &'a str,
    not_after: Option<SystemTime>,
    records: &'a Records,
}

impl Living<'_> {
    /// Every living lease by owner; what isn't living is removed.
    fn keep(&self, dir: &Path) -> Result<BTreeMap<Owner, Vec<RecordedAddress>>, StoreError> {
        let mut by_owner: BTreeMap<Owner, Vec<RecordedAddress>> = BTreeMap::new();
        for entry in fs::read_dir(dir).map_err(io_error("list", dir))? {
            let entry = entry.map_err(io_error("list", dir))?;
            let name = entry.file_name();
            let Some(address) = name.to_str().and_then(|name| name.parse::<IpAddr>().ok()) else {
                continue;
            };
            let path = entry.path();
            let metadata = fs::symlink_metadata(&path).map_err(io_error("look at", &path))?;
            if !metadata.is_file() {
                // Not a lease, but its name is taken all the same.
                continue;
            }
            let bytes = file::read(&path).map_err(io_error("read", &path))?;
            let owner = Owner::from_text(&String::from_utf8_lossy(&bytes));
            match owner.filter(|owner| !self.is_void(owner, address, &metadata)) {
                Some(owner) => {
                    let recorded = RecordedAddress::new(address, &Identity::of(&metadata));
                    by_owner.entry(owner).or_default().push(recorded);
                }
                None => remove(&path).map_err(io_error("remove", &path))?,
            }
        }
        Ok(by_owner)
    }

    fn is_void(&self, owner: &Owner, address: IpAddr, metadata: &fs::Metadata) -> bool {
        let record = owner.file_name().and_then(|name| self.records.get(&name));
        let is_recorded = |record: &&Record| {
            let identity = Identity::of(metadata);
            record
                .addresses
                .iter()
                .any(|a| a.ip == address && a.is_file(&identity))
        };
        if let Some(record) = record.filter(is_recorded) {
            return record.boot != self.this_boot;
        }
        // Written by host-local since we last looked, in this boot or in the last one.
        match (self.not_after, metadata.modified()) {
            (Some(boot), Ok(written)) => written < boot,
            _ => false,
        }
    }
}

fn write_records(
    dir: &Path,
    this_boot: &str,
    old: &Records,
    by_owner: BTreeMap<Owner, Vec<RecordedAddress>>,
) -> io::Result<()> {
    let owners = owners_dir(dir);
    let path = |name: &str| -> PathBuf { owners.join(name) };
    let mut kept = BTreeSet::new();
    for (owner, mut addresses) in by_owner {
        let Some(name) = owner.file_name() else {
            continue;
        };
        let before = old.get(&name);
        // In the order of the range sets, which only the old record knows.
        let order = before.map(Record::ips).unwrap_or_default();
        let position = |ip| {
            order
                .iter()
                .position(|known| *known == ip)
                .unwrap_or(order.len())
        };
        addresses.sort_by_key(|address| (position(address.ip), address.ip));
        let mut record = Record::of(&owner, addresses, this_boot);
        record.pod = before.and_then(|before| before.pod.clone());
        if before != Some(&record) {
            record.write(&path(&name))?;
        }
        kept.insert(name);
    }
    old.keys()
        .filter(|name| !kept.contains(*name))
        .try_for_each(|n| remove(&path(n)))
}
