//! How files get their names: by a rename that replaces nothing, of what a release has left. File
//! systems that know no such rename have NFS for an example; strace plays one.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::PathBuf;

use lab::{Call, Netns};
use rstest::rstest;
use serde_json::Value;

use crate::killing::{Moment, fail_at, in_store, moments};
use crate::scene::Plugin::{HostLocal, Ours};
use crate::scene::{Scene, call, done, overwrite};

/// A store in which `x` has a lease, and all that an ADD does in it.
fn stage() -> (Scene, Value, Vec<Moment>) {
    let scene = Scene::new();
    let conf = scene.subnets(&["10.1.0.0/29"]);
    scene.add(Ours, "x", &conf);
    let moments = in_store(&scene, moments(&scene, &call("ADD", "a", &conf)));
    scene.del(Ours, "a", &conf);
    (scene, conf, moments)
}

/// The moment in which a file is given its name.
fn naming(moments: &[Moment]) -> Moment {
    let is_naming = |moment: &&Moment| moment.line.contains("RENAME_NOREPLACE");
    moments.iter().find(is_naming).unwrap().clone()
}

fn spare(scene: &Scene) -> PathBuf {
    scene.file(".headcni/new.0")
}

fn file_of(scene: &Scene, who: &str) -> PathBuf {
    let leased = scene.leases_of(who);
    scene.file(leased.first().unwrap())
}

#[rstest]
fn leases_are_made_where_every_rename_replaces(
    #[values("EINVAL", "ENOSYS", "EOPNOTSUPP")] errno: &str,
) {
    let (scene, conf, moments) = stage();
    let add = call("ADD", "a", &conf);
    done(&fail_at(&scene, &add, &naming(&moments), errno));
    assert_eq!(scene.leases_of("a").len(), 1);
    assert_eq!(file_of(&scene, "a").metadata().unwrap().nlink(), 1);
    assert!(!spare(&scene).exists());
}

#[test]
fn an_add_killed_at_any_system_call_is_undone_or_done() {
    let (scene, conf, usual) = stage();
    let unsupported = naming(&usual).fail("EINVAL");
    let add = call("ADD", "a", &conf).inject(unsupported);
    let moments = in_store(&scene, moments(&scene, &add));
    assert!(moments.iter().any(|moment| moment.name.starts_with("link")));
    scene.del(Ours, "a", &conf);
    // One thing at a time can happen to one kind of system call.
    let is_other = |moment: &&Moment| !moment.name.starts_with("rename");
    for moment in moments.iter().filter(is_other) {
        scene.run(Ours, &add.clone().inject(moment.kill()));
        let given = scene.add(Ours, "n", &conf);
        assert_eq!(scene.leases_of("n"), BTreeSet::from_iter(given));
        assert_eq!(scene.leases_of("x").len(), 1, "{moment:?}");
        for who in ["a", "n"] {
            scene.del(Ours, who, &conf);
        }
        assert_eq!(scene.leases().len(), 1, "{moment:?}");
    }
}

#[test]
fn a_file_that_keeps_its_first_name_is_no_lease() {
    let (scene, conf, usual) = stage();
    let unsupported = naming(&usual).fail("EINVAL");
    let add = |who: &str| -> Call { call("ADD", who, &conf).inject(unsupported.clone()) };
    let all = moments(&scene, &add("a"));
    scene.del(Ours, "a", &conf);
    let is_removal = |m: &&Moment| m.name.starts_with("unlink") && m.line.contains("new.0");
    let stuck = all.iter().rfind(is_removal).unwrap().fail("EIO");
    let refused = scene.run(Ours, &add("a").inject(stuck));
    assert!(!refused.status.success(), "{refused:?}");
    assert!(scene.leases_of("a").is_empty());
    done(&scene.run(Ours, &add("b")));
    assert_eq!(scene.leases_of("b").len(), 1);
    assert_eq!(scene.leases_of("x").len(), 1);
}

#[test]
fn a_lease_takes_the_file_that_a_release_has_left() {
    let scene = Scene::new();
    let conf = scene.subnets(&["10.1.0.0/29", "fd00::/125"]);
    let inodes = |who: &str| -> BTreeSet<u64> {
        let leased = scene.leases_of(who);
        let metadata = leased.iter().map(|ip| scene.file(ip).metadata().unwrap());
        metadata.map(|metadata| metadata.ino()).collect()
    };
    scene.add(Ours, "a-long-name-of-a-container", &conf);
    let of_first = inodes("a-long-name-of-a-container");
    scene.del(Ours, "a-long-name-of-a-container", &conf);
    scene.add(Ours, "b", &conf);
    assert_eq!(inodes("b"), of_first);
    let file = fs::read_to_string(file_of(&scene, "b")).unwrap();
    assert_eq!(file, "b\r\neth0", "nothing of the first one is left in it");
    // One that is left is enough: the second release leaves none beside it.
    scene.add(Ours, "c", &conf);
    for who in ["b", "c"] {
        scene.del(Ours, who, &conf);
    }
    assert!(scene.leases().is_empty());
    let given = scene.add(HostLocal, "d", &conf);
    assert_eq!(scene.leases_of("d"), BTreeSet::from_iter(given));
}

#[rstest]
fn something_else_in_place_of_what_was_left_is_replaced(
    #[values("a link", "a pipe", "an empty file", "a long file")] what: &str,
) {
    let (scene, conf, _) = stage();
    let (spare, elsewhere) = (spare(&scene), scene.data_dir().join("elsewhere"));
    overwrite(&elsewhere, b"important");
    fs::remove_file(&spare).unwrap();
    match what {
        "a link" => symlink(&elsewhere, &spare).unwrap(),
        "a pipe" => drop(
            scene
                .node
                .run(["mkfifo".as_ref(), spare.as_os_str()])
                .unwrap(),
        ),
        "an empty file" => overwrite(&spare, b""),
        _ => overwrite(&spare, &[b'x'; 10_000]),
    }
    scene.add(Ours, "a", &conf);
    let file = file_of(&scene, "a");
    assert!(file.symlink_metadata().unwrap().is_file());
    assert_eq!(fs::read_to_string(&file).unwrap(), "a\r\neth0");
    assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "important");
}
