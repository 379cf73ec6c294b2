//! Undoes every attachment, for a node that is to be without us.

use std::path::PathBuf;

use super::collect::{Collected, collect_record};
use super::key::Key;
use super::look::Look;
use super::place::{Keeper, Place};
use node_core::error::display_chain;

/// Undoes all attachments on record, whether their pods live or not; blocks. Returns those that are
/// undone, and what went wrong with the others.
pub fn detach_all(place: &Place) -> (Vec<Key>, Vec<String>) {
    let look = Look::at(place);
    let (mut detached, mut troubles) = (Vec::new(), look.troubles);
    for (key, recorded) in &look.records {
        match collect_record(place, key, &recorded.stamp, |_| true) {
            Ok(Collected::Yes) => detached.push(key.clone()),
            Ok(Collected::Changed) => troubles.push(format!(
                "{key}: somebody works on it, or its record is damaged"
            )),
            Err(error) => troubles.push(format!("{key}: {}", display_chain(&error))),
        }
    }
    (detached, troubles)
}

/// The directory with the leases of our network, if nobody else keeps any there.
pub fn own_leases(place: &Place) -> Option<PathBuf> {
    let store = place.lease_store()?;
    (place.leases.keeper == Keeper::Native).then(|| store.dir().to_owned())
}
