//! Commits leases and releases atomically.
//!
//! `pending` lists the files of a lease before they are linked. Renaming `pending` to the owner's
//! record commits the lease; a release renames the record back first. After a crash, the next call
//! removes the files that `pending` lists (ADR 9).

use std::fs;
use std::io::{self, ErrorKind};
use std::net::IpAddr;

use super::allocate::Allocation;
use super::{IndexUpdate, LockedStore};
use crate::store::address_file::{self, AddressHolder, StagedFile};
use crate::store::bitmaps::{self, Bit};
use crate::store::record::{LeaseRecord, RecordedAddress, empty, owners_dir, pending_path, remove};
use crate::store::{LeaseRequest, StoreError, StoredLease, fault_injection, io_error};

#[derive(Clone, Copy, PartialEq)]
pub(super) enum LinkOutcome {
    All,
    NameTaken,
}

impl LockedStore {
    pub(super) fn commit_lease(
        &self,
        request: &LeaseRequest<'_>,
        name: &str,
        allocation: &mut Allocation,
    ) -> Result<LinkOutcome, StoreError> {
        self.transaction(|| {
            let addresses = allocation.addresses();
            let linked = self.link_addresses(request, name, &addresses)?;
            let updated = match linked {
                LinkOutcome::NameTaken => Ok(()),
                LinkOutcome::All => self.update_index(&addresses, allocation),
            };
            fault_injection::checkpoint(&self.dir)?;
            Ok((linked, index_update(&updated)))
        })
    }

    fn link_addresses(
        &self,
        request: &LeaseRequest<'_>,
        name: &str,
        addresses: &[IpAddr],
    ) -> Result<LinkOutcome, StoreError> {
        let on_dir = || io_error("write a lease to", &self.dir);
        let files = (0..addresses.len())
            .map(|number| StagedFile::new(&self.dir, request.owner, number))
            .collect::<Result<Vec<_>, _>>()
            .map_err(on_dir())?;
        let recorded = addresses.iter().zip(&files);
        let recorded = recorded.map(|(ip, file)| RecordedAddress::new(*ip, &file.identity));
        let mut record = LeaseRecord::of(request.owner, recorded.collect(), &self.boot);
        record.pod = request.pod.cloned();

        let pending = pending_path(&self.dir);
        record
            .write(&pending)
            .map_err(io_error("write", &pending))?;
        for (number, (address, file)) in addresses.iter().zip(&files).enumerate() {
            fault_injection::checkpoint(&self.dir)?;
            if let Err(error) = self.link(file, *address) {
                self.unlink(&addresses[..number]).map_err(on_dir())?;
                remove(&pending).map_err(on_dir())?;
                if error.kind() == ErrorKind::AlreadyExists {
                    return Ok(LinkOutcome::NameTaken);
                }
                return Err(on_dir()(error));
            }
        }
        fault_injection::checkpoint(&self.dir)?;
        fs::rename(&pending, owners_dir(&self.dir).join(name)).map_err(on_dir())?;
        fault_injection::checkpoint(&self.dir)?;
        Ok(LinkOutcome::All)
    }

    fn update_index(&self, addresses: &[IpAddr], allocation: &mut Allocation) -> io::Result<()> {
        bitmaps::mark_leased(&self.dir, &mut allocation.maps, addresses)?;
        for (last_reserved, address) in allocation.last_reserved.iter_mut().zip(addresses) {
            last_reserved.store(*address)?;
        }
        Ok(())
    }

    pub(super) fn commit_release(&self, leases: &[StoredLease]) -> Result<(), StoreError> {
        if leases.is_empty() {
            return Ok(());
        }
        self.transaction(|| {
            let mut updated = Ok(());
            let mut failed = Ok(());
            for lease in leases {
                // Continue with the others. A file that stays is adopted at the next rebuild.
                match self.unlink_lease(lease) {
                    Err(error) if error.is_crash() => return Err(error),
                    outcome => failed = failed.and(outcome),
                }
                updated = updated.and(bitmaps::mark(&self.dir, &lease.addresses, Bit::Free));
                fault_injection::checkpoint(&self.dir)?;
                let pending = pending_path(&self.dir);
                empty(&pending).map_err(io_error("empty", &pending))?;
            }
            failed?;
            Ok(((), index_update(&updated)))
        })
    }

    fn unlink_lease(&self, lease: &StoredLease) -> Result<(), StoreError> {
        let on_dir = || io_error("release a lease in", &self.dir);
        if let Some(name) = lease.owner.file_name() {
            let pending = pending_path(&self.dir);
            // ext4 flushes a file that replaces another one by rename, so remove the target first.
            remove(&pending).map_err(on_dir())?;
            match fs::rename(owners_dir(&self.dir).join(name), pending) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(on_dir()(error)),
                _ => fault_injection::checkpoint(&self.dir)?,
            }
        }
        for (number, address) in lease.addresses.iter().enumerate() {
            address_file::release(&self.dir, *address, number).map_err(on_dir())?;
            fault_injection::checkpoint(&self.dir)?;
        }
        Ok(())
    }

    /// Links the file to its address and replaces a torn file.
    fn link(&self, file: &StagedFile, address: IpAddr) -> io::Result<()> {
        match file.link(&self.dir, address) {
            Err(error)
                if error.kind() == ErrorKind::AlreadyExists
                    && matches!(
                        address_file::holder(&self.dir, address),
                        Ok(AddressHolder::TornFile)
                    ) =>
            {
                remove(&address_file::path(&self.dir, address))?;
                file.link(&self.dir, address)
            }
            outcome => outcome,
        }
    }

    fn unlink(&self, addresses: &[IpAddr]) -> io::Result<()> {
        addresses
            .iter()
            .try_for_each(|ip| remove(&address_file::path(&self.dir, *ip)))
    }
}

fn index_update(updated: &io::Result<()>) -> IndexUpdate {
    if updated.is_ok() {
        IndexUpdate::Done
    } else {
        IndexUpdate::Failed
    }
}
