mod bitmaps;
mod model;

use std::fs::File;
use std::io::Write;

use cni::{ContainerId, IfName};
use tempfile::TempDir;

use super::*;
use crate::range::Range;

const LOCK_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) fn store(directory: &TempDir) -> LeaseStore {
    LeaseStore::new(
        directory.path(),
        &NetworkName::new("net").unwrap(),
        LOCK_TIMEOUT,
    )
}

pub(super) fn owner(container: &str) -> LeaseOwner {
    LeaseOwner::new(
        &ContainerId::new(container).unwrap(),
        &IfName::new("eth0").unwrap(),
    )
}

pub(super) fn set(subnet: &str) -> RangeSet {
    RangeSet::new(vec![
        Range::new(subnet.parse().unwrap(), None, None, None).unwrap(),
    ])
    .unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn lease(
    session: &mut LockedStore,
    container: &str,
    sets: &[RangeSet],
    requested: &[IpAddr],
) -> Result<Vec<IpAddr>, StoreError> {
    let request = LeaseRequest {
        owner: &owner(container),
        pod: None,
        sets,
        requested,
        strategy: AllocationStrategy::Sequential,
    };
    Ok(session
        .lease(&request)?
        .into_iter()
        .map(|(address, _)| address)
        .collect())
}

fn names(directory: &TempDir) -> Vec<String> {
    let entries = fs::read_dir(directory.path().join("net")).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Writes a lease as host-local does.
fn host_local_lease(directory: &TempDir, address: &str, text: &str) {
    fs::create_dir_all(directory.path().join("net")).unwrap();
    let mut file = File::create_new(directory.path().join("net").join(address)).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

/// Makes the store look as if its stamp and records were of another boot.
fn reboot(directory: &TempDir) {
    let net = directory.path().join("net");
    let lock = File::options()
        .read(true)
        .write(true)
        .open(net.join("lock"))
        .unwrap();
    let mut stamp = stamp::Stamp::read(&lock).unwrap().unwrap();
    stamp.boot = "another-boot".to_owned();
    stamp.write(&lock).unwrap();
    for entry in fs::read_dir(net.join(".headcni/owners")).unwrap() {
        let path = entry.unwrap().path();
        let mut record = record::LeaseRecord::read(&path).unwrap().unwrap();
        record.boot = "another-boot".to_owned();
        record.write(&path).unwrap();
    }
}

#[test]
fn a_lease_is_a_file_in_host_local_format() {
    let directory = TempDir::new().unwrap();
    let leased = lease(
        &mut store(&directory).open().unwrap(),
        "a",
        &[set("10.1.0.0/24")],
        &[],
    )
    .unwrap();
    assert_eq!(leased, [ip("10.1.0.2")]);
    let file = directory.path().join("net/10.1.0.2");
    assert_eq!(fs::read_to_string(file).unwrap(), "a\r\neth0");
    assert_eq!(
        names(&directory),
        [".headcni", "10.1.0.2", "last_reserved_ip.0", "lock"]
    );
}

#[test]
fn a_released_address_is_reused_last() {
    let directory = TempDir::new().unwrap();
    let store = store(&directory);
    let sets = [set("10.1.0.0/29")];
    for (container, address) in [("a", "10.1.0.2"), ("b", "10.1.0.3")] {
        assert_eq!(
            lease(&mut store.open().unwrap(), container, &sets, &[]).unwrap(),
            [ip(address)]
        );
    }
    assert_eq!(
        store.open().unwrap().release(&owner("a")).unwrap(),
        [ip("10.1.0.2")]
    );
    assert!(
        store
            .open()
            .unwrap()
            .release(&owner("a"))
            .unwrap()
            .is_empty()
    );
    for (container, address) in [("c", "10.1.0.4"), ("d", "10.1.0.5"), ("e", "10.1.0.6")] {
        assert_eq!(
            lease(&mut store.open().unwrap(), container, &sets, &[]).unwrap(),
            [ip(address)]
        );
    }
    assert_eq!(
        lease(&mut store.open().unwrap(), "f", &sets, &[]).unwrap(),
        [ip("10.1.0.2")]
    );
}

#[test]
fn an_owner_gets_an_address_from_each_set_or_none_at_all() {
    let directory = TempDir::new().unwrap();
    let store = store(&directory);
    let sets = [set("10.1.0.0/24"), set("fd00::/126")];
    let leased = lease(&mut store.open().unwrap(), "a", &sets, &[]).unwrap();
    assert_eq!(leased, [ip("10.1.0.2"), ip("fd00::2")]);
    lease(&mut store.open().unwrap(), "b", &sets, &[]).unwrap();
    let error = lease(&mut store.open().unwrap(), "c", &sets, &[]).unwrap_err();
    assert!(
        error.to_string().contains("fd00::/126 is full: 2 of 2"),
        "{error}"
    );
    assert!(!names(&directory).contains(&"10.1.0.4".to_owned()));
    assert_eq!(store.open().unwrap().leases().unwrap().len(), 2);
}

#[test]
fn a_requested_address_is_leased_or_refused_with_the_reason() {
    let directory = TempDir::new().unwrap();
    let mut session = store(&directory).open().unwrap();
    let sets = [set("10.1.0.0/24"), set("fd00::/64")];
    let leased = lease(&mut session, "a", &sets, &[ip("fd00::9"), ip("10.1.0.7")]).unwrap();
    assert_eq!(leased, [ip("10.1.0.7"), ip("fd00::9")]);
    for (address, part) in [
        ("10.1.0.7", "leased to container a interface eth0"),
        ("10.1.0.1", "reserved"),
        ("10.1.0.255", "10.1.0.255"),
        ("10.2.0.5", "10.2.0.5"),
    ] {
        let error = lease(&mut session, "b", &sets, &[ip(address)]).unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
    }
    let both = [ip("10.1.0.8"), ip("10.1.0.9")];
    assert!(matches!(
        lease(&mut session, "b", &sets, &both),
        Err(StoreError::Outside { .. })
    ));
    assert!(session.lease_of(&owner("b")).unwrap().is_none());
}

#[test]
fn a_second_lease_for_the_same_owner_is_refused() {
    let directory = TempDir::new().unwrap();
    let mut session = store(&directory).open().unwrap();
    lease(&mut session, "a", &[set("10.1.0.0/24")], &[]).unwrap();
    let error = lease(&mut session, "a", &[set("10.1.0.0/24")], &[]).unwrap_err();
    assert!(error.to_string().contains("10.1.0.2"), "{error}");
    assert_eq!(
        session.lease_of(&owner("a")).unwrap().unwrap().addresses,
        [ip("10.1.0.2")]
    );
}

#[test]
fn a_release_by_host_local_is_detected() {
    let directory = TempDir::new().unwrap();
    let store = store(&directory);
    let sets = [set("10.1.0.0/30")];
    lease(&mut store.open().unwrap(), "a", &sets, &[]).unwrap();
    fs::remove_file(directory.path().join("net/10.1.0.2")).unwrap();
    assert_eq!(
        lease(&mut store.open().unwrap(), "b", &sets, &[]).unwrap(),
        [ip("10.1.0.2")]
    );
    // A late DEL of the first owner must not release the address of the second.
    assert!(
        store
            .open()
            .unwrap()
            .release(&owner("a"))
            .unwrap()
            .is_empty()
    );
    assert!(names(&directory).contains(&"10.1.0.2".to_owned()));
}

#[test]
fn the_same_container_and_address_after_a_reboot_is_a_new_lease() {
    let directory = TempDir::new().unwrap();
    let store = store(&directory);
    lease(&mut store.open().unwrap(), "a", &[set("10.1.0.0/24")], &[]).unwrap();
    reboot(&directory);
    fs::remove_file(directory.path().join("net/10.1.0.2")).unwrap();
    host_local_lease(&directory, "10.1.0.2", "a\r\neth0");
    assert_eq!(store.open().unwrap().leases().unwrap().len(), 1);
}

#[test]
fn gc_releases_the_leases_of_orphans() {
    let directory = TempDir::new().unwrap();
    let store = store(&directory);
    let sets = [set("10.1.0.0/24"), set("fd00::/64")];
    for container in ["a", "b", "c"] {
        lease(&mut store.open().unwrap(), container, &sets, &[]).unwrap();
    }
    host_local_lease(&directory, "10.1.0.9", "not an id / at all");
    let orphans = store
        .open()
        .unwrap()
        .release_orphans(&|o| o.container() == "b")
        .unwrap();
    assert_eq!(orphans.len(), 3);
    let valid = store.open().unwrap().leases().unwrap();
    assert_eq!(valid.len(), 1);
    assert_eq!(valid[0].addresses, [ip("10.1.0.3"), ip("fd00::3")]);
}

#[test]
fn a_full_set_is_reported_with_its_usage() {
    let directory = TempDir::new().unwrap();
    let mut session = store(&directory).open().unwrap();
    let sets = [set("10.1.0.0/29")];
    for container in ["a", "b", "c", "d", "e"] {
        lease(&mut session, container, &sets, &[]).unwrap();
    }
    assert_eq!(
        session.usage(&sets[0]).unwrap(),
        Usage {
            leased: 5,
            capacity: 5
        }
    );
    let huge = set("fd00::/64");
    assert_eq!(session.usage(&huge).unwrap().leased, 0);

    let message = lease(&mut session, "f", &sets, &[])
        .unwrap_err()
        .to_string();
    assert!(
        message.contains("10.1.0.0/29 is full: 5 of 5 leased"),
        "{message}"
    );
}

#[test]
fn a_lock_timeout_asks_the_runtime_to_try_again_later() {
    let directory = TempDir::new().unwrap();
    let _session = store(&directory).open().unwrap();
    let network = NetworkName::new("net").unwrap();
    let impatient_store = LeaseStore::new(directory.path(), &network, Duration::from_millis(50));
    let error = Error::from(impatient_store.open().unwrap_err());
    assert_eq!(error.code, code::TRY_AGAIN_LATER);
    assert!(
        error.msg.contains(directory.path().to_str().unwrap()),
        "{error}"
    );
}

#[test]
fn a_data_dir_that_ends_in_the_network_name_is_used_as_it_is() {
    let network = NetworkName::new("headcni").unwrap();
    let store = |dir: &str| LeaseStore::new(Path::new(dir), &network, LOCK_TIMEOUT).dir;
    assert_eq!(
        store("/var/lib/cni/networks/headcni"),
        Path::new("/var/lib/cni/networks/headcni")
    );
    assert_eq!(
        store("/var/lib/cni/networks"),
        Path::new("/var/lib/cni/networks/headcni")
    );
}
