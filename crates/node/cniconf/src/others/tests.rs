use std::fs::File;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use rstest::rstest;
use tempfile::{TempDir, tempdir};

use super::*;

struct Scene {
    dir: TempDir,
    ledger: Ledger,
}

impl Scene {
    fn new(files: &[(&str, &str)]) -> Self {
        let scene = Self {
            dir: tempdir().unwrap(),
            ledger: Ledger::default(),
        };
        for (name, text) in files {
            scene.write(name, text);
        }
        scene
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let mut file = File::create(self.path(name)).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    fn set_aside(&mut self) -> Result<Vec<String>, CniConfError> {
        // Not in the directory itself: it has a name that runtimes load.
        let path = self.dir.path().join("state/set-aside.json");
        set_aside(self.dir.path(), &mut self.ledger, &path)
    }

    fn put_back(&mut self) -> Vec<String> {
        put_back(self.dir.path(), &mut self.ledger).unwrap()
    }

    /// All files with their contents.
    fn files(&self) -> Vec<(String, String)> {
        let entries = fs::read_dir(self.dir.path()).unwrap().map(Result::unwrap);
        let files = entries.filter(|entry| entry.file_type().unwrap().is_file());
        let mut files: Vec<_> = files
            .map(|entry| {
                let name = entry.file_name().into_string().unwrap();
                (name, fs::read_to_string(entry.path()).unwrap())
            })
            .collect();
        files.sort();
        files
    }

    #[track_caller]
    fn assert_files(&self, expected: &[(&str, &str)]) {
        let own = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
        assert_eq!(self.files(), expected.iter().map(own).collect::<Vec<_>>());
    }
}

#[rstest]
#[case("a.conf", true)]
#[case("a.conflist", true)]
#[case("a.json", true)]
#[case(".hidden.conf", true)]
#[case("a.conf.headcni-aside", false)]
#[case("a.CONF", false)]
#[case("conf", false)]
#[case("a.conf~", false)]
#[case(".headcni-a1b2.new", false)]
fn configurations_are_what_runtimes_load(#[case] name: &str, #[case] is_one: bool) {
    assert_eq!(is_config(OsStr::new(name)), is_one);
}

#[rstest]
#[case("a.conf", 1, "a.conf.headcni-aside")]
#[case("a.conflist", 7, "a.conflist.headcni-aside-7")]
fn the_original_name_is_derived_from_the_aside_name(
    #[case] name: &str,
    #[case] number: u32,
    #[case] aside: &str,
) {
    assert_eq!(aside_name(OsStr::new(name), number), aside);
    assert_eq!(own_name(OsStr::new(aside)), Some((name.into(), number)));
}

#[rstest]
#[case("readme.headcni-aside")]
#[case("a.conf.headcni-aside-")]
#[case("a.conf.headcni-aside-x")]
#[case("a.conf.headcni-aside.bak")]
#[case(".headcni-aside")]
fn other_names_are_not_aside_names(#[case] name: &str) {
    assert_eq!(own_name(OsStr::new(name)), None);
}

#[test]
fn only_other_configurations_are_renamed_and_restored() {
    let before = [
        ("00-first.conf", "one"),
        (CONFLIST, "ours"),
        ("README", "words"),
        ("calico-kubeconfig", "secret"),
        ("x.json", "two"),
    ];
    let mut scene = Scene::new(&before);
    fs::create_dir(scene.path("multus.d")).unwrap();
    fs::create_dir(scene.path("dir.conf")).unwrap();
    symlink("multus.d", scene.path("link.conf")).unwrap();
    assert_eq!(scene.set_aside().unwrap().len(), 2);
    scene.assert_files(&[
        ("00-first.conf.headcni-aside", "one"),
        (CONFLIST, "ours"),
        ("README", "words"),
        ("calico-kubeconfig", "secret"),
        ("x.json.headcni-aside", "two"),
    ]);
    assert!(scene.path("dir.conf").is_dir() && scene.path("link.conf").is_dir());
    assert_eq!(scene.set_aside().unwrap(), [""; 0]);

    assert_eq!(scene.ledger.set_aside.len(), 2);
    assert_eq!(scene.put_back().len(), 2);
    scene.assert_files(&before);
    assert!(scene.ledger.set_aside.is_empty());
    assert_eq!(scene.put_back(), [""; 0]);
}

#[test]
fn a_symlink_is_renamed_itself() {
    let mut scene = Scene::new(&[("target", "text")]);
    symlink("target", scene.path("a.conf")).unwrap();
    symlink("nowhere", scene.path("b.conf")).unwrap();
    scene.set_aside().unwrap();
    for (link, target) in [("a", "target"), ("b", "nowhere")] {
        let link = scene.path(&format!("{link}.conf.headcni-aside"));
        assert_eq!(fs::read_link(link).unwrap(), Path::new(target));
    }
    scene.assert_files(&[("target", "text")]);
}

#[test]
fn an_earlier_file_is_not_overwritten_and_the_newest_is_restored() {
    let mut scene = Scene::new(&[]);
    for text in ["one", "two", "three"] {
        scene.write("a.conf", text);
        scene.set_aside().unwrap();
    }
    scene.assert_files(&[
        ("a.conf.headcni-aside", "one"),
        ("a.conf.headcni-aside-2", "two"),
        ("a.conf.headcni-aside-3", "three"),
    ]);
    scene.put_back();
    assert_eq!(scene.files()[0], ("a.conf".to_owned(), "three".to_owned()));
}

#[test]
fn an_unchanged_file_that_reappears_is_not_stored_twice() {
    let mut scene = Scene::new(&[]);
    for _ in 0..3 {
        scene.write("a.conf", "same");
        assert_eq!(scene.set_aside().unwrap().len(), 1);
    }
    scene.assert_files(&[("a.conf.headcni-aside", "same")]);
    assert_eq!(scene.ledger.set_aside.len(), 1);
}

#[test]
fn a_file_that_keeps_changing_is_an_error() {
    let mut scene = Scene::new(&[]);
    let last = format!("a.conf{SUFFIX}-{MOST_VERSIONS}");
    scene.write(&last, "old");
    scene.write("a.conf", "new");
    let error = scene.set_aside().unwrap_err().explained();
    assert!(error.contains("cni.exclusive"), "{error}");
    scene.assert_files(&[("a.conf", "new"), (&last, "old")]);
}

#[test]
fn an_existing_file_is_not_overwritten() {
    let mut scene = Scene::new(&[("a.conf", "old")]);
    scene.set_aside().unwrap();
    scene.write("a.conf", "new");
    assert_eq!(scene.put_back(), [""; 0]);
    scene.assert_files(&[("a.conf", "new"), ("a.conf.headcni-aside", "old")]);
}

#[test]
fn names_that_are_not_utf_8_are_renamed_and_restored() {
    let mut scene = Scene::new(&[]);
    let name = OsStr::from_bytes(b"\xff\xfe.conf");
    File::create(scene.dir.path().join(name)).unwrap();
    assert_eq!(scene.set_aside().unwrap().len(), 1);
    assert!(!scene.dir.path().join(name).exists());
    assert!(scene.ledger.set_aside.is_empty());
    scene.put_back();
    assert!(scene.dir.path().join(name).exists());
}
