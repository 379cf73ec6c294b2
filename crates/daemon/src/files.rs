//! Files that others read: whole or not at all, and with the right permissions.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tempfile::Builder;

/// Replaces a file by another one with these contents. Whoever reads it sees the old or the new
/// one, also after a power failure.
pub fn write_atomic(path: &Path, contents: &[u8], mode: u32) -> io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(dir)?;
    // Runtimes load what ends in .conf, .conflist or .json; and a hidden name shows whose it is.
    let mut file = Builder::new()
        .prefix(".headcni-")
        .suffix(".new")
        .permissions(Permissions::from_mode(mode))
        .tempfile_in(dir)?;
    file.write_all(contents)?;
    // The umask may have taken some away.
    file.as_file()
        .set_permissions(Permissions::from_mode(mode))?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    File::open(dir)?.sync_all()
}
