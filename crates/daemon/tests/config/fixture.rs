//! A directory with a configuration, and the real binary.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use node_config::{ConfigError, Loaded, Sources, load};
use tempfile::TempDir;

/// Marks the position of the expected error in the YAML of a test.
pub(crate) const MARK: char = '▸';

pub(crate) struct ConfigDir {
    dir: TempDir,
}

/// The output of the binary.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl ConfigDir {
    pub(crate) fn empty() -> Self {
        Self {
            dir: TempDir::new().unwrap(),
        }
    }

    pub(crate) fn new(yaml: &str) -> Self {
        let dir = Self::empty();
        dir.write("daemon.yaml", yaml);
        dir
    }

    pub(crate) fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        let mut file = File::create(&path).unwrap();
        file.write_all(contents.as_ref()).unwrap();
        path
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The path that precedes line and column in errors.
    pub(crate) fn file(&self) -> PathBuf {
        self.path("daemon.yaml")
    }

    /// Runs the binary with `daemon.yaml` and only this environment.
    pub(crate) fn run(&self, words: &[&str], environment: &[(&str, &str)]) -> Answer {
        let file = self.file();
        let config = [OsStr::new("--config"), file.as_os_str()];
        run(words.iter().map(OsStr::new).chain(config), environment)
    }

    pub(crate) fn check(&self) -> Answer {
        self.run(&["config", "check"], &[])
    }

    pub(crate) fn load(&self, environment: &[(&str, &str)]) -> Result<Loaded, ConfigError> {
        load(&Sources {
            file: Some(self.file()),
            ..sources(environment)
        })
    }
}

/// Without a file.
pub(crate) fn sources(environment: &[(&str, &str)]) -> Sources {
    let environment = environment.iter();
    let environment = environment.map(|(name, value)| ((*name).into(), (*value).into()));
    Sources {
        default_file: PathBuf::from("/nonexistent/daemon.yaml"),
        environment: environment.collect(),
        ..Sources::default()
    }
}

pub(crate) fn run<'a>(
    words: impl IntoIterator<Item = &'a OsStr>,
    environment: &[(&str, &str)],
) -> Answer {
    let output = Command::new(env!("CARGO_BIN_EXE_headcni-daemon"))
        .args(words)
        .env_clear()
        .envs(environment.iter().copied())
        .output()
        .unwrap();
    Answer {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// YAML without its mark, and the mark's line and column.
pub(crate) fn unmark(marked: &str) -> (String, usize, usize) {
    let (before, after) = marked.split_once(MARK).expect("the YAML has a mark");
    let line = before.matches('\n').count() + 1;
    let last = before.rsplit('\n').next().unwrap();
    (format!("{before}{after}"), line, last.chars().count() + 1)
}

pub(crate) fn repository(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(root.join(path)).unwrap()
}
