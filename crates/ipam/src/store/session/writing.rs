//! Makes and removes leases, each of them all or nothing.
//!
//! While a lease is being made, `pending` names its files; renaming that file into the record is
//! the moment in which the lease comes to be. A release renames it back first, and empties it in
//! the end. Whoever finds a `pending` after a crash removes the files that it names.

use std::fs;
use std::io::{self, ErrorKind};
use std::net::IpAddr;

use super::choosing::Choice;
use super::{Session, Upkeep};
use crate::store::address_file::{self, Holder, Unnamed};
use crate::store::record::{Record, RecordedAddress, empty, owners_dir, pending_path, remove};
use crate::store::used::{self, Bit};
use crate::store::{Lease, LeaseRequest, StoreError, fuse, io_error};

/// Whether all files of a lease got their names.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Linked {
    All,
    NameTaken,
}

impl Session {
    pub(super) fn write_lease(
        &self,
        request: &LeaseRequest<'_>,
        name: &str,
        choice: &mut Choice,
    ) -> Result<Linked, StoreError> {
        self.change(|| {
            let addresses = choice.addresses();
            let linked = self.link_all(request, name, &addresses)?;
            let kept = match linked {
                Linked::NameTaken => Ok(()),
                Linked::All => self.keep_up_with_lease(&addresses, choice),
            };
            fuse::burn(&self.dir)?;
            Ok((linked, upkeep(&kept)))
        })
    }

    fn link_all(
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
        Ok(Linked::All)
    }

    fn keep_up_with_lease(&self, addresses: &[IpAddr], choice: &mut Choice) -> io::Result<()> {
        used::note_leases(&self.dir, &mut choice.maps, addresses)?;
        for (newest, address) in choice.newest.iter_mut().zip(addresses) {
            newest.note(*address)?;
        }
        Ok(())
    }

    pub(super) fn remove_leases(&self, leases: &[Lease]) -> Result<(), StoreError> {
        if leases.is_empty() {
            return Ok(());
        }
        self.change(|| {
            let mut kept = Ok(());
            let mut failed = Ok(());
            for lease in leases {
                // One that can't be removed keeps none of the others. It is adopted again, by its
                // file, when the index is made anew.
                match self.unlink_all(lease) {
                    Err(error) if error.is_crash() => return Err(error),
                    outcome => failed = failed.and(outcome),
                }
                kept = kept.and(used::note(&self.dir, &lease.addresses, Bit::Free));
                fuse::burn(&self.dir)?;
                let pending = pending_path(&self.dir);
                empty(&pending).map_err(io_error("empty", &pending))?;
            }
            failed?;
            Ok(((), upkeep(&kept)))
        })
    }

    fn unlink_all(&self, lease: &Lease) -> Result<(), StoreError> {
        let on_dir = || io_error("release a lease in", &self.dir);
        if let Some(name) = lease.owner.file_name() {
            let pending = pending_path(&self.dir);
            // Before, because ext4 would write a file that replaces another one to disk at once.
            remove(&pending).map_err(on_dir())?;
            match fs::rename(owners_dir(&self.dir).join(name), pending) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(on_dir()(error)),
                _ => fuse::burn(&self.dir)?,
            }
        }
        for (number, address) in lease.addresses.iter().enumerate() {
            address_file::release(&self.dir, *address, number).map_err(on_dir())?;
            fuse::burn(&self.dir)?;
        }
        Ok(())
    }

    /// Gives the file its name, in place of a torn one if need be.
    fn link(&self, file: &Unnamed, address: IpAddr) -> io::Result<()> {
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

    fn unlink(&self, addresses: &[IpAddr]) -> io::Result<()> {
        addresses
            .iter()
            .try_for_each(|ip| remove(&address_file::path(&self.dir, *ip)))
    }
}

fn upkeep(kept: &io::Result<()>) -> Upkeep {
    if kept.is_ok() {
        Upkeep::Done
    } else {
        Upkeep::Failed
    }
}
