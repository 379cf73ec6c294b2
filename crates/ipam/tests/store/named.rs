//! File systems that know no files without a name: NFS, FUSE and others. strace plays one.

use std::collections::BTreeSet;

use lab::Call;
use serde_json::Value;

use crate::killing::{Moment, fail_at, in_store, moments};
use crate::scene::Plugin::Ours;
use crate::scene::{Scene, call, done};

/// A store in which `x` has a lease, and what makes an ADD do without nameless files.
fn stage() -> (Scene, Value, Vec<Moment>) {
    let scene = Scene::new();
    let conf = scene.subnets(&["10.1.0.0/29"]);
    scene.add(Ours, "x", &conf);
    let moments = in_store(&scene, moments(&scene, &call("ADD", "a", &conf)));
    scene.del(Ours, "a", &conf);
    (scene, conf, moments)
}

fn find(moments: &[Moment], part: &str) -> Moment {
    let found = moments.iter().find(|moment| moment.line.contains(part));
    found.unwrap().clone()
}

fn has_temporary_files(scene: &Scene) -> bool {
    let files = scene.files();
    files.keys().any(|path| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with("new.")
    })
}

#[test]
fn leases_are_made_all_the_same() {
    let (scene, conf, moments) = stage();
    for (part, errno) in [
        ("O_TMPFILE", "EOPNOTSUPP"),
        ("O_TMPFILE", "EISDIR"),
        ("AT_EMPTY_PATH", "ENOENT"),
    ] {
        let add = call("ADD", "a", &conf);
        done(&fail_at(&scene, &add, &find(&moments, part), errno));
        assert_eq!(scene.leases_of("a").len(), 1, "without {part}");
        assert!(!has_temporary_files(&scene));
        scene.del(Ours, "a", &conf);
    }
}

#[test]
fn an_add_killed_at_any_system_call_is_undone_or_done() {
    let (scene, conf, usual) = stage();
    let unsupported = find(&usual, "O_TMPFILE").fail("EOPNOTSUPP");
    let add = call("ADD", "a", &conf);
    let moments = in_store(
        &scene,
        moments(&scene, &add.clone().inject(unsupported.clone())),
    );
    assert!(moments.iter().any(|moment| moment.line.contains("new.0")));
    scene.del(Ours, "a", &conf);
    // One thing at a time can happen to one kind of system call.
    for moment in moments
        .iter()
        .filter(|moment| !moment.name.starts_with("open"))
    {
        let killed = add
            .clone()
            .inject(unsupported.clone())
            .inject(moment.kill());
        scene.run(Ours, &killed);
        let given = scene.add(Ours, "n", &conf);
        assert_eq!(scene.leases_of("n"), BTreeSet::from_iter(given));
        assert_eq!(scene.leases_of("x").len(), 1, "{moment:?}");
        assert!(!has_temporary_files(&scene), "{moment:?}");
        for who in ["a", "n"] {
            scene.del(Ours, who, &conf);
        }
        assert_eq!(scene.leases().len(), 1, "{moment:?}");
    }
}

#[test]
fn a_temporary_name_that_could_not_be_removed_spoils_no_lease() {
    let (scene, conf, usual) = stage();
    let unsupported = find(&usual, "O_TMPFILE").fail("EOPNOTSUPP");
    let add = |who: &str| -> Call { call("ADD", who, &conf) };
    let all = moments(&scene, &add("a").inject(unsupported.clone()));
    let is_removal = |m: &&Moment| m.name.starts_with("unlink") && m.line.contains("new.0");
    let stuck = all.iter().rfind(is_removal).unwrap().fail("EIO");
    scene.del(Ours, "a", &conf);
    done(&scene.run(Ours, &add("a").inject(unsupported.clone()).inject(stuck)));
    let of_a = scene.leases_of("a");
    assert_eq!(of_a.len(), 1);
    done(&scene.run(Ours, &add("b").inject(unsupported)));
    assert_eq!(scene.leases_of("a"), of_a, "{:?}", scene.leases());
    assert_eq!(scene.leases_of("b").len(), 1);
}
