use std::io::Write;
use std::os::unix::fs::symlink;
use std::thread;

use rstest::rstest;
use tempfile::TempDir;

use super::*;

/// A directory for records, and the place where `a@eth0.json` looks first.
struct Scene {
    dir: TempDir,
    record: PathBuf,
    place: PathBuf,
}

impl Scene {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let record = dir.path().join("a@eth0.json");
        let place = places(&record).next().unwrap();
        Self { dir, record, place }
    }

    fn spare(content: &str) -> Self {
        let scene = Self::new();
        put(&scene.place, content);
        scene
    }

    fn make(&self) -> Option<File> {
        make_locked(&self.record).unwrap()
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
    let file = files::open(path, Purpose::Make).unwrap();
    (&file).write_all(content.as_bytes()).unwrap();
}

fn inode(path: &Path) -> u64 {
    path.metadata().unwrap().ino()
}

#[test]
fn a_removed_record_becomes_the_next_one_and_is_empty_private_and_locked() {
    let scene = Scene::new();
    let file = scene.make().unwrap();
    (&file).write_all(b"old lines").unwrap();
    let before = inode(&scene.record);
    retire(&scene.record, &file).unwrap();
    assert_eq!((scene.names().len(), scene.spares()), (1, 1));
    assert_eq!(scene.place.metadata().unwrap().len(), 0);
    drop(file);

    let _file = scene.make().unwrap();
    assert_eq!(scene.names(), ["a@eth0.json"]);
    let metadata = scene.record.metadata().unwrap();
    assert_eq!((metadata.ino(), metadata.len()), (before, 0));
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    assert!(File::open(&scene.record).unwrap().try_lock().is_err());
}

#[test]
fn lines_that_nobody_came_to_remove_are_gone_before_it_is_a_record() {
    let scene = Scene::spare("lines of a removed record\n");
    let before = inode(&scene.place);
    let _file = scene.make().unwrap();
    assert_eq!(inode(&scene.record), before);
    assert_eq!(scene.record.metadata().unwrap().len(), 0);
}

#[test]
fn what_others_could_read_is_private_before_it_is_a_record() {
    let scene = Scene::spare("");
    fs::set_permissions(&scene.place, Permissions::from_mode(0o644)).unwrap();
    let _file = scene.make().unwrap();
    let mode = scene.record.metadata().unwrap().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_record_that_is_there_is_left_alone() {
    let scene = Scene::new();
    put(&scene.record, "lines");
    let error = make_locked(&scene.record).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert_eq!(fs::read(&scene.record).unwrap(), b"lines");
    let spare = File::open(&scene.place).unwrap();
    assert!(spare.try_lock().is_ok(), "the spare is free again");
}

#[test]
fn a_spare_that_somebody_has_locked_is_not_waited_for() {
    let scene = Scene::spare("");
    let other = File::open(&scene.place).unwrap();
    other.lock().unwrap();
    let _file = scene.make().unwrap();
    assert_ne!(inode(&scene.record), inode(&scene.place));
}

#[rstest]
#[case::link(|place: &Path, victim: &Path| symlink(victim, place).unwrap())]
#[case::dangling_link(|place: &Path, _: &Path| symlink("nowhere", place).unwrap())]
#[case::second_name(|place: &Path, victim: &Path| fs::hard_link(victim, place).unwrap())]
#[case::directory(|place: &Path, _: &Path| fs::create_dir(place).unwrap())]
fn what_is_none_of_ours_is_neither_written_nor_taken(#[case] plant: fn(&Path, &Path)) {
    let scene = Scene::new();
    let victim = scene.dir.path().join("victim");
    put(&victim, "precious");
    plant(&scene.place, &victim);
    let there = scene.place.symlink_metadata().unwrap().ino();

    let file = scene.make().unwrap();
    (&file).write_all(b"lines").unwrap();
    retire(&scene.record, &file).unwrap();
    assert_eq!(fs::read(&victim).unwrap(), b"precious");
    assert_eq!(scene.place.symlink_metadata().unwrap().ino(), there);
    drop(file);

    remove_unused(scene.dir.path());
    assert!(scene.place.symlink_metadata().is_ok());
    assert!(!scene.dir.path().join("nowhere").exists());
}

#[test]
fn there_are_never_more_than_so_many() {
    let scene = Scene::new();
    let record = |number: usize| scene.dir.path().join(format!("{number}@eth0.json"));
    let made: Vec<_> = (0..2 * PLACES)
        .map(|number| make_locked(&record(number)).unwrap().unwrap())
        .collect();
    for (number, file) in made.into_iter().enumerate() {
        retire(&record(number), &file).unwrap();
    }
    assert_eq!(scene.names().len(), PLACES);
    assert_eq!(scene.spares(), PLACES);
    remove_unused(scene.dir.path());
    assert!(!scene.dir.path().exists());
}

#[test]
fn a_directory_with_a_record_keeps_its_spares() {
    let scene = Scene::spare("");
    put(&scene.dir.path().join("b@eth0.json"), "lines");
    remove_unused(scene.dir.path());
    assert_eq!(scene.names().len(), 2);
}

#[test]
fn a_name_that_no_file_can_have_leaves_no_spare() {
    let scene = Scene::new();
    let long = scene.dir.path().join("x".repeat(300));
    assert!(make_locked(&long).unwrap().is_none());
    assert_eq!(scene.names(), [""; 0]);
}

#[test]
fn without_a_directory_nothing_is_made() {
    let scene = Scene::new();
    fs::remove_dir(scene.dir.path()).unwrap();
    let error = make_locked(&scene.record).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    remove_unused(scene.dir.path());
}

#[test]
fn a_crowd_with_few_spares_never_shares_a_file() {
    let scene = Scene::new();
    thread::scope(|scope| {
        for worker in 0..8 {
            let dir = scene.dir.path();
            scope.spawn(move || {
                for round in 0..200 {
                    let record = dir.join(format!("{worker}-{round}@eth0.json"));
                    let Some(file) = make_locked(&record).unwrap() else {
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
    assert_eq!(scene.names().len(), scene.spares());
}
