//! Small JSON state that survives a restart.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::task::spawn_blocking;

use crate::files::{read_small, write_atomic};

const MODE: u32 = 0o600;

/// State, and the file that holds it. Memory never runs ahead of the disk: a change that could not be
/// written is not visible either.
#[derive(Debug)]
pub struct StateFile<T> {
    path: PathBuf,
    max_bytes: u64,
    state: T,
}

impl<T: Clone + Default + PartialEq + Serialize + DeserializeOwned> StateFile<T> {
    /// Reads the state; blocks. A missing file means the default state. So does a damaged one, with a
    /// warning: pods must start all the same.
    pub fn load(path: PathBuf, max_bytes: u64) -> Self {
        let state = read(&path, max_bytes).unwrap_or_else(|error| {
            tracing::warn!(path = %path.display(), %error, "ignoring a damaged state file");
            T::default()
        });
        Self {
            path,
            max_bytes,
            state,
        }
    }

    pub fn get(&self) -> &T {
        &self.state
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Changes the state, and writes it if it differs; blocks until it is on disk.
    pub fn update(&mut self, change: impl FnOnce(&mut T)) -> io::Result<()> {
        if let Some(new) = self.changed(change) {
            write(&self.path, self.max_bytes, &new)?;
            self.state = new;
        }
        Ok(())
    }

    /// As [`StateFile::update`], without blocking the worker thread: a disk may take seconds.
    pub async fn update_async(&mut self, change: impl FnOnce(&mut T)) -> io::Result<()>
    where
        T: Send + 'static,
    {
        if let Some(new) = self.changed(change) {
            let (path, max_bytes) = (self.path.clone(), self.max_bytes);
            let written = spawn_blocking(move || write(&path, max_bytes, &new).map(|()| new));
            self.state = written.await.map_err(io::Error::other)??;
        }
        Ok(())
    }

    fn changed(&self, change: impl FnOnce(&mut T)) -> Option<T> {
        let mut new = self.state.clone();
        change(&mut new);
        (new != self.state).then_some(new)
    }

    /// Resets the state, and removes the file.
    pub fn remove(&mut self) -> io::Result<()> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => {
                self.state = T::default();
                Ok(())
            }
        }
    }
}

fn read<T: Default + DeserializeOwned>(path: &Path, max_bytes: u64) -> io::Result<T> {
    match read_small(path, max_bytes) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(T::default()),
        bytes => Ok(serde_json::from_slice(&bytes?)?),
    }
}

fn write<T: Serialize>(path: &Path, max_bytes: u64, state: &T) -> io::Result<()> {
    let text = serde_json::to_vec_pretty(state)?;
    // It could not be read again.
    if text.len() as u64 > max_bytes {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    write_atomic(path, &text, MODE)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use tempfile::tempdir;

    use super::*;

    type Numbers = StateFile<BTreeSet<u32>>;

    fn load(dir: &Path) -> Numbers {
        Numbers::load(dir.join("state/numbers.json"), 64)
    }

    #[test]
    fn state_survives_a_restart_until_it_is_removed() {
        let dir = tempdir().unwrap();
        let mut file = load(dir.path());
        file.update(|_| ()).unwrap();
        assert!(!file.path().exists(), "unchanged state is not written");
        file.update(|numbers| numbers.extend([1, 2])).unwrap();
        let mut again = load(dir.path());
        assert_eq!(again.get(), file.get());
        again.remove().unwrap();
        again.remove().unwrap();
        assert!(load(dir.path()).get().is_empty());
    }

    #[tokio::test]
    async fn a_change_that_could_not_be_written_is_not_visible() {
        let dir = tempdir().unwrap();
        let mut file = load(dir.path());
        let change = file.update_async(|numbers| numbers.extend([1]));
        change.await.unwrap();
        assert_eq!(load(dir.path()).get(), file.get());

        let too_many = file.update_async(|numbers| numbers.extend(0..100));
        let error = too_many.await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        fs::remove_dir_all(dir.path().join("state")).unwrap();
        write_atomic(&dir.path().join("state"), b"no directory", MODE).unwrap();
        file.update(|numbers| numbers.extend([2])).unwrap_err();
        assert_eq!(file.get(), &BTreeSet::from([1]));
    }

    #[test]
    fn a_damaged_file_is_replaced_by_the_next_change() {
        let dir = tempdir().unwrap();
        let path = load(dir.path()).path().to_owned();
        for damaged in [&b"[1, 2"[..], &[b' '; 65]] {
            write_atomic(&path, damaged, MODE).unwrap();
            let mut file = load(dir.path());
            assert!(file.get().is_empty());
            file.update(|numbers| numbers.extend([3])).unwrap();
            assert_eq!(load(dir.path()).get(), &BTreeSet::from([3]));
        }
    }
}
