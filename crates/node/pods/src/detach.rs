//! Undoes every attachment, for a node that is to be without us.

use std::path::PathBuf;

use super::gc::{GcOutcome, delete_orphan};
use super::key::Key;
use super::observe::ObservedPods;
use super::paths::{LeaseOwnership, PodPaths};
use node_core::error::display_chain;

/// Undoes all attachments on record, whether their pods live or not; blocks. Returns those that are
/// undone, and what went wrong with the others.
pub fn detach_all(paths: &PodPaths) -> (Vec<Key>, Vec<String>) {
    let observed = ObservedPods::at(paths);
    let (mut detached, mut errors) = (Vec::new(), observed.errors);
    for (key, recorded) in &observed.records {
        match delete_orphan(paths, key, &recorded.stamp, |_| true) {
            Ok(GcOutcome::Deleted) => detached.push(key.clone()),
            Ok(GcOutcome::Changed) => errors.push(format!(
                "{key}: somebody works on it, or its record is damaged"
            )),
            Err(error) => errors.push(format!("{key}: {}", display_chain(&error))),
        }
    }
    (detached, errors)
}

/// The directory with the leases of our network, if nobody else keeps any there.
pub fn own_lease_dir(paths: &PodPaths) -> Option<PathBuf> {
    let store = paths.lease_store()?;
    (paths.leases.ownership == LeaseOwnership::Native).then(|| store.dir().to_owned())
}
