//! Namespaces that outlive whoever made them, because they are mounted under a name, where
//! `ip netns` shows them.

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

/// `NSFS_MAGIC`, `include/uapi/linux/magic.h`: what a namespace's file is on.
const NSFS_MAGIC: i64 = 0x6e73_6673;

/// The namespace mounted at `path`, and whether it had to be made. What somebody who died half-way
/// has left there is taken for nothing.
pub fn ensure_named(path: &Path) -> io::Result<(Netns, bool)> {
    if let Some(found) = named(path)? {
        return Ok((found, false));
    }
    if let Some(dir) = path.parent() {
        ensure_dir(dir)?;
    }
    // What a namespace is mounted on has to be there. It stays empty.
    let options = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o444)
        .clone();
    options.open(path)?;
    mount_new(path)?;
    let made = named(path)?;
    let made = made.ok_or_else(|| io::Error::other("what was mounted is not a namespace"))?;
    Ok((made, true))
}

/// Takes the name away, and whether there was one. The namespace ends with the last who is in it.
pub fn remove_named(path: &Path) -> io::Result<bool> {
    // Two may be on top of each other, if two have mounted one at once.
    while named(path)?.is_some() {
        unmount(path, UnmountFlags::DETACH)?;
    }
    match unlink(path) {
        Err(Errno::NOENT) => Ok(false),
        outcome => Ok(outcome.map(|()| true)?),
    }
}

fn named(path: &Path) -> io::Result<Option<Netns>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    #[allow(
        clippy::useless_conversion,
        reason = "the type is another one on other processors"
    )]
    let kind = i64::from(fstatfs(&file)?.f_type);
    Ok((kind == NSFS_MAGIC).then(|| Netns { fd: file.into() }))
}

/// The directory as `ip netns` makes it: a mount of its own, shared, so that what is mounted in it is
/// seen by all who see it.
fn ensure_dir(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(dir)?;
    let share = || {
        let shared = MountPropagationFlags::SHARED | MountPropagationFlags::REC;
        mount_change(dir, shared)
    };
    match share() {
        // It is no mount.
        Err(Errno::INVAL) => {
            mount_bind_recursive(dir, dir)?;
            Ok(share()?)
        }
        outcome => Ok(outcome?),
    }
}

/// A thread of its own makes it, for that thread is in it from then on.
fn mount_new(path: &Path) -> io::Result<()> {
    let make = || {
        // SAFETY: of all that threads share, only the network is parted with, and no memory or file
        // descriptor. The thread ends right after.
        #[expect(unsafe_code, reason = "there is no other way to make a namespace")]
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
