//! The records on disk: one file per attachment in `<dataDir>/<network>/`.
//!
//! Every step appends a line, and the last whole line counts. The file is also the lock of the
//! attachment, which executed plugins inherit: after a killed ADD, the DEL that follows waits until
//! its delegates have ended, instead of missing what they still create.
//!
//! Lines are appended because replacing a file makes ext4 write it to disk at once. Nothing is
//! synced: a netns doesn't survive a reboot, and a record damaged by a power failure counts as none.
//!
//! The file of a removed record is reused. So a process that has opened a record checks that it still
//! has that name: after it has locked it, or after it has read it.

mod files;
#[cfg(target_os = "linux")]
mod recycle;
mod snapshot;

use std::cell::Cell;
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use cni::{Attachment, CniArgs, ContainerId, Error, IfName, NetworkName, code};

use crate::record::{Record, boot_id, last_whole_line};
use files::{Access, Origin};
pub use snapshot::{RecordContent, STAMP_VARIABLE, Snapshot, Stamp};

#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error("{attempt} {}", path.display())]
    Io {
        attempt: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the record {} is damaged", path.display())]
    Damaged { path: PathBuf },
    #[error(
        "another call for container {container} interface {ifname} is still running, \
         or a plugin that it started is"
    )]
    Busy { container: String, ifname: String },
}

impl From<RecordError> for Error {
    fn from(error: RecordError) -> Self {
        let code = match error {
            RecordError::Io { .. } | RecordError::Damaged { .. } => code::IO_FAILURE,
            RecordError::Busy { .. } => code::TRY_AGAIN_LATER,
        };
        Self::caused(code, &error)
    }
}

fn io_error(attempt: &'static str, path: &Path) -> impl FnOnce(io::Error) -> RecordError {
    move |source| RecordError::Io {
        attempt,
        path: path.to_owned(),
        source,
    }
}

/// The records of one network.
#[derive(Debug)]
pub struct RecordStore {
    data_dir: PathBuf,
    network_dir: PathBuf,
}

impl RecordStore {
    pub fn new(data_dir: &Path, network: &NetworkName) -> Self {
        Self {
            data_dir: data_dir.to_owned(),
            network_dir: data_dir.join(network.as_str()),
        }
    }

    /// Locks the record of an attachment that an ADD is going to make.
    pub fn lock_for_add(
        &self,
        of: &Attachment,
        timeout: Duration,
    ) -> Result<LockedRecord, RecordError> {
        self.lock_with(of, timeout, LockMode::CreateFirst)?
            .ok_or_else(|| RecordError::Io {
                attempt: "create a record in",
                path: self.network_dir.clone(),
                source: ErrorKind::NotFound.into(),
            })
    }

    /// Locks the record of an attachment, and creates an empty one if there is none.
    ///
    /// `None` if there is none and none can be created.
    pub fn lock(
        &self,
        of: &Attachment,
        timeout: Duration,
    ) -> Result<Option<LockedRecord>, RecordError> {
        match self.lock_with(of, timeout, LockMode::OpenFirst) {
            // Clean-up must also work on a full or read-only disk.
            Err(RecordError::Io { .. }) => self.lock_with(of, timeout, LockMode::Existing),
            locked => locked,
        }
    }

    /// Locks an existing record without waiting. Executed programs don't inherit the lock.
    ///
    /// `None` if there is no record, [`RecordError::Busy`] if it is locked.
    pub fn try_lock(&self, of: &Attachment) -> Result<Option<LockedRecord>, RecordError> {
        self.lock_with(of, Duration::ZERO, LockMode::ExistingPrivate)
    }

    /// Every attachment that has a record.
    pub fn attachments(&self) -> Result<Vec<(ContainerId, IfName)>, RecordError> {
        let list = io_error("list the records in", &self.network_dir);
        let entries = match fs::read_dir(&self.network_dir) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries
                .and_then(Iterator::collect::<io::Result<Vec<_>>>)
                .map_err(list)?,
        };
        let mut found: Vec<_> = entries
            .iter()
            // A pipe would block whoever opens it.
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

    /// Reads a record without its lock; `None` if there is none.
    pub fn snapshot(&self, of: &Attachment) -> Result<Option<Snapshot>, RecordError> {
        let path = self.path(of);
        loop {
            let file = match files::open(&path, Access::Read) {
                Err(error) if cannot_exist(&error) => return Ok(None),
                file => file.map_err(io_error("open", &path))?,
            };
            let snapshot = Snapshot::read(&file).map_err(io_error("read", &path))?;
            match fs::symlink_metadata(&path) {
                Ok(now) if Stamp::of(&now) == snapshot.stamp => return Ok(Some(snapshot)),
                Err(error) if !cannot_exist(&error) => {
                    return Err(io_error("inspect", &path)(error));
                }
                // Written or removed meanwhile: the content may be of another attachment.
                _ => {}
            }
        }
    }

    /// Removes the directory of the network if it has no records.
    pub fn remove_if_empty(&self) {
        files::remove_dir_if_unused(&self.network_dir);
    }

    /// Fails if an ADD could not write its record.
    pub fn check_writable(&self) -> Result<(), RecordError> {
        let probe = self
            .network_dir
            .join(format!(".probe-{}", std::process::id()));
        let written = self
            .create_directories()
            .and_then(|()| files::open(&probe, Access::WriteOrCreate))
            .and_then(|mut file| file.write_all(b"probe of STATUS"));
        let removed = fs::remove_file(&probe);
        self.remove_if_empty();
        written
            .and(removed)
            .map_err(io_error("write to the data directory", &self.data_dir))
    }

    /// The parents of `data_dir` are shared with other programs and get default permissions.
    fn create_directories(&self) -> io::Result<()> {
        if !self.data_dir.is_dir() {
            fs::create_dir_all(self.data_dir.parent().unwrap_or(Path::new("/")))?;
            create_private_dir(&self.data_dir)?;
        }
        create_private_dir(&self.network_dir)
    }

    /// A container id has no `@`, so the first one separates it from the interface.
    fn path(&self, of: &Attachment) -> PathBuf {
        self.network_dir
            .join(format!("{}@{}.json", of.container, of.ifname))
    }

    fn lock_with(
        &self,
        of: &Attachment,
        timeout: Duration,
        mode: LockMode,
    ) -> Result<Option<LockedRecord>, RecordError> {
        use LockMode::{CreateFirst, Existing, ExistingPrivate, OpenFirst};

        let path = self.path(of);
        let deadline = Instant::now() + timeout;
        loop {
            let existing = |access| files::open(&path, access).map(|file| (file, Origin::Existing));
            let opened = match mode {
                CreateFirst => files::create_or_open(&path),
                OpenFirst => files::open_or_create(&path),
                Existing => existing(Access::Lock),
                ExistingPrivate => existing(Access::Read),
            };
            let (file, origin) = match (opened, mode) {
                (Ok(opened), _) => opened,
                (Err(error), Existing | ExistingPrivate) if cannot_exist(&error) => {
                    return Ok(None);
                }
                // No directory yet, or another call has just removed the empty one.
                (Err(error), CreateFirst | OpenFirst)
                    if error.kind() == ErrorKind::NotFound && Instant::now() < deadline =>
                {
                    self.create_directories()
                        .map_err(io_error("create directory", &self.network_dir))?;
                    continue;
                }
                // Only this plugin writes here, so a symbolic link or a pipe is removed.
                (Err(error), CreateFirst | OpenFirst) if files::is_irregular(&path) => {
                    fs::remove_file(&path).map_err(|_| io_error("open", &path)(error))?;
                    continue;
                }
                (Err(error), _) => return Err(io_error("open", &path)(error)),
            };
            let locked = |path, file, length| LockedRecord {
                path,
                file,
                origin,
                length,
                is_written: Cell::new(false),
            };
            if origin == Origin::CreatedLocked {
                return Ok(Some(locked(path, file, 0)));
            }
            match file.try_lock() {
                Ok(()) => {
                    // The previous holder may have removed the file.
                    if let Some(metadata) = files::metadata_if_at(&path, &file) {
                        return Ok(Some(locked(path, file, metadata.len())));
                    }
                }
                Err(TryLockError::Error(error)) => return Err(io_error("lock", &path)(error)),
                Err(TryLockError::WouldBlock) if Instant::now() >= deadline => {
                    return Err(RecordError::Busy {
                        container: of.container.to_string(),
                        ifname: of.ifname.to_string(),
                    });
                }
                Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(5)),
            }
        }
    }
}

/// Calls `visit` for every attachment of this boot, in all networks, whose record is not locked. The
/// record is locked during the call.
pub fn for_each_unlocked(data_dir: &Path, mut visit: impl FnMut(&Attachment, &Record)) {
    for network in networks(data_dir).unwrap_or_default() {
        let store = RecordStore::new(data_dir, &network);
        for (container, ifname) in store.attachments().unwrap_or_default() {
            let of = Attachment {
                container,
                ifname,
                netns: None,
                args: CniArgs::default(),
            };
            let Ok(Some(locked)) = store.lock_with(&of, Duration::ZERO, LockMode::Existing) else {
                continue;
            };
            match locked.load() {
                Ok(Some(record)) if record.boot == boot_id() => visit(&of, &record),
                _ => {}
            }
        }
    }
}

/// The networks that have records below `data_dir`.
pub fn networks(data_dir: &Path) -> Result<Vec<NetworkName>, RecordError> {
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

/// All but the last are inherited by executed programs.
#[derive(Clone, Copy)]
enum LockMode {
    CreateFirst,
    OpenFirst,
    Existing,
    ExistingPrivate,
}

/// Exclusive access to an attachment and its record, until it is dropped.
#[derive(Debug)]
pub struct LockedRecord {
    path: PathBuf,
    file: File,
    origin: Origin,
    /// Length of the file when it was locked.
    length: u64,
    /// Whether this process has written to it.
    is_written: Cell<bool>,
}

impl Drop for LockedRecord {
    fn drop(&mut self) {
        // Closing is not enough: a plugin may leave a process behind that has inherited the file.
        // If this process is killed instead, running delegates keep the lock.
        let _ = self.file.unlock();
    }
}

impl LockedRecord {
    /// Reads the record; `None` if this process has just created it.
    pub fn load(&self) -> Result<Option<Record>, RecordError> {
        let is_untouched = self.length == 0 && !self.is_written.get();
        if is_untouched && self.origin != Origin::Existing {
            return Ok(None);
        }
        let bytes = read(&self.path).map_err(io_error("read", &self.path))?;
        let damaged = || RecordError::Damaged {
            path: self.path.clone(),
        };
        last_whole_line(&bytes).map(Some).ok_or_else(damaged)
    }

    pub fn stamp(&self) -> Result<Stamp, RecordError> {
        let metadata = self.file.metadata();
        metadata
            .map(|metadata| Stamp::of(&metadata))
            .map_err(io_error("inspect", &self.path))
    }

    /// Appends the new state. The first call truncates an earlier record.
    pub fn save(&self, record: &Record) -> Result<(), RecordError> {
        let mut line = serde_json::to_vec(record).unwrap_or_default();
        line.push(b'\n');
        let is_first = !self.is_written.replace(true);
        let truncated = if is_first && self.length > 0 {
            self.file.set_len(0)
        } else {
            Ok(())
        };
        truncated
            .and_then(|()| (&self.file).write_all(&line))
            .map_err(io_error("write the record", &self.path))
    }

    /// Removes the record, and the directory of the network if it was the last one.
    pub fn remove(self) -> Result<(), RecordError> {
        match files::remove(&self.path, &self.file) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(io_error("remove", &self.path)(error));
            }
            _ => {}
        }
        let directory = self.path.parent().map(Path::to_owned);
        drop(self);
        if let Some(directory) = directory {
            files::remove_dir_if_unused(&directory);
        }
        Ok(())
    }
}

fn create_private_dir(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    // Another call may remove it again at any time; the caller then retries.
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
    files::open(path, Access::Read)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Whether there is no such file, and perhaps can't be.
fn cannot_exist(error: &io::Error) -> bool {
    use ErrorKind::{InvalidFilename, NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory | InvalidFilename)
}

#[cfg(test)]
mod tests;
