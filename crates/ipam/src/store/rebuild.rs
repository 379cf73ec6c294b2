//! Rebuilds the index from the address files: after a crash, a reboot, or a change by host-local.
//!
//! An address is freed only if its lease was never completed, its file is torn, or the lease is
//! known to be of an earlier boot.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::address_file::FileIdentity;
use super::owner::LeaseOwner;
use super::record::{LeaseRecord, RecordedAddress, index_dir, owners_dir, pending_path, remove};
use super::{StoreError, address_file, bitmaps, boot, fault_injection, file, io_error};

/// `last_boot` is the boot ID of the last stamp, if there is one.
pub(super) fn rebuild_index(
    dir: &Path,
    this_boot: &str,
    last_boot: Option<&str>,
) -> Result<(), StoreError> {
    let owners = owners_dir(dir);
    fs::create_dir_all(&owners).map_err(io_error("create", &owners))?;
    undo_pending(dir).map_err(io_error("undo an unfinished lease in", dir))?;
    fault_injection::checkpoint(dir)?;
    bitmaps::remove_all(dir).map_err(io_error("rebuild the index of", dir))?;
    let records = read_records(dir).map_err(io_error("read the index of", dir))?;
    // Without an earlier stamp, the boot that a file is from is unknown.
    let rebooted = last_boot.is_some_and(|last| last != this_boot);
    let filter = BootFilter {
        this_boot,
        booted_after: if rebooted {
            boot::time_lower_bound()
        } else {
            None
        },
        records: &records,
    };
    let by_owner = filter.apply(dir)?;
    fault_injection::checkpoint(dir)?;
    write_records(dir, this_boot, &records, by_owner).map_err(io_error("rebuild the index of", dir))
}

/// Rolls back a lease that was not committed, and a release that was not finished.
fn undo_pending(dir: &Path) -> io::Result<()> {
    let path = pending_path(dir);
    if let Some(record) = LeaseRecord::read(&path)? {
        for address in &record.addresses {
            let file = address_file::path(dir, address.ip);
            // Compare inode and mtime: the address may have a new owner by now.
            if fs::metadata(&file).is_ok_and(|m| address.is_file(&FileIdentity::of(&m))) {
                // If it can't be removed, it is adopted as a lease.
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

type Records = BTreeMap<String, LeaseRecord>;

fn read_records(dir: &Path) -> io::Result<Records> {
    let mut records = Records::new();
    for entry in fs::read_dir(owners_dir(dir))? {
        let entry = entry?;
        let record = LeaseRecord::read(&entry.path()).unwrap_or_default();
        match (entry.file_name().into_string(), record) {
            (Ok(name), Some(record)) => {
                records.insert(name, record);
            }
            // Torn or foreign. A directory that is not empty stays.
            _ => drop(remove(&entry.path()).or_else(|_| fs::remove_dir(entry.path()))),
        }
    }
    Ok(records)
}

/// Drops leases of an earlier boot.
struct BootFilter<'a> {
    this_boot: &'a str,
    booted_after: Option<SystemTime>,
    records: &'a Records,
}

impl BootFilter<'_> {
    /// Returns the valid leases by owner and removes the files of stale ones.
    fn apply(&self, dir: &Path) -> Result<BTreeMap<LeaseOwner, Vec<RecordedAddress>>, StoreError> {
        let mut by_owner: BTreeMap<LeaseOwner, Vec<RecordedAddress>> = BTreeMap::new();
        for entry in fs::read_dir(dir).map_err(io_error("list", dir))? {
            let entry = entry.map_err(io_error("list", dir))?;
            let name = entry.file_name();
            let Some(address) = name.to_str().and_then(|name| name.parse::<IpAddr>().ok()) else {
                continue;
            };
            let path = entry.path();
            let metadata = fs::symlink_metadata(&path).map_err(io_error("stat", &path))?;
            if !metadata.is_file() {
                // Not a lease, but it occupies the name.
                continue;
            }
            let bytes = file::read(&path).map_err(io_error("read", &path))?;
            let owner = LeaseOwner::from_text(&String::from_utf8_lossy(&bytes));
            match owner.filter(|owner| !self.is_stale(owner, address, &metadata)) {
                Some(owner) => {
                    let recorded = RecordedAddress::new(address, &FileIdentity::of(&metadata));
                    by_owner.entry(owner).or_default().push(recorded);
                }
                None => remove(&path).map_err(io_error("remove", &path))?,
            }
        }
        Ok(by_owner)
    }

    fn is_stale(&self, owner: &LeaseOwner, address: IpAddr, metadata: &fs::Metadata) -> bool {
        let record = owner.file_name().and_then(|name| self.records.get(&name));
        let is_recorded = |record: &&LeaseRecord| {
            let identity = FileIdentity::of(metadata);
            record
                .addresses
                .iter()
                .any(|a| a.ip == address && a.is_file(&identity))
        };
        if let Some(record) = record.filter(is_recorded) {
            return record.boot != self.this_boot;
        }
        // No record: host-local wrote it since the last stamp, in this boot or in an earlier one.
        match (self.booted_after, metadata.modified()) {
            (Some(boot), Ok(written)) => written < boot,
            _ => false,
        }
    }
}

fn write_records(
    dir: &Path,
    this_boot: &str,
    old: &Records,
    by_owner: BTreeMap<LeaseOwner, Vec<RecordedAddress>>,
) -> io::Result<()> {
    let owners = owners_dir(dir);
    let path = |name: &str| -> PathBuf { owners.join(name) };
    let mut current = BTreeSet::new();
    for (owner, mut addresses) in by_owner {
        let Some(name) = owner.file_name() else {
            continue;
        };
        let before = old.get(&name);
        // Only the old record knows the order of the range sets.
        let order = before.map(LeaseRecord::ips).unwrap_or_default();
        let position = |ip| {
            order
                .iter()
                .position(|known| *known == ip)
                .unwrap_or(order.len())
        };
        addresses.sort_by_key(|address| (position(address.ip), address.ip));
        let mut record = LeaseRecord::of(&owner, addresses, this_boot);
        record.pod = before.and_then(|before| before.pod.clone());
        if before != Some(&record) {
            record.write(&path(&name))?;
        }
        current.insert(name);
    }
    old.keys()
        .filter(|name| !current.contains(*name))
        .try_for_each(|n| remove(&path(n)))
}
