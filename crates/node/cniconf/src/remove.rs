//! Deletes our files for `uninstall`.

use std::io::ErrorKind;
use std::path::Path;
use std::{fs, io};

use super::error::CniConfError;
use super::ledger::Ledger;
use super::others;
use node_config::{CONFLIST, Dirs};

/// Deletes our files and restores other configurations. Missing files are not an error, and an error
/// does not stop the rest.
pub fn remove(dirs: &Dirs) -> Result<Vec<String>, CniConfError> {
    let (mut done, mut errors) = (Vec::new(), Vec::new());
    let mut note = |result: Result<Vec<String>, CniConfError>| match result {
        Ok(words) => done.extend(words),
        Err(error) => errors.push(error),
    };
    let ledger_path = dirs.ledger();
    let mut ledger = Ledger::load(&ledger_path);
    ledger.note_dir(&dirs.conf_dir);
    for dir in ledger.conf_dirs.clone() {
        note(leave(&dir, &mut ledger));
    }
    for path in [dirs.subnet_env(), dirs.saved_subnet_env()] {
        note(remove_file(&path));
    }
    if ledger.conf_dirs.is_empty() {
        note(remove_file(&ledger_path));
    }
    CniConfError::all(errors)?;
    Ok(done)
}

/// Restores other configurations before deleting ours, so that there is always one.
pub(super) fn leave(dir: &Path, ledger: &mut Ledger) -> Result<Vec<String>, CniConfError> {
    let mut done = others::put_back(dir, ledger)?;
    done.extend(remove_file(&dir.join(CONFLIST))?);
    ledger.forget_dir(dir);
    Ok(done)
}

fn remove_file(path: &Path) -> Result<Vec<String>, CniConfError> {
    match fs::remove_file(path).and_then(|()| sync_above(path)) {
        Ok(()) => Ok(vec![format!("{} was removed", path.display())]),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(Vec::new())
        }
        Err(error) => Err(CniConfError::file("remove", path, error)),
    }
}

fn sync_above(path: &Path) -> io::Result<()> {
    fs::File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
}
