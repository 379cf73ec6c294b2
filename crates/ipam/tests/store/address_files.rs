//! How files get their names: by a rename that replaces nothing, of what a release has left. File
//! systems that know no such rename have NFS for an example; strace plays one.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::PathBuf;

use lab::{Call, Netns};
use rstest::rstest;
use serde_json::Value;

use crate::faults::{Moment, fail_at, in_store, moments};
use crate::store_node::Plugin::{HostLocal, Ours};
use crate::store_node::{StoreNode, call, assert_ok, overwrite};

/// A store in which `x` has a lease, and all that an ADD does in it.
fn stage() -> (StoreNode, Value, Vec<Moment>) {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/29"]);
    store.add(Ours, "x", &conf);
    let moments = in_store(&store, moments(&store, &call("ADD", "a", &conf)));
    store.del(Ours, "a", &conf);
    (store, conf, moments)
}

/// The moment in which a file is given its name.
fn naming(moments: &[Moment]) -> Moment {
    let is_naming = |moment: &&Moment| moment.line.contains("RENAME_NOREPLACE");
    moments.iter().find(is_naming).unwrap().clone()
}

fn spare(store: &StoreNode) -> PathBuf {
    store.file(".headcni/new.0")
}

fn file_of(store: &StoreNode, container: &str) -> PathBuf {
    let leased = store.leases_of(container);
    store.file(leased.first().unwrap())
}

#[rstest]
fn leases_are_made_where_every_rename_replaces(
    #[values("EINVAL", "ENOSYS", "EOPNOTSUPP")] errno: &str,
) {
    let (store, conf, moments) = stage();
    let add = call("ADD", "a", &conf);
    assert_ok(&fail_at(&store, &add, &naming(&moments), errno));
    assert_eq!(store.leases_of("a").len(), 1);
    assert_eq!(file_of(&store, "a").metadata().unwrap().nlink(), 1);
    assert!(!spare(&store).exists());
}

#[test]
fn an_add_killed_at_any_system_call_is_undone_or_done() {
    let (store, conf, usual) = stage();
    let unsupported = naming(&usual).fail("EINVAL");
    let add = call("ADD", "a", &conf).inject(unsupported);
    let moments = in_store(&store, moments(&store, &add));
    assert!(moments.iter().any(|moment| moment.name.starts_with("link")));
    store.del(Ours, "a", &conf);
    // One thing at a time can happen to one kind of system call.
    let is_other = |moment: &&Moment| !moment.name.starts_with("rename");
    for moment in moments.iter().filter(is_other) {
        store.run(Ours, &add.clone().inject(moment.kill()));
        let leased = store.add(Ours, "n", &conf);
        assert_eq!(store.leases_of("n"), BTreeSet::from_iter(leased));
        assert_eq!(store.leases_of("x").len(), 1, "{moment:?}");
        for container in ["a", "n"] {
            store.del(Ours, container, &conf);
        }
        assert_eq!(store.leases().len(), 1, "{moment:?}");
    }
}

#[test]
fn a_file_that_keeps_its_first_name_is_no_lease() {
    let (store, conf, usual) = stage();
    let unsupported = naming(&usual).fail("EINVAL");
    let add = |container: &str| -> Call { call("ADD", container, &conf).inject(unsupported.clone()) };
    let all = moments(&store, &add("a"));
    store.del(Ours, "a", &conf);
    let is_removal = |m: &&Moment| m.name.starts_with("unlink") && m.line.contains("new.0");
    let stuck = all.iter().rfind(is_removal).unwrap().fail("EIO");
    let refused = store.run(Ours, &add("a").inject(stuck));
    assert!(!refused.status.success(), "{refused:?}");
    assert!(store.leases_of("a").is_empty());
    assert_ok(&store.run(Ours, &add("b")));
    assert_eq!(store.leases_of("b").len(), 1);
    assert_eq!(store.leases_of("x").len(), 1);
}

#[test]
fn a_lease_takes_the_file_that_a_release_has_left() {
    let store = StoreNode::new();
    let conf = store.subnets(&["10.1.0.0/29", "fd00::/125"]);
    let inodes = |container: &str| -> BTreeSet<u64> {
        let leased = store.leases_of(container);
        let metadata = leased.iter().map(|ip| store.file(ip).metadata().unwrap());
        metadata.map(|metadata| metadata.ino()).collect()
    };
    store.add(Ours, "a-long-name-of-a-container", &conf);
    let of_first = inodes("a-long-name-of-a-container");
    store.del(Ours, "a-long-name-of-a-container", &conf);
    store.add(Ours, "b", &conf);
    assert_eq!(inodes("b"), of_first);
    let file = fs::read_to_string(file_of(&store, "b")).unwrap();
    assert_eq!(file, "b\r\neth0", "nothing of the first one is left in it");
    // One that is left is enough: the second release leaves none beside it.
    store.add(Ours, "c", &conf);
    for container in ["b", "c"] {
        store.del(Ours, container, &conf);
    }
    assert!(store.leases().is_empty());
    let leased = store.add(HostLocal, "d", &conf);
    assert_eq!(store.leases_of("d"), BTreeSet::from_iter(leased));
}

#[rstest]
fn something_else_in_place_of_what_was_left_is_replaced(
    #[values("a link", "a pipe", "an empty file", "a long file")] what: &str,
) {
    let (store, conf, _) = stage();
    let (spare, elsewhere) = (spare(&store), store.data_dir().join("elsewhere"));
    overwrite(&elsewhere, b"important");
    fs::remove_file(&spare).unwrap();
    match what {
        "a link" => symlink(&elsewhere, &spare).unwrap(),
        "a pipe" => drop(
            store
                .node
                .run(["mkfifo".as_ref(), spare.as_os_str()])
                .unwrap(),
        ),
        "an empty file" => overwrite(&spare, b""),
        _ => overwrite(&spare, &[b'x'; 10_000]),
    }
    store.add(Ours, "a", &conf);
    let file = file_of(&store, "a");
    assert!(file.symlink_metadata().unwrap().is_file());
    assert_eq!(fs::read_to_string(&file).unwrap(), "a\r\neth0");
    assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "important");
}
