//! Detaches every pod, for uninstall.

use std::path::PathBuf;

use super::gc::{GcOutcome, delete_orphan};
use super::key::Key;
use super::observe::ObservedPods;
use super::paths::{LeaseOwnership, PodPaths};
use node_core::error::display_chain;

/// Runs DEL for all attachments on record; blocks. Returns those that succeeded, and the errors.
pub fn detach_all(paths: &PodPaths) -> (Vec<Key>, Vec<String>) {
    let observed = ObservedPods::read(paths);
    let (mut detached, mut errors) = (Vec::new(), observed.errors);
    for (key, recorded) in &observed.records {
        match delete_orphan(paths, key, &recorded.stamp, |_| true) {
            Ok(GcOutcome::Deleted) => detached.push(key.clone()),
            Ok(GcOutcome::Changed) => errors.push(format!(
                "{key}: a CNI call is in progress, or its record is damaged"
            )),
            Err(error) => errors.push(format!("{key}: {}", display_chain(&error))),
        }
    }
    (detached, errors)
}

/// The lease directory of our network, unless it is shared.
pub fn own_lease_dir(paths: &PodPaths) -> Option<PathBuf> {
    let store = paths.lease_store()?;
    (paths.leases.ownership == LeaseOwnership::Native).then(|| store.dir().to_owned())
}
