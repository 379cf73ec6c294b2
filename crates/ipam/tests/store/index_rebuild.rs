//! An index that disagrees with the files, which are the truth: healed, and nothing is lost.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use lab::Netns;
use rstest::rstest;

use crate::store_node::Plugin::Ours;
use crate::store_node::{StoreNode, assert_ok, overwrite};

/// Finds a file of the index by the beginning of its name.
fn indexed(store: &StoreNode, prefix: &str) -> PathBuf {
    let (dir, start) = prefix.rsplit_once('/').unwrap();
    let entries = fs::read_dir(store.file(dir)).unwrap();
    let mut paths = entries.map(|entry| entry.unwrap().path());
    let found = paths.find(|path| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with(start)
    });
    found.unwrap()
}

/// Ways to spoil the index of a store in which `a` and `b` have leases.
fn spoil(store: &StoreNode, how: &str) {
    let map = || indexed(store, ".headcni/used.10");
    let record = || store.file(".headcni/owners/b@eth0");
    let size = || usize::try_from(map().metadata().unwrap().len()).unwrap();
    match how {
        "no index" => fs::remove_dir_all(store.file(".headcni")).unwrap(),
        "no map" => fs::remove_file(map()).unwrap(),
        "a map that says free" => overwrite(&map(), &vec![0; size()]),
        "a map that says full" => overwrite(&map(), &vec![0xff; size()]),
        "a short map" => overwrite(&map(), b""),
        "a long map" => overwrite(&map(), &[0xff; 4096]),
        "a map of another subnet" => overwrite(&store.file(".headcni/used.10.1.0.0-16"), b""),
        "a map of everything" => overwrite(&store.file(".headcni/used.0.0.0.0-0"), b"x"),
        "a lock without a stamp" => overwrite(&store.file("lock"), b""),
        "a foreign stamp" => overwrite(&store.file("lock"), &[b'x'; 4096]),
        "no lock" => fs::remove_file(store.file("lock")).unwrap(),
        "an unfinished lease that is torn" => overwrite(&store.file(".headcni/pending"), b"{"),
        "no newest lease" => fs::remove_file(store.file("last_reserved_ip.0")).unwrap(),
        "a torn newest lease" => overwrite(&store.file("last_reserved_ip.0"), b"10.1."),
        "a foreign newest lease" => overwrite(&store.file("last_reserved_ip.0"), b"10.9.9.9"),
        "no record" => fs::remove_file(record()).unwrap(),
        "an empty record" => overwrite(&record(), b""),
        "a torn record" => overwrite(&record(), b"{\"container\":\"b\","),
        "another's record" => {
            fs::copy(store.file(".headcni/owners/a@eth0"), record()).unwrap();
        }
        "no records" => fs::remove_dir_all(store.file(".headcni/owners")).unwrap(),
        "a directory among the records" => {
            fs::create_dir(store.file(".headcni/owners/c@eth0")).unwrap();
        }
        "a pipe among the records" => {
            let pipe = store.file(".headcni/owners/c@eth0");
            store
                .node
                .run(["mkfifo".as_ref(), pipe.as_os_str()])
                .unwrap();
        }
        "a directory for a map" => {
            let map = map();
            fs::remove_file(&map).unwrap();
            fs::create_dir(map).unwrap();
        }
        other => panic!("{other}?"),
    }
}

fn assert_healed(how: &str) {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/29", "fd00::/125"]);
    let of_a = BTreeSet::from_iter(store.add(Ours, "a", &conf));
    let of_b = BTreeSet::from_iter(store.add(Ours, "b", &conf));
    spoil(&store, how);
    let of_c = store.add(Ours, "c", &conf);
    assert_eq!(store.leases_of("a"), of_a);
    assert_eq!(store.leases_of("b"), of_b);
    assert_eq!(store.leases_of("c"), BTreeSet::from_iter(of_c));
    assert_ok(&store.call(Ours, "CHECK", "b", &conf));
    store.assert_error("ADD", "b", &conf, 102);
    for (container, left) in [("b", 4), ("a", 2), ("c", 0)] {
        store.del(Ours, container, &conf);
        assert_eq!(store.leases().len(), left, "after {container}");
    }
    for number in 0..5 {
        store.add(Ours, &format!("d{number}"), &conf);
    }
    store.assert_error("ADD", "late", &conf, 110);
}

#[rstest]
fn whatever_happens_to_maps_and_stamp_is_healed(
    #[values(
        "no index",
        "no map",
        "a map that says free",
        "a map that says full",
        "a short map",
        "a long map",
        "a lock without a stamp",
        "a foreign stamp",
        "no lock",
        "an unfinished lease that is torn",
        "no newest lease",
        "a torn newest lease",
        "a foreign newest lease"
    )]
    how: &str,
) {
    assert_healed(how);
}

#[rstest]
fn whatever_happens_to_maps_of_other_subnets_is_healed(
    #[values("a map of another subnet", "a map of everything")] how: &str,
) {
    assert_healed(how);
}

#[rstest]
fn whatever_happens_to_a_record_is_healed(
    #[values(
        "no record",
        "no records",
        "an empty record",
        "a torn record",
        "another's record",
        "a directory among the records",
        "a pipe among the records",
        "a directory for a map"
    )]
    how: &str,
) {
    assert_healed(how);
}
