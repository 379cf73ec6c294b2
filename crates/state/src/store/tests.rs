use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::process::Command;

use cni::CniArgs;
use serde_json::Map;
use tempfile::TempDir;

use super::*;
use crate::{Progress, RecordedStep};

const SHORT: Duration = Duration::from_millis(50);
const LONG: Duration = Duration::from_secs(20);

fn cut(path: &Path, length: u64) {
    let file = File::options().write(true).open(path).unwrap();
    file.set_len(length).unwrap();
}

fn new_file(path: &Path) -> io::Result<File> {
    files::open(path, Purpose::Make)
}

fn attachment(container: &str, ifname: &str) -> Attachment {
    Attachment {
        container: ContainerId::new(container).unwrap(),
        ifname: IfName::new(ifname).unwrap(),
        netns: None,
        args: CniArgs::default(),
    }
}

fn store(directory: &TempDir) -> Store {
    Store::new(
        &directory.path().join("data"),
        &NetworkName::new("net").unwrap(),
    )
}

fn record() -> Record {
    Record {
        boot: boot_id().to_owned(),
        netns: None,
        netns_identity: None,
        args: "A=1".to_owned(),
        progress: Progress::Started,
        steps: vec![RecordedStep {
            index: 0,
            kind: "bridge".to_owned(),
            config: Map::new(),
            progress: Progress::Done,
        }],
        result: None,
    }
}

fn files(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_record_reads_back_and_is_private() {
    let directory = TempDir::new().unwrap();
    let held = store(&directory)
        .hold_new(&attachment("a", "eth0"), SHORT)
        .unwrap();
    assert!(held.load().unwrap().is_none());
    held.save(&record()).unwrap();
    let read = held.load().unwrap().unwrap();
    assert_eq!(
        (read.args.as_str(), read.steps[0].kind.as_str()),
        ("A=1", "bridge")
    );

    let network = directory.path().join("data/net");
    assert_eq!(files(&network), ["a@eth0.json"]);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&network.join("a@eth0.json")), 0o600);
    assert_eq!(mode(&network), 0o700);
    assert_eq!(mode(network.parent().unwrap()), 0o700);
}

#[test]
fn directories_above_ours_stay_open_to_others() {
    let directory = TempDir::new().unwrap();
    let data_dir = directory.path().join("cni/headcni");
    let store = Store::new(&data_dir, &NetworkName::new("net").unwrap());
    store.hold_new(&attachment("a", "eth0"), SHORT).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o005;
    assert_eq!(mode(data_dir.parent().unwrap()), 0o005);
}

#[test]
fn what_is_forgotten_leaves_nothing() {
    let directory = TempDir::new().unwrap();
    let store = store(&directory);
    let of = attachment("a", "eth0");
    let held = store.hold_new(&of, SHORT).unwrap();
    held.save(&record()).unwrap();
    held.remove().unwrap();
    assert!(!directory.path().join("data/net").exists());
    assert!(store.peek(&of).is_none());
}

#[test]
fn containers_and_interfaces_are_told_apart() {
    let directory = TempDir::new().unwrap();
    let store = store(&directory);
    let all = [
        ("a", "eth0"),
        ("a", "net@1"),
        ("a-eth0", "x"),
        ("a.b", "eth0"),
    ];
    let held: Vec<_> = all
        .iter()
        .map(|(container, ifname)| {
            store
                .hold_new(&attachment(container, ifname), SHORT)
                .unwrap()
        })
        .collect();
    held[1].save(&record()).unwrap();
    let listed: Vec<_> = store.attachments().unwrap();
    let listed: Vec<_> = listed
        .iter()
        .map(|(c, i)| (c.as_str(), i.as_str()))
        .collect();
    assert_eq!(listed, all);
}

#[test]
fn a_held_attachment_makes_others_wait_and_then_say_so() {
    let directory = TempDir::new().unwrap();
    let store = store(&directory);
    let of = attachment("a", "eth0");
    let held = store.hold_new(&of, SHORT).unwrap();
    let error = Error::from(store.hold_any(&of, SHORT).unwrap_err());
    assert_eq!(error.code, code::TRY_AGAIN_LATER);
    assert!(error.msg.contains("container a interface eth0"), "{error}");
    assert!(store.hold_new(&attachment("b", "eth0"), SHORT).is_ok());
    drop(held);
    // Not at once: a program that another test starts may have inherited it for a moment.
    assert!(store.hold_any(&of, LONG).unwrap().is_some());
}

#[test]
fn a_program_that_was_left_behind_does_not_hold_the_attachment() {
    let directory = TempDir::new().unwrap();
    let store = store(&directory);
    let of = attachment("a", "eth0");
    let held = store.hold_new(&of, SHORT).unwrap();
    let mut child = Command::new("sleep").arg("600").spawn().unwrap();
    drop(held);
    assert!(store.hold_any(&of, SHORT).unwrap().is_some());
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn whoever_waits_for_a_removed_lock_starts_afresh() {
    let directory = TempDir::new().unwrap();
    let store = store(&directory);
    let of = attachment("a", "eth0");
    let held = store.hold_new(&of, SHORT).unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| store.hold_new(&of, LONG).unwrap());
        held.remove().unwrap();
        let held = waiting.join().unwrap();
        assert_eq!(
            files::metadata_if_at(&held.path, &held.file).unwrap().len(),
            0
        );
    });
}

#[test]
fn many_at_once_never_lose_a_record_to_a_vanishing_directory() {
    let directory = TempDir::new().unwrap();
    let store = store(&directory);
    thread::scope(|scope| {
        for worker in 0..8 {
            let store = &store;
            scope.spawn(move || {
                for round in 0..50 {
                    let of = attachment(&format!("c{worker}-{round}"), "eth0");
                    let held = store.hold_new(&of, LONG).unwrap();
                    held.save(&record()).unwrap();
                    assert!(held.load().unwrap().is_some());
                    held.remove().unwrap();
                }
            });
        }
    });
    assert!(!directory.path().join("data/net").exists());
}

#[test]
fn a_torn_record_is_damaged_not_half_believed() {
    let directory = TempDir::new().unwrap();
    let held = store(&directory)
        .hold_new(&attachment("a", "eth0"), SHORT)
        .unwrap();
    held.save(&record()).unwrap();
    let whole = fs::read(&held.path).unwrap();
    // Without the line's end it is still whole.
    for length in [0, 1, whole.len() / 2, whole.len() - 2] {
        cut(&held.path, length as u64);
        assert!(
            matches!(held.load(), Err(StateError::Damaged { .. })),
            "{length}"
        );
    }
}

#[test]
fn what_can_never_have_been_is_nothing_to_undo() {
    let directory = TempDir::new().unwrap();
    let long = attachment(&"x".repeat(250), "eth0");
    assert!(store(&directory).hold_any(&long, SHORT).unwrap().is_none());
    new_file(&directory.path().join("file")).unwrap();
    let below = Store::new(
        &directory.path().join("file/x"),
        &NetworkName::new("net").unwrap(),
    );
    assert!(
        below
            .hold_any(&attachment("a", "eth0"), SHORT)
            .unwrap()
            .is_none()
    );
}

#[test]
fn a_line_that_was_cut_off_leaves_the_one_before() {
    let directory = TempDir::new().unwrap();
    let held = store(&directory)
        .hold_new(&attachment("a", "eth0"), SHORT)
        .unwrap();
    held.save(&record()).unwrap();
    let first = fs::metadata(&held.path).unwrap().len();
    held.save(&Record {
        progress: Progress::Done,
        ..record()
    })
    .unwrap();
    assert_eq!(held.load().unwrap().unwrap().progress, Progress::Done);
    for length in [first, first + 1, first + 20] {
        cut(&held.path, length);
        assert_eq!(held.load().unwrap().unwrap().progress, Progress::Started);
    }
}

#[test]
fn a_new_record_begins_afresh() {
    let directory = TempDir::new().unwrap();
    let store = store(&directory);
    let of = attachment("a", "eth0");
    store.hold_new(&of, SHORT).unwrap().save(&record()).unwrap();
    let once = fs::read(store.path(&of)).unwrap();
    store.hold_new(&of, LONG).unwrap().save(&record()).unwrap();
    assert_eq!(fs::read(store.path(&of)).unwrap(), once);
}

#[test]
fn foreign_files_are_neither_listed_nor_followed() {
    let directory = TempDir::new().unwrap();
    let store = store(&directory);
    let network = directory.path().join("data/net");
    fs::create_dir_all(network.join("sub@dir.d")).unwrap();
    symlink("/etc/passwd", network.join("..@x.json")).unwrap();
    new_file(&network.join("notes.txt")).unwrap();
    new_file(&network.join("@eth0.json")).unwrap();
    let listed = store.attachments().unwrap();
    assert!(
        listed
            .iter()
            .all(|(container, _)| container.as_str() == "sub"),
        "{listed:?}"
    );
}

#[test]
fn trouble_with_the_directory_is_told_by_its_path() {
    let directory = TempDir::new().unwrap();
    new_file(&directory.path().join("data")).unwrap();
    let store = store(&directory);
    let error = Error::from(store.hold_new(&attachment("a", "eth0"), SHORT).unwrap_err());
    assert_eq!(error.code, code::IO_FAILURE);
    assert!(
        error.msg.contains(directory.path().to_str().unwrap()),
        "{error}"
    );
    assert!(store.check_writable().is_err());
}

#[test]
fn a_probe_for_writing_leaves_nothing() {
    let directory = TempDir::new().unwrap();
    store(&directory).check_writable().unwrap();
    assert!(
        files(&directory.path().join("data")).is_empty(),
        "nor an empty directory"
    );
}

#[test]
fn a_look_tells_one_state_of_a_record_from_the_next() {
    let directory = TempDir::new().unwrap();
    let (store, of) = (store(&directory), attachment("box", "eth0"));
    assert!(store.look(&of).unwrap().is_none());

    let held = store.hold_new(&of, SHORT).unwrap();
    let empty = store.look(&of).unwrap().unwrap();
    assert!(matches!(empty.content, Content::Empty));
    held.save(&record()).unwrap();
    let begun = store.look(&of).unwrap().unwrap();
    assert!(matches!(&begun.content, Content::Whole(record) if record.args == "A=1"));
    assert_ne!(empty.stamp, begun.stamp);
    assert_eq!(held.stamp().unwrap(), begun.stamp);
    assert!(begun.stamp.is(&begun.stamp.to_string()));
    held.save(&record()).unwrap();
    assert_ne!(held.stamp().unwrap(), begun.stamp);
    drop(held);

    let path = store.path(&of);
    cut(&path, 5);
    let torn = store.look(&of).unwrap().unwrap();
    assert!(matches!(torn.content, Content::Damaged));
}

#[test]
fn trying_to_hold_never_waits_and_makes_nothing() {
    let directory = TempDir::new().unwrap();
    let (store, of) = (store(&directory), attachment("box", "eth0"));
    assert!(store.try_hold(&of).unwrap().is_none());
    assert_eq!(files(directory.path()), [""; 0]);

    let held = store.hold_new(&of, SHORT).unwrap();
    assert!(matches!(store.try_hold(&of), Err(StateError::Busy { .. })));
    drop(held);
    assert!(store.try_hold(&of).unwrap().is_some());
}

#[test]
fn a_program_that_is_executed_meanwhile_does_not_hold_what_was_tried() {
    let directory = TempDir::new().unwrap();
    let (store, of) = (store(&directory), attachment("box", "eth0"));
    drop(store.hold_new(&of, SHORT).unwrap());
    let held = store.try_hold(&of).unwrap().unwrap();
    let fds = Command::new("ls")
        .args(["-l", "/proc/self/fd"])
        .output()
        .unwrap();
    let fds = String::from_utf8(fds.stdout).unwrap();
    assert!(!fds.contains("box@eth0"), "{fds}");
    drop(held);
}

#[test]
fn networks_are_directories_with_a_networks_name() {
    let directory = TempDir::new().unwrap();
    let data = directory.path().join("data");
    assert_eq!(networks(&data).unwrap(), []);
    for name in ["net", "b", ".hidden"] {
        fs::create_dir_all(data.join(name)).unwrap();
    }
    File::create(data.join("file")).unwrap();
    let names: Vec<_> = networks(&data).unwrap();
    let names: Vec<_> = names.iter().map(NetworkName::as_str).collect();
    assert_eq!(names, ["b", "net"]);
    assert!(networks(&data.join("file")).is_err());
}

/// Attachments that look for a spare in the same place, so that one gets what the other has left.
fn neighbours(store: &Store) -> (Attachment, Attachment) {
    let first = attachment("a", "eth0");
    let place = |of: &Attachment| {
        drop(store.hold_new(of, LONG).unwrap());
        let inode = fs::metadata(store.path(of)).unwrap().ino();
        let held = store.hold_any(of, LONG).unwrap().unwrap();
        held.remove().unwrap();
        inode
    };
    // Without another record, the directory would go with all spares.
    drop(store.hold_new(&attachment("stays", "eth0"), LONG).unwrap());
    let inode = place(&first);
    let second = (0..10_000).find_map(|number| {
        let of = attachment(&format!("b{number}"), "eth0");
        (place(&of) == inode).then_some(of)
    });
    (first, second.unwrap())
}

#[test]
fn whoever_waits_for_a_record_that_became_another_ones_starts_afresh() {
    // Whoever waits may come too late to wait for that file: then nothing was shown.
    let is_shown = |_| one_waits_while_a_record_becomes_another_ones();
    assert!((0..20).any(is_shown), "nobody has ever waited in time");
}

/// Whether the other one has got the very file that was waited for.
fn one_waits_while_a_record_becomes_another_ones() -> bool {
    let directory = TempDir::new().unwrap();
    let store = store(&directory);
    let (first, second) = neighbours(&store);
    let held = store.hold_new(&first, LONG).unwrap();
    held.save(&record()).unwrap();
    let inode = held.file.metadata().unwrap().ino();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| store.hold_any(&first, LONG).unwrap().unwrap());
        held.remove().unwrap();
        let other = store.hold_new(&second, LONG).unwrap();
        other.save(&record()).unwrap();
        drop(other);
        let waited = waiting.join().unwrap();
        assert!(waited.load().unwrap().is_none(), "it is not the other's");
        waited.remove().unwrap();
    });
    let theirs = store.look(&second).unwrap().unwrap();
    assert!(matches!(theirs.content, Content::Whole(_)));
    assert!(store.look(&first).unwrap().is_none());
    fs::metadata(store.path(&second)).unwrap().ino() == inode
}

#[test]
fn a_spare_is_no_record_to_anybody() {
    let directory = TempDir::new().unwrap();
    let store = store(&directory);
    let (first, second) = neighbours(&store);
    let spares = files(&directory.path().join("data/net"));
    assert!(spares.iter().any(|name| name.starts_with("new.")));
    let listed = store.attachments().unwrap();
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert!(store.peek(&first).is_none());
    assert!(store.try_hold(&second).unwrap().is_none());
}

#[test]
fn a_look_never_takes_one_attachments_record_for_anothers() {
    let directory = TempDir::new().unwrap();
    let store = store(&directory);
    let (first, second) = neighbours(&store);
    let rounds = |of: &Attachment| {
        for _ in 0..300 {
            let held = store.hold_new(of, LONG).unwrap();
            held.save(&Record {
                args: format!("A={}", of.container),
                ..record()
            })
            .unwrap();
            held.remove().unwrap();
        }
    };
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let order = std::sync::atomic::Ordering::Relaxed;
    thread::scope(|scope| {
        let works = [&first, &second].map(|of| scope.spawn(move || rounds(of)));
        for of in [&first, &second] {
            let (store, is_over) = (&store, &is_over);
            scope.spawn(move || {
                while !is_over.load(order) {
                    if let Some(record) = store.peek(of) {
                        assert_eq!(record.args, format!("A={}", of.container));
                    }
                }
            });
        }
        for work in works {
            work.join().unwrap();
        }
        is_over.store(true, order);
    });
}
