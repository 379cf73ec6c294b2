//! Named namespaces, which `ip netns` shows: a mount keeps them when their creator ends.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::thread;

use rustix::fs::{fstatfs, unlink};
use rustix::io::Errno;
use rustix::mount::{
    MountPropagationFlags, UnmountFlags, mount_bind, mount_bind_recursive, mount_change, unmount,
};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use super::Netns;

/// File system type of namespaces, `include/uapi/linux/magic.h`.
const NSFS_MAGIC: i64 = 0x6e73_6673;

impl Netns {
    /// The netns mounted at `path`, and whether it had to be created. A file that an interrupted call
    /// left there is used again.
    pub fn ensure_named(path: &Path) -> io::Result<(Self, bool)> {
        if let Some(found) = named(path)? {
            return Ok((found, false));
        }
        if let Some(dir) = path.parent() {
            ensure_dir(dir)?;
        }
        // The mount point.
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o444)
            .open(path)?;
        mount_new(path)?;
        let made = named(path)?;
        let made = made.ok_or_else(|| io::Error::other("the mount is not a network namespace"))?;
        Ok((made, true))
    }

    /// Removes the name; returns whether there was one. The netns exists until its last user ends.
    pub fn remove_named(path: &Path) -> io::Result<bool> {
        // Two processes may have mounted one each.
        while named(path)?.is_some() {
            unmount(path, UnmountFlags::DETACH)?;
        }
        match unlink(path) {
            Err(Errno::NOENT) => Ok(false),
            outcome => Ok(outcome.map(|()| true)?),
        }
    }
}

fn named(path: &Path) -> io::Result<Option<Netns>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    #[allow(
        clippy::useless_conversion,
        reason = "the type differs between architectures"
    )]
    let kind = i64::from(fstatfs(&file)?.f_type);
    Ok((kind == NSFS_MAGIC).then(|| Netns { fd: file.into() }))
}

/// Creates the directory as `ip netns` does: a shared mount, so that other mount namespaces see the
/// mounts in it.
fn ensure_dir(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(dir)?;
    let share = || {
        let shared = MountPropagationFlags::SHARED | MountPropagationFlags::REC;
        mount_change(dir, shared)
    };
    match share() {
        // Not a mount yet.
        Err(Errno::INVAL) => {
            mount_bind_recursive(dir, dir)?;
            Ok(share()?)
        }
        outcome => Ok(outcome?),
    }
}

/// In a thread of its own, because `unshare` moves the calling thread.
fn mount_new(path: &Path) -> io::Result<()> {
    let make = || {
        // SAFETY: only the network namespace is unshared, no memory and no file descriptors. The
        // thread ends right after.
        #[expect(unsafe_code, reason = "rustix has no safe call for it")]
        unsafe {
            unshare_unsafe(UnshareFlags::NEWNET)?;
        }
        Ok(mount_bind("/proc/thread-self/ns/net", path)?)
    };
    match thread::scope(|scope| scope.spawn(make).join()) {
        Ok(outcome) => outcome,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}
