//! Atomic writes and bounded reads.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use tempfile::Builder;

/// Runtimes load *.conf, *.conflist and *.json, so temporary files end otherwise.
const TEMPORARY: (&str, &str) = (".headcni-", ".new");
/// No write takes this long: its process has died.
const STALE: Duration = Duration::from_mins(10);

/// Replaces a file atomically, also across a power failure. Creates missing directories.
pub fn write_atomic(path: &Path, contents: &[u8], mode: u32) -> io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("/"));
    ensure_dir(dir)?;
    let mut file = Builder::new()
        .prefix(TEMPORARY.0)
        .suffix(TEMPORARY.1)
        .permissions(Permissions::from_mode(mode))
        .tempfile_in(dir)?;
    file.write_all(contents)?;
    // The umask may have removed bits.
    file.as_file()
        .set_permissions(Permissions::from_mode(mode))?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    File::open(dir)?.sync_all()
}

/// Writes a file unless it is as desired, and returns the fault that it had. Replaces symlinks, but no
/// directory.
pub fn ensure_file(path: &Path, contents: &[u8], mode: u32) -> io::Result<Option<&'static str>> {
    let fault = fault(path, contents, mode)?;
    if fault.is_some() {
        write_atomic(path, contents, mode)?;
    }
    Ok(fault)
}

fn fault(path: &Path, contents: &[u8], mode: u32) -> io::Result<Option<&'static str>> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Some("was missing")),
        Err(error) => return Err(error),
    };
    if found.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !found.is_file() {
        return Ok(Some("was no regular file"));
    }
    if found.len() != contents.len() as u64 || read_small(path, found.len())? != contents {
        return Ok(Some("had other contents"));
    }
    if found.mode() & 0o7777 != mode {
        return Ok(Some("had other permissions"));
    }
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Ok(Some("had another owner"));
    }
    Ok(None)
}

/// Reads a regular file with a size limit. Follows no symlink, and does not block on a FIFO.
pub fn read_small(path: &Path, limit_bytes: u64) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not a regular file",
        ));
    }
    let mut contents = Vec::new();
    file.take(limit_bytes + 1).read_to_end(&mut contents)?;
    if contents.len() as u64 > limit_bytes {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(contents)
}

/// Creates a directory and its parents with mode 0755. An existing one stays as it is.
pub fn ensure_dir(dir: &Path) -> io::Result<()> {
    match fs::metadata(dir) {
        Ok(found) if found.is_dir() => return Ok(()),
        Ok(_) => return Err(io::ErrorKind::NotADirectory.into()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let parent = dir.parent().unwrap_or(Path::new("/"));
    ensure_dir(parent)?;
    match DirBuilder::new().mode(0o755).create(dir) {
        Ok(()) => {
            // The umask may have removed bits.
            fs::set_permissions(dir, Permissions::from_mode(0o755))?;
            File::open(parent)?.sync_all()
        }
        // Another process was faster.
        Err(_) if dir.is_dir() => Ok(()),
        Err(error) => Err(error),
    }
}

/// Whether [`write_atomic`] is writing this file.
pub fn is_temporary(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    name.starts_with(TEMPORARY.0.as_bytes()) && name.ends_with(TEMPORARY.1.as_bytes())
}

/// Removes temporary files of a daemon that was killed in [`write_atomic`].
pub fn remove_left_overs(dir: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let entry = entry?;
        if is_temporary(&entry.file_name())
            && let Ok(found) = entry.metadata()
            && found.is_file()
            && found.modified()?.elapsed().is_ok_and(|age| age > STALE)
        {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::time::SystemTime;

    use rstest::rstest;
    use tempfile::tempdir;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn a_file_is_written_once_and_then_left_alone() {
        let dir = tempdir().unwrap();
        let path = dir.path().join("a/b/file");
        assert_eq!(
            ensure_file(&path, b"x", 0o640).unwrap(),
            Some("was missing")
        );
        let written = fs::metadata(&path).unwrap();
        assert_eq!(ensure_file(&path, b"x", 0o640).unwrap(), None);
        assert_eq!(fs::metadata(&path).unwrap().ino(), written.ino());
        assert_eq!(mode(&path), 0o640);
        assert_eq!(mode(&dir.path().join("a")), 0o755);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[rstest]
    #[case::contents(|path: &Path| fs::copy("/proc/self/stat", path).map(drop), "had other contents")]
    #[case::as_long(|path: &Path| File::create(path)?.write_all(b"y"), "had other contents")]
    #[case::mode(|path: &Path| fs::set_permissions(path, Permissions::from_mode(0o666)),
        "had other permissions")]
    #[case::link(|path: &Path| { fs::remove_file(path)?; symlink("/etc/hostname", path) },
        "was no regular file")]
    #[case::dangling(|path: &Path| { fs::remove_file(path)?; symlink("/nowhere", path) },
        "was no regular file")]
    fn a_fault_is_repaired_and_named(
        #[case] spoil: fn(&Path) -> io::Result<()>,
        #[case] fault: &str,
    ) {
        let dir = tempdir().unwrap();
        let path = dir.path().join("file");
        ensure_file(&path, b"x", 0o644).unwrap();
        spoil(&path).unwrap();
        assert_eq!(ensure_file(&path, b"x", 0o644).unwrap(), Some(fault));
        assert_eq!(ensure_file(&path, b"x", 0o644).unwrap(), None);
        assert_eq!(read_small(&path, 1).unwrap(), b"x");
    }

    #[test]
    fn a_symlink_is_replaced_and_its_target_stays() {
        let dir = tempdir().unwrap();
        let (path, other) = (dir.path().join("file"), dir.path().join("other"));
        File::create(&other).unwrap().write_all(b"theirs").unwrap();
        symlink(&other, &path).unwrap();
        ensure_file(&path, b"ours", 0o644).unwrap();
        assert_eq!(fs::read(&other).unwrap(), b"theirs");
        assert_eq!(fs::read(&path).unwrap(), b"ours");
    }

    #[test]
    fn a_directory_in_place_of_the_file_is_an_error() {
        let dir = tempdir().unwrap();
        let path = dir.path().join("file");
        fs::create_dir_all(path.join("inside")).unwrap();
        let error = ensure_file(&path, b"x", 0o644).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::IsADirectory);
        assert!(path.join("inside").is_dir());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_over_the_limit_is_not_read() {
        let dir = tempdir().unwrap();
        let path = dir.path().join("file");
        write_atomic(&path, b"12345", 0o600).unwrap();
        assert_eq!(read_small(&path, 5).unwrap(), b"12345");
        let error = read_small(&path, 4).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        assert!(read_small(Path::new("/dev/zero"), 5).is_err());
    }

    #[test]
    fn only_old_temporary_files_are_removed() {
        let dir = tempdir().unwrap();
        let make = |name: &str, age: Duration| {
            let file = File::create(dir.path().join(name)).unwrap();
            file.set_modified(SystemTime::now() - age).unwrap();
        };
        make(".headcni-abc.new", STALE * 2);
        make(".headcni-def.new", Duration::ZERO);
        make("10-other.conflist", STALE * 2);
        remove_left_overs(dir.path()).unwrap();
        assert!(!dir.path().join(".headcni-abc.new").exists());
        assert!(dir.path().join(".headcni-def.new").exists());
        assert!(dir.path().join("10-other.conflist").exists());
        remove_left_overs(&dir.path().join("nowhere")).unwrap();
    }
}
