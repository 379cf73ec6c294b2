//! Counts running pods with leases in a store.

use ipam::LeaseOwner;
use net::Socket;

use super::key::Key;
use super::netns::MountTable;
use super::observe::ObservedPods;
use super::paths::PodPaths;
use super::view;
use crate::leases::LeaseStoreLocation;
use node_core::error::display_chain;

/// How many pods that may run have leases at `location`. An orphaned lease does not count; what cannot
/// be observed is an error.
pub(super) fn running(paths: &PodPaths, location: &LeaseStoreLocation) -> Result<usize, String> {
    let network = location.network().map_err(|error| error.to_string())?;
    let mut owners = Vec::new();
    let store = location.store();
    if let Some(store) = &store {
        store
            .for_each_lease(&mut |lease| owners.push(lease.owner))
            .map_err(|error| display_chain(&error))?;
    }
    // After the leases, so that no new owner is missed.
    let observed = ObservedPods::read(paths);
    if !observed.errors.is_empty() {
        return Err(observed.errors.join("; "));
    }
    let running = view::running(&observed, &network, &MountTable::default());
    let ports = ports(location).map_err(|error| display_chain(&error))?;
    Ok(match store {
        Some(_) => count(&owners, &running, ports),
        None => running.len() + ports,
    })
}

/// The ports of its bridges. Pods of the reference plugins have no record, but one port each.
fn ports(location: &LeaseStoreLocation) -> Result<usize, net::NetError> {
    let socket = Socket::route()?;
    let bridges = location.bridges.iter();
    bridges
        .map(|name| net::count_bridge_ports(&socket, name))
        .sum()
}

/// Owners that run, and of the others as many as there are bridge ports that may be theirs.
fn count(owners: &[LeaseOwner], running: &[Key], ports: usize) -> usize {
    let is_of = |owner: &LeaseOwner, key: &Key| {
        let is_same_link = owner
            .ifname()
            .is_none_or(|name| name == key.ifname.as_str());
        owner.container() == key.container.as_str() && is_same_link
    };
    let is_running = |owner: &&LeaseOwner| running.iter().any(|key| is_of(owner, key));
    let known = owners.iter().filter(is_running).count();
    known + ports.min(owners.len() - known)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn key(container: &str) -> Key {
        Key::new("net", container, "eth0").unwrap()
    }

    fn owner(container: &str) -> LeaseOwner {
        let key = key(container);
        LeaseOwner::new(&key.container, &key.ifname)
    }

    #[rstest]
    #[case::no_leases(&[], &[], 0, 0)]
    #[case::orphan(&["a"], &[], 0, 0)]
    #[case::running(&["a", "b"], &["b", "c"], 0, 1)]
    #[case::on_a_bridge(&["a", "b"], &[], 1, 1)]
    #[case::foreign_bridge_ports(&[], &["c"], 7, 0)]
    #[case::both(&["a", "b", "c"], &["b"], 7, 3)]
    fn leases_without_a_running_owner_do_not_count(
        #[case] owners: &[&str],
        #[case] running: &[&str],
        #[case] ports: usize,
        #[case] expected: usize,
    ) {
        let owners: Vec<LeaseOwner> = owners.iter().map(|name| owner(name)).collect();
        let running: Vec<Key> = running.iter().map(|name| key(name)).collect();
        assert_eq!(count(&owners, &running, ports), expected);
    }
}
