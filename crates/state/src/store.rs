//! The record of an attachment: what an ADD has begun, so that it can be undone.
//!
//! In `<dataDir>/<network>/` there is one file per attachment. A line is added with every step, and
//! the last whole one counts. It is locked by whoever works on the attachment *and by every program
//! that it executes*: when an ADD is killed, its delegates run on, and the DEL that follows waits
//! for them instead of missing what they make.
//!
//! Lines are added because replacing a file makes ext4 write it to disk at once. Nothing is synced:
//! namespaces don't outlive the kernel, and a record that a power failure tore counts as none.
//!
//! A removed record may become another attachment's. Whoever has opened one looks whether it still
//! is the file of that name: after he has locked it, or after he has read it.

mod files;
mod sight;
#[cfg(target_os = "linux")]
mod spares;

use std::cell::Cell;
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use cni::{Attachment, CniArgs, ContainerId, Error, IfName, NetworkName, code};

use crate::record::{Record, boot_id, last_whole_line};
use files::{Origin, Purpose};
pub use sight::{Content, STAMP_VARIABLE, Sight, Stamp};

/// Trouble with records.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// Reading or writing went wrong.
    #[error("{attempt} {}", path.display())]
    Io {
        /// What was attempted.
        attempt: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// A file that no record can be read from.
    #[error("the record {} is damaged", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
    },
    /// Somebody else works on the attachment.
    #[error(
        "another call for container {container} interface {ifname} is still running, \
         or a plugin that it started is"
    )]
    Busy {
        /// The container.
        container: String,
        /// The interface in it.
        ifname: String,
    },
}

impl From<StateError> for Error {
    fn from(error: StateError) -> Self {
        let code = match error {
            StateError::Io { .. } | StateError::Damaged { .. } => code::IO_FAILURE,
            StateError::Busy { .. } => code::TRY_AGAIN_LATER,
        };
        Self::caused(code, &error)
    }
}

fn io_error(attempt: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StateError {
    move |source| StateError::Io {
        attempt,
        path: path.to_owned(),
        source,
    }
}

/// The records of one network.
#[derive(Debug)]
pub struct Store {
    data_dir: PathBuf,
    network_dir: PathBuf,
}

impl Store {
    /// The records of `network` below `data_dir`.
    pub fn new(data_dir: &Path, network: &NetworkName) -> Self {
        Self {
            data_dir: data_dir.to_owned(),
            network_dir: data_dir.join(network.as_str()),
        }
    }

    /// Takes hold of an attachment that is about to be made.
    pub fn hold_new(&self, of: &Attachment, wait: Duration) -> Result<Held, StateError> {
        self.hold(of, wait, Lock::New)?
            .ok_or_else(|| StateError::Io {
                attempt: "create a lock in",
                path: self.network_dir.clone(),
                source: ErrorKind::NotFound.into(),
            })
    }

    /// Takes hold of an attachment, whether anything is on record about it or not.
    ///
    /// `None` if nothing is, and nothing can be: there is no place for a lock.
    pub fn hold_any(&self, of: &Attachment, wait: Duration) -> Result<Option<Held>, StateError> {
        match self.hold(of, wait, Lock::Any) {
            // Undoing must not wait for a disk to be writable again.
            Err(StateError::Io { .. }) => self.hold(of, wait, Lock::Open),
            held => held,
        }
    }

    /// Takes hold of an attachment that something is on record about, at once or not at all.
    /// Programs that the caller executes in the meantime don't hold it with him.
    ///
    /// `None` if nothing is on record, [`StateError::Busy`] if somebody works on it.
    pub fn try_hold(&self, of: &Attachment) -> Result<Option<Held>, StateError> {
        self.hold(of, Duration::ZERO, Lock::Watch)
    }

    /// Every attachment that anything is on record about.
    pub fn attachments(&self) -> Result<Vec<(ContainerId, IfName)>, StateError> {
        let list = io_error("list the records in", &self.network_dir);
        let entries = match fs::read_dir(&self.network_dir) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries
                .and_then(Iterator::collect::<io::Result<Vec<_>>>)
                .map_err(list)?,
        };
        let mut found: Vec<_> = entries
            .iter()
            // Nothing else is ours, and a pipe would hold up whoever opens it.
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()))
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                let (base, _) = name.rsplit_once('.')?;
                let (container, ifname) = base.split_once('@')?;
                Some((ContainerId::new(container).ok()?, IfName::new(ifname).ok()?))
            })
            .collect();
        found.sort();
        found.dedup();
        Ok(found)
    }

    /// What is on record about an attachment that somebody else may be working on.
    pub fn peek(&self, of: &Attachment) -> Option<Record> {
        match self.look(of).ok()??.content {
            Content::Whole(record) => Some(*record),
            Content::Empty | Content::Damaged => None,
        }
    }

    /// What is on record, and since when, without holding it; `None` if nothing is.
    pub fn look(&self, of: &Attachment) -> Result<Option<Sight>, StateError> {
        let path = self.path(of);
        loop {
            let file = match files::open(&path, Purpose::Read) {
                Err(error) if cannot_exist(&error) => return Ok(None),
                file => file.map_err(io_error("open", &path))?,
            };
            let sight = Sight::of(&file).map_err(io_error("read", &path))?;
            match fs::symlink_metadata(&path) {
                Ok(now) if Stamp::of(&now) == sight.stamp => return Ok(Some(sight)),
                Err(error) if !cannot_exist(&error) => {
                    return Err(io_error("look at", &path)(error));
                }
                // It was written or removed meanwhile: what was read may be another one's.
                _ => {}
            }
        }
    }

    /// Removes what a killed call may have left where nothing is on record.
    pub fn tidy(&self) {
        files::remove_unused(&self.network_dir);
    }

    /// Fails if an ADD could not record what it does.
    pub fn check_writable(&self) -> Result<(), StateError> {
        let probe = self
            .network_dir
            .join(format!(".probe-{}", std::process::id()));
        let written = self
            .create_directories()
            .and_then(|()| files::open(&probe, Purpose::KeepOrMake))
            .and_then(|mut file| file.write_all(b"can an ADD be recorded here?"));
        let removed = fs::remove_file(&probe);
        self.tidy();
        written
            .and(removed)
            .map_err(io_error("write to the data directory", &self.data_dir))
    }

    /// The directories above ours belong to others too, and are made for everyone's eyes.
    fn create_directories(&self) -> io::Result<()> {
        if !self.data_dir.is_dir() {
            fs::create_dir_all(self.data_dir.parent().unwrap_or(Path::new("/")))?;
            create_private_dir(&self.data_dir)?;
        }
        create_private_dir(&self.network_dir)
    }

    /// No container id has an `@`, so that the first one ends it.
    fn path(&self, of: &Attachment) -> PathBuf {
        self.network_dir
            .join(format!("{}@{}.json", of.container, of.ifname))
    }

    fn hold(
        &self,
        of: &Attachment,
        wait: Duration,
        mode: Lock,
    ) -> Result<Option<Held>, StateError> {
        let path = self.path(of);
        let deadline = Instant::now() + wait;
        loop {
            let opened = match mode {
                Lock::New => files::make_or_open(&path),
                Lock::Any => files::open_or_make(&path),
                Lock::Open => files::open(&path, Purpose::Look).map(|file| (file, Origin::Found)),
                Lock::Watch => files::open(&path, Purpose::Read).map(|file| (file, Origin::Found)),
            };
            let (file, origin) = match (opened, mode) {
                (Ok(opened), _) => opened,
                (Err(error), Lock::Open | Lock::Watch) if cannot_exist(&error) => return Ok(None),
                // Nobody was here before, or another call has just removed the empty directory.
                (Err(error), Lock::New | Lock::Any)
                    if error.kind() == ErrorKind::NotFound && Instant::now() < deadline =>
                {
                    self.create_directories()
                        .map_err(io_error("create directory", &self.network_dir))?;
                    continue;
                }
                // A link, a pipe: nobody but us has any business here.
                (Err(error), Lock::New | Lock::Any) if files::is_something_else(&path) => {
                    fs::remove_file(&path).map_err(|_| io_error("open", &path)(error))?;
                    continue;
                }
                (Err(error), _) => return Err(io_error("open", &path)(error)),
            };
            let held = |path, file, length| Held {
                path,
                file,
                origin,
                length,
                is_begun: Cell::new(false),
            };
            if origin == Origin::MadeLocked {
                return Ok(Some(held(path, file, 0)));
            }
            match file.try_lock() {
                Ok(()) => {
                    // Whoever held it before may have removed it.
                    if let Some(metadata) = files::metadata_if_at(&path, &file) {
                        return Ok(Some(held(path, file, metadata.len())));
                    }
                }
                Err(TryLockError::Error(error)) => return Err(io_error("lock", &path)(error)),
                Err(TryLockError::WouldBlock) if Instant::now() >= deadline => {
                    return Err(StateError::Busy {
                        container: of.container.to_string(),
                        ifname: of.ifname.to_string(),
                    });
                }
                Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(5)),
            }
        }
    }
}

/// Shows `work` every attachment of this boot, of every network, that nobody else is working on.
/// Nobody can begin to until it has been shown.
pub fn for_each_settled(data_dir: &Path, mut work: impl FnMut(&Attachment, &Record)) {
    let networks = fs::read_dir(data_dir).into_iter().flatten().flatten();
    let stores = networks.filter_map(|entry| {
        let network = entry.file_name().into_string().ok()?;
        Some(Store::new(data_dir, &NetworkName::new(&network).ok()?))
    });
    for store in stores {
        for (container, ifname) in store.attachments().unwrap_or_default() {
            let of = Attachment {
                container,
                ifname,
                netns: None,
                args: CniArgs::default(),
            };
            let Ok(Some(held)) = store.hold(&of, Duration::ZERO, Lock::Open) else {
                continue;
            };
            match held.load() {
                Ok(Some(record)) if record.boot == boot_id() => work(&of, &record),
                _ => {}
            }
        }
    }
}

/// The networks that have records below `data_dir`; none if there is no such directory.
pub fn networks(data_dir: &Path) -> Result<Vec<NetworkName>, StateError> {
    let entries = match fs::read_dir(data_dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries
            .and_then(Iterator::collect::<io::Result<Vec<_>>>)
            .map_err(io_error("list the networks in", data_dir))?,
    };
    let mut found: Vec<_> = entries
        .iter()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .filter_map(|entry| NetworkName::new(entry.file_name().to_str()?).ok())
        .collect();
    found.sort();
    Ok(found)
}

#[derive(Clone, Copy)]
enum Lock {
    /// For programs that we execute as well, and made unless it is there.
    New,
    /// For programs that we execute as well, and made if it isn't there.
    Any,
    /// For programs that we execute as well.
    Open,
    /// For us alone.
    Watch,
}

/// An attachment that nobody else works on, for as long as this lives.
#[derive(Debug)]
pub struct Held {
    path: PathBuf,
    file: File,
    origin: Origin,
    /// How long the record was when we came.
    length: u64,
    /// Whether we have written to it.
    is_begun: Cell<bool>,
}

impl Drop for Held {
    fn drop(&mut self) {
        // For everyone who has inherited it: a plugin may leave a process behind for good. When we
        // are killed this isn't done, and the lock stays with those who still work.
        let _ = self.file.unlock();
    }
}

impl Held {
    /// What is on record, if anything.
    pub fn load(&self) -> Result<Option<Record>, StateError> {
        let is_untouched = self.length == 0 && !self.is_begun.get();
        if is_untouched && self.origin != Origin::Found {
            return Ok(None);
        }
        let bytes = read(&self.path).map_err(io_error("read", &self.path))?;
        let damaged = || StateError::Damaged {
            path: self.path.clone(),
        };
        last_whole_line(&bytes).map(Some).ok_or_else(damaged)
    }

    /// Which state of the record this is.
    pub fn stamp(&self) -> Result<Stamp, StateError> {
        let metadata = self.file.metadata();
        metadata
            .map(|metadata| Stamp::of(&metadata))
            .map_err(io_error("look at", &self.path))
    }

    /// Adds the newest state to the record, which is begun anew by our first line.
    pub fn save(&self, record: &Record) -> Result<(), StateError> {
        let mut line = serde_json::to_vec(record).unwrap_or_default();
        line.push(b'\n');
        let is_first = !self.is_begun.replace(true);
        let emptied = if is_first && self.length > 0 {
            self.file.set_len(0)
        } else {
            Ok(())
        };
        emptied
            .and_then(|()| (&self.file).write_all(&line))
            .map_err(io_error("write the record", &self.path))
    }

    /// Forgets the attachment.
    pub fn remove(self) -> Result<(), StateError> {
        match files::remove(&self.path, &self.file) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(io_error("remove", &self.path)(error));
            }
            _ => {}
        }
        let directory = self.path.parent().map(Path::to_owned);
        drop(self);
        if let Some(directory) = directory {
            files::remove_unused(&directory);
        }
        Ok(())
    }
}

/// Makes a directory for its owner's eyes only.
fn create_private_dir(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    // Another call may have removed it since: then it is looked for, and made, once more.
    let is_or_was_dir = || match path.symlink_metadata() {
        Ok(found) => found.is_dir(),
        Err(error) => error.kind() == ErrorKind::NotFound,
    };
    match builder.create(path) {
        Err(error)
            if error.kind() == ErrorKind::AlreadyExists && (path.is_dir() || is_or_was_dir()) =>
        {
            Ok(())
        }
        created => created,
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    files::open(path, Purpose::Read)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Whether a file isn't there, or can't be there at all.
fn cannot_exist(error: &io::Error) -> bool {
    use ErrorKind::{InvalidFilename, NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory | InvalidFilename)
}

#[cfg(test)]
mod tests;
