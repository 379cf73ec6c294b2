//! Writes the desired files and reports the repairs.

use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use api::SubnetEnv;
use serde_json::Value;

use super::desired::Desired;
use super::error::CniConfError;
use super::ledger::Ledger;
use super::others;
use super::remove::leave;
use node_config::{CONFLIST, Dirs};
use node_core::files;

/// For runtimes, which are root: <https://www.cisecurity.org/benchmark/kubernetes>, 1.1.9.
const CONFLIST_MODE: u32 = 0o600;
const SUBNET_ENV_MODE: u32 = 0o644;
const MAX_SUBNET_ENV_BYTES: u64 = 64 * 1024;

/// The state of the files after a reconcile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ensured {
    /// A summary.
    pub message: String,
    pub repairs: Vec<String>,
    /// Problems that an operator must fix.
    pub warnings: Vec<String>,
}

impl From<Ensured> for node_core::reconcile::Reconciled {
    fn from(outcome: Ensured) -> Self {
        let mut message = outcome.message;
        for warning in &outcome.warnings {
            message.push_str("; ");
            message.push_str(warning);
        }
        Self {
            message,
            repairs: outcome.repairs,
            ..Self::default()
        }
    }
}

/// Writes the files. An error of one does not stop the others. Our conflist is written before other
/// configurations are renamed, so that there is always one.
pub fn ensure(desired: &Desired) -> Result<Ensured, CniConfError> {
    let dirs = &desired.dirs;
    let mut outcome = Ensured {
        message: format!("{} ({})", dirs.conflist().display(), desired.summary),
        ..Ensured::default()
    };
    let mut errors = Vec::new();
    // subnet.env first: pods start as soon as the runtime sees the conflist.
    let subnets = desired.subnet_env_text.as_bytes();
    for (path, contents, mode) in [
        (dirs.saved_subnet_env(), subnets, SUBNET_ENV_MODE),
        (dirs.subnet_env(), subnets, SUBNET_ENV_MODE),
    ] {
        note(
            ensure_file(&path, contents, mode),
            &mut outcome,
            &mut errors,
        );
    }
    let ledger_path = dirs.ledger();
    let mut ledger = match noted(dirs, &ledger_path) {
        Ok(ledger) => Some(ledger),
        Err(error) => {
            errors.push(error);
            None
        }
    };
    let conflist = desired.conflist_text.as_bytes();
    let written = ensure_file(&dirs.conflist(), conflist, CONFLIST_MODE);
    let is_written = written.is_ok();
    note(written, &mut outcome, &mut errors);
    if let Some(ledger) = &mut ledger
        && is_written
    {
        let settled = reconcile_others(desired, ledger, &ledger_path);
        note(settled, &mut outcome, &mut errors);
        match warnings(desired) {
            Ok(warnings) => outcome.warnings = warnings,
            Err(error) => errors.push(error),
        }
    }
    CniConfError::all(errors)?;
    Ok(outcome)
}

fn note(
    done: Result<Vec<String>, CniConfError>,
    outcome: &mut Ensured,
    errors: &mut Vec<CniConfError>,
) {
    match done {
        Ok(repairs) => outcome.repairs.extend(repairs),
        Err(error) => errors.push(error),
    }
}

fn ensure_file(path: &Path, contents: &[u8], mode: u32) -> Result<Vec<String>, CniConfError> {
    let fault = files::ensure_file(path, contents, mode)
        .map_err(|error| CniConfError::file("write", path, error))?;
    Ok(fault
        .into_iter()
        .map(|fault| format!("{} {fault}", path.display()))
        .collect())
}

/// The ledger, with the directory of `path` recorded.
fn noted(dirs: &Dirs, path: &Path) -> Result<Ledger, CniConfError> {
    let mut ledger = Ledger::load(path);
    ledger.note_dir(&dirs.conf_dir);
    ledger.save(path)?;
    Ok(ledger)
}

fn reconcile_others(
    desired: &Desired,
    ledger: &mut Ledger,
    ledger_path: &Path,
) -> Result<Vec<String>, CniConfError> {
    let conf_dir = &desired.dirs.conf_dir;
    let mut done = if desired.exclusive {
        others::set_aside(conf_dir, ledger, ledger_path)?
    } else {
        others::put_back(conf_dir, ledger)?
    };
    let earlier = ledger.conf_dirs.iter().filter(|dir| *dir != conf_dir);
    for dir in earlier.cloned().collect::<Vec<_>>() {
        if is_same_dir(&dir, conf_dir) {
            ledger.forget_dir(&dir);
        } else {
            done.extend(leave(&dir, ledger)?);
        }
    }
    ledger.save(ledger_path)?;
    Ok(done)
}

fn is_same_dir(one: &Path, other: &Path) -> bool {
    let inode = |path: &Path| path.metadata().map(|found| (found.dev(), found.ino())).ok();
    inode(one).is_some_and(|found| Some(found) == inode(other))
}

/// Problems that prevent pods from starting although our files are correct.
fn warnings(desired: &Desired) -> Result<Vec<String>, CniConfError> {
    let dirs = &desired.dirs;
    let mut warnings = Vec::new();
    if let Some(first) = others::others(&dirs.conf_dir)?.first()
        && first.as_os_str() < OsStr::new(CONFLIST)
    {
        warnings.push(format!(
            "runtimes take {} before ours: set cni.exclusive to true, unless it calls ours",
            first.display()
        ));
    }
    for kind in plugin_types(&desired.conflist) {
        if !dirs.bin_dir.join(kind).is_file() {
            warnings.push(format!(
                "plugin {kind:?} is not in {}: install it there, or correct cni.binDir",
                dirs.bin_dir.display()
            ));
        }
    }
    Ok(warnings)
}

fn plugin_types(conflist: &Value) -> Vec<&str> {
    let plugins = conflist["plugins"].as_array().into_iter().flatten();
    let types = plugins.flat_map(|plugin| {
        // headcni links headcni-ipam.
        let ipam = plugin["ipam"]["type"].as_str();
        let executed = ipam.filter(|ipam| plugin["type"] != "headcni" || *ipam != "headcni-ipam");
        plugin["type"].as_str().into_iter().chain(executed)
    });
    types.collect()
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Restored {
    /// `subnet.env` exists, or there is no copy.
    Nothing,
    /// `subnet.env` was restored.
    Subnets(SubnetEnv),
}

/// Restores `subnet.env` after a reboot from its saved copy, and deletes stale temporary files of a
/// killed daemon.
pub fn restore_after_boot(dirs: &Dirs) -> Result<Restored, CniConfError> {
    for dir in [&dirs.run_dir, &dirs.state_dir, &dirs.conf_dir] {
        if let Err(error) = files::remove_left_overs(dir) {
            // Harmless; retried at the next start.
            tracing::debug!(dir = %dir.display(), %error, "failed to delete stale temporary files");
        }
    }
    let (kept, wanted) = (dirs.saved_subnet_env(), dirs.subnet_env());
    if wanted.symlink_metadata().is_ok() || kept.symlink_metadata().is_err() {
        return Ok(Restored::Nothing);
    }
    let text = files::read_small(&kept, MAX_SUBNET_ENV_BYTES)
        .map_err(|error| CniConfError::file("read", &kept, error))?;
    let subnets = SubnetEnv::parse(&String::from_utf8_lossy(&text), &kept)
        .map_err(|source| CniConfError::Kept { path: kept, source })?;
    ensure_file(&wanted, &text, SUBNET_ENV_MODE)?;
    Ok(Restored::Subnets(subnets))
}
