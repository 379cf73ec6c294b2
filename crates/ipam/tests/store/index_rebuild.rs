//! A damaged index is rebuilt from the address files, and no lease is lost.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use lab::Netns;
use rstest::rstest;

use crate::store_node::Plugin::Ours;
use crate::store_node::{StoreNode, assert_ok, overwrite};

/// Finds an index file by its prefix.
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

/// Damages the index of a store in which `a` and `b` have leases.
fn damage_index(store: &StoreNode, damage: &str) {
    let map = || indexed(store, ".headcni/used.10");
    let record = || store.file(".headcni/owners/b@eth0");
    let size = || usize::try_from(map().metadata().unwrap().len()).unwrap();
    match damage {
        "no index" => fs::remove_dir_all(store.file(".headcni")).unwrap(),
        "no bitmap" => fs::remove_file(map()).unwrap(),
        "an all-free bitmap" => overwrite(&map(), &vec![0; size()]),
        "an all-used bitmap" => overwrite(&map(), &vec![0xff; size()]),
        "a short bitmap" => overwrite(&map(), b""),
        "a long bitmap" => overwrite(&map(), &[0xff; 4096]),
        "a bitmap of another subnet" => overwrite(&store.file(".headcni/used.10.1.0.0-16"), b""),
        "a bitmap of 0.0.0.0/0" => overwrite(&store.file(".headcni/used.0.0.0.0-0"), b"x"),
        "a lock without a stamp" => overwrite(&store.file("lock"), b""),
        "a foreign stamp" => overwrite(&store.file("lock"), &[b'x'; 4096]),
        "no lock" => fs::remove_file(store.file("lock")).unwrap(),
        "a torn pending file" => overwrite(&store.file(".headcni/pending"), b"{"),
        "no last_reserved_ip" => fs::remove_file(store.file("last_reserved_ip.0")).unwrap(),
        "a torn last_reserved_ip" => overwrite(&store.file("last_reserved_ip.0"), b"10.1."),
        "a foreign last_reserved_ip" => overwrite(&store.file("last_reserved_ip.0"), b"10.9.9.9"),
        "no record" => fs::remove_file(record()).unwrap(),
        "an empty record" => overwrite(&record(), b""),
        "a torn record" => overwrite(&record(), b"{\"container\":\"b\","),
        "the record of another owner" => {
            fs::copy(store.file(".headcni/owners/a@eth0"), record()).unwrap();
        }
        "no records" => fs::remove_dir_all(store.file(".headcni/owners")).unwrap(),
        "a directory among the records" => {
            fs::create_dir(store.file(".headcni/owners/c@eth0")).unwrap();
        }
        "a FIFO among the records" => {
            let pipe = store.file(".headcni/owners/c@eth0");
            store
                .node
                .run(["mkfifo".as_ref(), pipe.as_os_str()])
                .unwrap();
        }
        "a directory in place of a bitmap" => {
            let map = map();
            fs::remove_file(&map).unwrap();
            fs::create_dir(map).unwrap();
        }
        other => panic!("unknown damage {other}"),
    }
}

#[rstest]
fn a_damaged_index_is_rebuilt(
    #[values(
        "no index",
        "no bitmap",
        "an all-free bitmap",
        "an all-used bitmap",
        "a short bitmap",
        "a long bitmap",
        "a lock without a stamp",
        "a foreign stamp",
        "no lock",
        "a torn pending file",
        "no last_reserved_ip",
        "a torn last_reserved_ip",
        "a foreign last_reserved_ip",
        "no record",
        "no records",
        "an empty record",
        "a torn record",
        "the record of another owner",
        "a directory among the records",
        "a FIFO among the records",
        "a directory in place of a bitmap",
        "a bitmap of another subnet",
        "a bitmap of 0.0.0.0/0"
    )]
    damage: &str,
) {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/29", "fd00::/125"]);
    let of_a = BTreeSet::from_iter(store.add(Ours, "a", &conf));
    let of_b = BTreeSet::from_iter(store.add(Ours, "b", &conf));
    damage_index(&store, damage);
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
