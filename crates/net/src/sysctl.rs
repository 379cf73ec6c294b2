//! Settings under `/proc/sys/net`, of the netns that the thread is in.

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;

use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, write};

/// Sets `/proc/sys/net/<name>`; `false` if there is no such setting, for example without IPv6.
pub fn set(name: &str, value: &str) -> io::Result<bool> {
    let path = format!("/proc/sys/net/{name}");
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    match open(path, flags, Mode::empty()) {
        Err(Errno::NOENT) => Ok(false),
        file => {
            write(file?, value.as_bytes())?;
            Ok(true)
        }
    }
}

/// Reads `/proc/sys/net/<name>`; `None` if there is no such setting.
pub fn get(name: &str) -> io::Result<Option<String>> {
    read(&format!("/proc/sys/net/{name}"))
}

/// The kernel's boot ID, if it can be read.
pub fn boot_id() -> Option<String> {
    static ID: OnceLock<Option<String>> = OnceLock::new();
    let id = ID.get_or_init(|| {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = open("/proc/sys/kernel/random/boot_id", flags, Mode::empty()).ok()?;
        // Not closed: most callers exit soon, and save a system call.
        read_text(&ManuallyDrop::new(file)).ok()
    });
    id.clone()
}

fn read(path: &str) -> io::Result<Option<String>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    match open(path, flags, Mode::empty()) {
        Err(Errno::NOENT) => Ok(None),
        file => read_text(&file?).map(Some),
    }
}

fn read_text(file: &OwnedFd) -> io::Result<String> {
    let mut bytes = [0; 256];
    let length = rustix::io::read(file, &mut bytes)?;
    let text = String::from_utf8_lossy(&bytes[..length]);
    Ok(text.trim_end().to_owned())
}
