use std::io::Write;
use std::os::unix::fs::symlink;
use std::thread;

use rstest::rstest;
use tempfile::TempDir;

use super::*;

/// A directory of records, and the first slot of `a@eth0.json`.
struct Records {
    dir: TempDir,
    record: PathBuf,
    slot: PathBuf,
}

impl Records {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let record = dir.path().join("a@eth0.json");
        let slot = slots(&record).next().unwrap();
        Self { dir, record, slot }
    }

    fn spare(content: &str) -> Self {
        let records = Self::new();
        put(&records.slot, content);
        records
    }

    fn create(&self) -> Option<File> {
        create_locked(&self.record).unwrap()
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.dir.path()).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn spares(&self) -> usize {
        let names = self.names();
        names.iter().filter(|name| is_spare(name.as_ref())).count()
    }
}

fn put(path: &Path, content: &str) {
    let file = files::open(path, Access::Create).unwrap();
    (&file).write_all(content.as_bytes()).unwrap();
}

fn inode(path: &Path) -> u64 {
    path.metadata().unwrap().ino()
}

#[test]
fn a_removed_record_becomes_the_next_one_and_is_empty_private_and_locked() {
    let records = Records::new();
    let file = records.create().unwrap();
    (&file).write_all(b"old lines").unwrap();
    let before = inode(&records.record);
    retire(&records.record, &file).unwrap();
    assert_eq!((records.names().len(), records.spares()), (1, 1));
    assert_eq!(records.slot.metadata().unwrap().len(), 0);
    drop(file);

    let _file = records.create().unwrap();
    assert_eq!(records.names(), ["a@eth0.json"]);
    let metadata = records.record.metadata().unwrap();
    assert_eq!((metadata.ino(), metadata.len()), (before, 0));
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    assert!(File::open(&records.record).unwrap().try_lock().is_err());
}

#[test]
fn old_lines_of_a_spare_are_removed_before_it_is_a_record() {
    let records = Records::spare("lines of a removed record\n");
    let before = inode(&records.slot);
    let _file = records.create().unwrap();
    assert_eq!(inode(&records.record), before);
    assert_eq!(records.record.metadata().unwrap().len(), 0);
}

#[test]
fn a_readable_spare_is_private_before_it_is_a_record() {
    let records = Records::spare("");
    fs::set_permissions(&records.slot, Permissions::from_mode(0o644)).unwrap();
    let _file = records.create().unwrap();
    let mode = records.record.metadata().unwrap().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn an_existing_record_is_unchanged() {
    let records = Records::new();
    put(&records.record, "lines");
    let error = create_locked(&records.record).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert_eq!(fs::read(&records.record).unwrap(), b"lines");
    let spare = File::open(&records.slot).unwrap();
    assert!(spare.try_lock().is_ok(), "the spare is free again");
}

#[test]
fn a_locked_spare_is_skipped() {
    let records = Records::spare("");
    let other = File::open(&records.slot).unwrap();
    other.lock().unwrap();
    let _file = records.create().unwrap();
    assert_ne!(inode(&records.record), inode(&records.slot));
}

#[rstest]
#[case::link(|slot: &Path, victim: &Path| symlink(victim, slot).unwrap())]
#[case::dangling_link(|slot: &Path, _: &Path| symlink("nowhere", slot).unwrap())]
#[case::second_name(|slot: &Path, victim: &Path| fs::hard_link(victim, slot).unwrap())]
#[case::directory(|slot: &Path, _: &Path| fs::create_dir(slot).unwrap())]
fn foreign_files_are_neither_written_nor_taken(#[case] plant: fn(&Path, &Path)) {
    let records = Records::new();
    let victim = records.dir.path().join("victim");
    put(&victim, "precious");
    plant(&records.slot, &victim);
    let there = records.slot.symlink_metadata().unwrap().ino();

    let file = records.create().unwrap();
    (&file).write_all(b"lines").unwrap();
    retire(&records.record, &file).unwrap();
    assert_eq!(fs::read(&victim).unwrap(), b"precious");
    assert_eq!(records.slot.symlink_metadata().unwrap().ino(), there);
    drop(file);

    remove_dir_if_unused(records.dir.path());
    assert!(records.slot.symlink_metadata().is_ok());
    assert!(!records.dir.path().join("nowhere").exists());
}

#[test]
fn there_are_at_most_16_spares() {
    let records = Records::new();
    let record = |number: usize| records.dir.path().join(format!("{number}@eth0.json"));
    let made: Vec<_> = (0..2 * SLOTS)
        .map(|number| create_locked(&record(number)).unwrap().unwrap())
        .collect();
    for (number, file) in made.into_iter().enumerate() {
        retire(&record(number), &file).unwrap();
    }
    assert_eq!(records.names().len(), SLOTS);
    assert_eq!(records.spares(), SLOTS);
    remove_dir_if_unused(records.dir.path());
    assert!(!records.dir.path().exists());
}

#[test]
fn a_directory_with_a_record_keeps_its_spares() {
    let records = Records::spare("");
    put(&records.dir.path().join("b@eth0.json"), "lines");
    remove_dir_if_unused(records.dir.path());
    assert_eq!(records.names().len(), 2);
}

#[test]
fn a_name_too_long_for_a_file_leaves_no_spare() {
    let records = Records::new();
    let long = records.dir.path().join("x".repeat(300));
    assert!(create_locked(&long).unwrap().is_none());
    assert_eq!(records.names(), [""; 0]);
}

#[test]
fn without_a_directory_nothing_is_created() {
    let records = Records::new();
    fs::remove_dir(records.dir.path()).unwrap();
    let error = create_locked(&records.record).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    remove_dir_if_unused(records.dir.path());
}

#[test]
fn concurrent_records_never_share_a_file() {
    let records = Records::new();
    thread::scope(|scope| {
        for worker in 0..8 {
            let dir = records.dir.path();
            scope.spawn(move || {
                for round in 0..200 {
                    let record = dir.join(format!("{worker}-{round}@eth0.json"));
                    let Some(file) = create_locked(&record).unwrap() else {
                        continue;
                    };
                    let line = format!("{worker} {round}\n");
                    (&file).write_all(line.as_bytes()).unwrap();
                    thread::yield_now();
                    assert_eq!(fs::read_to_string(&record).unwrap(), line);
                    retire(&record, &file).unwrap();
                    file.unlock().unwrap();
                }
            });
        }
    });
    assert_eq!(records.names().len(), records.spares());
}
