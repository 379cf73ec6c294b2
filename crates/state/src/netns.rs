//! What a namespace is, whatever its path.

use std::fs::Metadata;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// What a namespace is, whatever its path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Device and inode of its file. The kernel gives them to another namespace later.
    number: String,
    /// When the file got its place in the file system, unless the path is a link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    born: Option<String>,
}

/// What is at a path that is said to lead to a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// No file, which says nothing about the namespace.
    Nothing,
    /// What can be a namespace.
    Namespace(Identity),
    /// A pipe, a directory: a delegate that opens a pipe waits for ever.
    SomethingElse,
}

/// Looks at what is at `path`.
pub fn look(path: &str) -> Found {
    let path = Path::new(path);
    let found = match path.symlink_metadata() {
        Ok(metadata) if metadata.is_symlink() => path.metadata().map(|behind| (behind, true)),
        found => found.map(|metadata| (metadata, false)),
    };
    match found {
        Err(_) => Found::Nothing,
        Ok((metadata, _)) if !metadata.is_file() => Found::SomethingElse,
        Ok((metadata, is_behind_a_link)) => {
            Found::Namespace(Identity::new(&metadata, path, is_behind_a_link))
        }
    }
}

impl Identity {
    /// What is at `path`; `None` if there is no such file, which says nothing about the namespace.
    pub fn of(path: &str) -> Option<Self> {
        match look(path) {
            Found::Namespace(identity) => Some(identity),
            Found::Nothing | Found::SomethingElse => None,
        }
    }

    #[cfg(unix)]
    fn new(metadata: &Metadata, _path: &Path, is_behind_a_link: bool) -> Self {
        use std::os::unix::fs::MetadataExt;

        let born = format!("{}.{:09}", metadata.ctime(), metadata.ctime_nsec());
        Self {
            number: format!("{}:{}", metadata.dev(), metadata.ino()),
            // Behind a link is the kernel's own file under /proc, with a new time whenever it likes.
            born: (!is_behind_a_link).then_some(born),
        }
    }

    #[cfg(not(unix))]
    fn new(_metadata: &Metadata, path: &Path, _is_behind_a_link: bool) -> Self {
        Self {
            number: path.display().to_string(),
            born: None,
        }
    }

    /// Whether both can be the same namespace.
    pub fn may_be(&self, other: &Self) -> bool {
        self.number == other.number
            && (self.born == other.born || self.born.is_none() || other.born.is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_namespace_tells_nothing() {
        assert_eq!(Identity::of("/nonexistent"), None);
    }

    #[test]
    fn a_number_that_is_used_again_is_told_by_its_birth() {
        let identity = |number: &str, born: Option<&str>| Identity {
            number: number.to_owned(),
            born: born.map(str::to_owned),
        };
        let one = identity("4:7", Some("1.0"));
        assert!(one.may_be(&one));
        assert!(one.may_be(&identity("4:7", None)));
        assert!(!one.may_be(&identity("4:7", Some("2.0"))));
        assert!(!one.may_be(&identity("4:8", None)));
    }

    #[test]
    fn a_link_to_a_namespace_is_the_same_at_every_look() {
        let directory = tempfile::TempDir::new().unwrap();
        let link = directory.path().join("netns");
        std::os::unix::fs::symlink("/proc/self/ns/net", &link).unwrap();
        let identity = Identity::of(link.to_str().unwrap()).unwrap();
        assert_eq!(identity.born, None);
        assert!(identity.may_be(&Identity::of("/proc/thread-self/ns/net").unwrap()));
    }
}
