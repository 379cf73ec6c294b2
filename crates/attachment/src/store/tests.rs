use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::process::Command;

use cni::{CniArgs, PluginType};
use serde_json::Map;
use tempfile::TempDir;

use super::*;
use crate::{Progress, RecordedPlugin, RecordedStep};

const SHORT: Duration = Duration::from_millis(50);
const LONG: Duration = Duration::from_secs(20);

fn cut(path: &Path, length: u64) {
    let file = File::options().write(true).open(path).unwrap();
    file.set_len(length).unwrap();
}

fn new_file(path: &Path) -> io::Result<File> {
    files::open(path, Access::Create)
}

fn attachment(container: &str, ifname: &str) -> Attachment {
    Attachment {
        container: ContainerId::new(container).unwrap(),
        ifname: IfName::new(ifname).unwrap(),
        netns: None,
        args: CniArgs::default(),
    }
}

fn store(directory: &TempDir) -> RecordStore {
    RecordStore::new(
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
            plugin: RecordedPlugin::Delegate {
                kind: PluginType::new("type", "bridge").unwrap(),
                config: Map::new(),
            },
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
    let locked = store(&directory)
        .lock_for_add(&attachment("a", "eth0"), SHORT)
        .unwrap();
    assert!(locked.load().unwrap().is_none());
    locked.save(&record()).unwrap();
    let read = locked.load().unwrap().unwrap();
    assert_eq!(read.args, "A=1");
    assert_eq!(read.steps[0].plugin, record().steps[0].plugin);

    let network = directory.path().join("data/net");
    assert_eq!(files(&network), ["a@eth0.json"]);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&network.join("a@eth0.json")), 0o600);
    assert_eq!(mode(&network), 0o700);
    assert_eq!(mode(network.parent().unwrap()), 0o700);
}

#[test]
fn parents_of_the_data_directory_are_readable_by_all() {
    let directory = TempDir::new().unwrap();
    let data_dir = directory.path().join("cni/headcni");
    let store = RecordStore::new(&data_dir, &NetworkName::new("net").unwrap());
    store.lock_for_add(&attachment("a", "eth0"), SHORT).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o005;
    assert_eq!(mode(data_dir.parent().unwrap()), 0o005);
}

#[test]
fn a_removed_record_leaves_no_file_and_no_directory() {
    let directory = TempDir::new().unwrap();
    let store = store(&directory);
    let of = attachment("a", "eth0");
    let locked = store.lock_for_add(&of, SHORT).unwrap();
    locked.save(&record()).unwrap();
    locked.remove().unwrap();
    assert!(!directory.path().join("data/net").exists());
    assert!(store.snapshot(&of).unwrap().is_none());
}

#[test]
fn names_of_containers_and_interfaces_are_not_confused() {
    let directory = TempDir::new().unwrap();
    let store = store(&directory);
    let all = [
        ("a", "eth0"),
        ("a", "net@1"),
        ("a-eth0", "x"),
        ("a.b", "eth0"),
    ];
    let locked: Vec<_> = all
        .iter()
        .map(|(container, ifname)| {
            store
                .lock_for_add(&attachment(container, ifname), SHORT)
                .unwrap()
        })
        .collect();
    locked[1].save(&record()).unwrap();
    let listed: Vec<_> = store.attachments().unwrap();
    let listed: Vec<_> = listed
        .iter()
        .map(|(c, i)| (c.as_str(), i.as_str()))
        .collect();
    assert_eq!(listed, all);
}

#[test]
fn a_locked_record_is_busy_after_the_timeout() {
    let directory = TempDir::new().unwrap();
    let store = store(&directory);
    let of = attachment("a", "eth0");
    let locked = store.lock_for_add(&of, SHORT).unwrap();
    let error = Error::from(store.lock(&of, SHORT).unwrap_err());
    assert_eq!(error.code, code::TRY_AGAIN_LATER);
    assert!(error.msg.contains("container a interface eth0"), "{error}");
    assert!(store.lock_for_add(&attachment("b", "eth0"), SHORT).is_ok());
    drop(locked);
    // With a timeout: a program started by another test may have inherited it for a moment.
    assert!(store.lock(&of, LONG).unwrap().is_some());
}

#[test]
fn a_process_left_behind_by_a_plugin_does_not_keep_the_lock() {
    let directory = TempDir::new().unwrap();
    let store = store(&directory);
    let of = attachment("a", "eth0");
    let locked = store.lock_for_add(&of, SHORT).unwrap();
    let mut child = Command::new("sleep").arg("600").spawn().unwrap();
    drop(locked);
    assert!(store.lock(&of, SHORT).unwrap().is_some());
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_waiter_for_a_removed_record_creates_a_new_one() {
    let directory = TempDir::new().unwrap();
    let store = store(&directory);
    let of = attachment("a", "eth0");
    let locked = store.lock_for_add(&of, SHORT).unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| store.lock_for_add(&of, LONG).unwrap());
        locked.remove().unwrap();
        let locked = waiting.join().unwrap();
        assert_eq!(
            files::metadata_if_at(&locked.path, &locked.file)
                .unwrap()
                .len(),
            0
        );
    });
}

#[test]
fn concurrent_adds_and_dels_survive_the_removal_of_the_directory() {
    let directory = TempDir::new().unwrap();
    let store = store(&directory);
    thread::scope(|scope| {
        for worker in 0..8 {
            let store = &store;
            scope.spawn(move || {
                for round in 0..50 {
                    let of = attachment(&format!("c{worker}-{round}"), "eth0");
                    let locked = store.lock_for_add(&of, LONG).unwrap();
                    locked.save(&record()).unwrap();
                    assert!(locked.load().unwrap().is_some());
                    locked.remove().unwrap();
                }
            });
        }
    });
    assert!(!directory.path().join("data/net").exists());
}

#[test]
fn a_truncated_record_is_damaged() {
    let directory = TempDir::new().unwrap();
    let locked = store(&directory)
        .lock_for_add(&attachment("a", "eth0"), SHORT)
        .unwrap();
    locked.save(&record()).unwrap();
    let whole = fs::read(&locked.path).unwrap();
    // Without the newline it is still whole.
    for length in [0, 1, whole.len() / 2, whole.len() - 2] {
        cut(&locked.path, length as u64);
        assert!(
            matches!(locked.load(), Err(RecordError::Damaged { .. })),
            "{length}"
        );
    }
}

#[test]
fn names_that_cannot_be_files_have_no_record() {
    let directory = TempDir::new().unwrap();
    let long = attachment(&"x".repeat(250), "eth0");
    assert!(store(&directory).lock(&long, SHORT).unwrap().is_none());
    new_file(&directory.path().join("file")).unwrap();
    let below = RecordStore::new(
        &directory.path().join("file/x"),
        &NetworkName::new("net").unwrap(),
    );
    assert!(
        below
            .lock(&attachment("a", "eth0"), SHORT)
            .unwrap()
            .is_none()
    );
}

#[test]
fn after_a_truncated_line_the_previous_one_counts() {
    let directory = TempDir::new().unwrap();
    let locked = store(&directory)
        .lock_for_add(&attachment("a", "eth0"), SHORT)
        .unwrap();
    locked.save(&record()).unwrap();
    let first = fs::metadata(&locked.path).unwrap().len();
    locked
        .save(&Record {
            progress: Progress::Done,
            ..record()
        })
        .unwrap();
    assert_eq!(locked.load().unwrap().unwrap().progress, Progress::Done);
    for length in [first, first + 1, first + 20] {
        cut(&locked.path, length);
        assert_eq!(locked.load().unwrap().unwrap().progress, Progress::Started);
    }
}

#[test]
fn the_first_save_replaces_an_earlier_record() {
    let directory = TempDir::new().unwrap();
    let store = store(&directory);
    let of = attachment("a", "eth0");
    store
        .lock_for_add(&of, SHORT)
        .unwrap()
        .save(&record())
        .unwrap();
    let once = fs::read(store.path(&of)).unwrap();
    store
        .lock_for_add(&of, LONG)
        .unwrap()
        .save(&record())
        .unwrap();
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
fn errors_name_the_directory() {
    let directory = TempDir::new().unwrap();
    new_file(&directory.path().join("data")).unwrap();
    let store = store(&directory);
    let error = Error::from(
        store
            .lock_for_add(&attachment("a", "eth0"), SHORT)
            .unwrap_err(),
    );
    assert_eq!(error.code, code::IO_FAILURE);
    assert!(
        error.msg.contains(directory.path().to_str().unwrap()),
        "{error}"
    );
    assert!(store.check_writable().is_err());
}

#[test]
fn the_write_probe_leaves_no_file_and_no_directory() {
    let directory = TempDir::new().unwrap();
    store(&directory).check_writable().unwrap();
    assert!(
        files(&directory.path().join("data")).is_empty(),
        "an empty directory was left"
    );
}

#[test]
fn every_write_changes_the_stamp() {
    let directory = TempDir::new().unwrap();
    let (store, of) = (store(&directory), attachment("box", "eth0"));
    assert!(store.snapshot(&of).unwrap().is_none());

    let locked = store.lock_for_add(&of, SHORT).unwrap();
    let empty = store.snapshot(&of).unwrap().unwrap();
    assert!(matches!(empty.content, RecordContent::Empty));
    locked.save(&record()).unwrap();
    let begun = store.snapshot(&of).unwrap().unwrap();
    assert!(matches!(&begun.content, RecordContent::Whole(record) if record.args == "A=1"));
    assert_ne!(empty.stamp, begun.stamp);
    assert_eq!(locked.stamp().unwrap(), begun.stamp);
    assert!(begun.stamp.is(&begun.stamp.to_string()));
    locked.save(&record()).unwrap();
    assert_ne!(locked.stamp().unwrap(), begun.stamp);
    drop(locked);

    let path = store.path(&of);
    cut(&path, 5);
    let torn = store.snapshot(&of).unwrap().unwrap();
    assert!(matches!(torn.content, RecordContent::Damaged));
}

#[test]
fn try_lock_neither_waits_nor_creates_a_record() {
    let directory = TempDir::new().unwrap();
    let (store, of) = (store(&directory), attachment("box", "eth0"));
    assert!(store.try_lock(&of).unwrap().is_none());
    assert_eq!(files(directory.path()), [""; 0]);

    let locked = store.lock_for_add(&of, SHORT).unwrap();
    assert!(matches!(store.try_lock(&of), Err(RecordError::Busy { .. })));
    drop(locked);
    assert!(store.try_lock(&of).unwrap().is_some());
}

#[test]
fn executed_programs_do_not_inherit_the_lock_of_try_lock() {
    let directory = TempDir::new().unwrap();
    let (store, of) = (store(&directory), attachment("box", "eth0"));
    drop(store.lock_for_add(&of, SHORT).unwrap());
    let locked = store.try_lock(&of).unwrap().unwrap();
    let fds = Command::new("ls")
        .args(["-l", "/proc/self/fd"])
        .output()
        .unwrap();
    let fds = String::from_utf8(fds.stdout).unwrap();
    assert!(!fds.contains("box@eth0"), "{fds}");
    drop(locked);
}

#[test]
fn networks_are_directories_with_a_valid_name() {
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

/// Attachments whose records use the same slot.
fn same_slot(store: &RecordStore) -> (Attachment, Attachment) {
    let first = attachment("a", "eth0");
    let slot_of = |of: &Attachment| {
        drop(store.lock_for_add(of, LONG).unwrap());
        let inode = fs::metadata(store.path(of)).unwrap().ino();
        let locked = store.lock(of, LONG).unwrap().unwrap();
        locked.remove().unwrap();
        inode
    };
    // Without another record, the directory would be removed with all spares.
    drop(
        store
            .lock_for_add(&attachment("stays", "eth0"), LONG)
            .unwrap(),
    );
    let inode = slot_of(&first);
    let second = (0..10_000).find_map(|number| {
        let of = attachment(&format!("b{number}"), "eth0");
        (slot_of(&of) == inode).then_some(of)
    });
    (first, second.unwrap())
}

#[test]
fn a_waiter_for_a_recycled_record_creates_a_new_one() {
    // The waiter may come too late to wait for that file.
    let is_shown = |_| waited_for_a_recycled_record();
    assert!((0..20).any(is_shown), "the waiter was always too late");
}

/// Whether the other attachment has got the file that was waited for.
fn waited_for_a_recycled_record() -> bool {
    let directory = TempDir::new().unwrap();
    let store = store(&directory);
    let (first, second) = same_slot(&store);
    let locked = store.lock_for_add(&first, LONG).unwrap();
    locked.save(&record()).unwrap();
    let inode = locked.file.metadata().unwrap().ino();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| store.lock(&first, LONG).unwrap().unwrap());
        locked.remove().unwrap();
        let other = store.lock_for_add(&second, LONG).unwrap();
        other.save(&record()).unwrap();
        drop(other);
        let waited = waiting.join().unwrap();
        assert!(
            waited.load().unwrap().is_none(),
            "it has the record of the other"
        );
        waited.remove().unwrap();
    });
    let other = store.snapshot(&second).unwrap().unwrap();
    assert!(matches!(other.content, RecordContent::Whole(_)));
    assert!(store.snapshot(&first).unwrap().is_none());
    fs::metadata(store.path(&second)).unwrap().ino() == inode
}

#[test]
fn a_spare_is_not_a_record() {
    let directory = TempDir::new().unwrap();
    let store = store(&directory);
    let (first, second) = same_slot(&store);
    let spares = files(&directory.path().join("data/net"));
    assert!(spares.iter().any(|name| name.starts_with("new.")));
    let listed = store.attachments().unwrap();
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert!(store.snapshot(&first).unwrap().is_none());
    assert!(store.try_lock(&second).unwrap().is_none());
}

#[test]
fn a_snapshot_never_has_the_record_of_another_attachment() {
    let directory = TempDir::new().unwrap();
    let store = store(&directory);
    let (first, second) = same_slot(&store);
    let rounds = |of: &Attachment| {
        for _ in 0..300 {
            let locked = store.lock_for_add(of, LONG).unwrap();
            locked
                .save(&Record {
                    args: format!("A={}", of.container),
                    ..record()
                })
                .unwrap();
            locked.remove().unwrap();
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
                    if let Some(snapshot) = store.snapshot(of).unwrap()
                        && let RecordContent::Whole(record) = snapshot.content
                    {
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
