//! Removes everything that headcni created on this node, and restores what it replaced.
//!
//! The order matters: the CNI configuration first, so that no pod starts; then the pods' networks; then
//! the Node object, while the mesh may still be the path to the API; then the mesh, the host network and
//! our files. Errors are collected and returned at the end.

use std::env;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use api::paths;

use crate::instance_lock::InstanceLock;
use node_config::{Config, Dirs, Sources};
use node_core::error::display_chain;
use node_core::node_name;
use node_hostnet::PodLinks;

/// Uses the defaults if the configuration is invalid.
pub fn run(
    sources: &Sources,
    node_name: Option<&str>,
    report: &mut (dyn FnMut(String) + Send),
) -> Result<()> {
    let config = match node_config::load(sources) {
        Ok(loaded) => loaded.config,
        Err(error) => {
            report(format!(
                "the configuration is invalid, using defaults:\n{error}"
            ));
            Config::default()
        }
    };
    let lock = InstanceLock::acquire(Path::new(paths::DAEMON_LOCK))?;
    let dirs = Dirs::locate(&config.cni, Path::new("/"));
    let mut errors: Vec<String> = Vec::new();

    match node_cniconf::remove(&dirs) {
        Ok(lines) => lines.into_iter().for_each(&mut *report),
        Err(error) => errors.push(error.explained()),
    }
    let mut leases = None;
    match node_pods::PodPaths::of(&config, &dirs.bin_dir) {
        Ok(paths) => {
            leases = node_pods::own_lease_dir(&paths);
            let (detached, failed) = node_pods::detach_all(&paths);
            detached
                .into_iter()
                .map(|key| format!("detached {key}"))
                .for_each(&mut *report);
            errors.extend(failed);
        }
        Err(error) => errors.push(error.to_string()),
    }
    let variable = env::var_os(node_name::VARIABLE);
    let node = node_name::find(node_name, variable.as_deref());
    node_kube::cleanup(&config.kubernetes, node, report);
    // hostnet goes after the mesh: its rules drop packets that would leave without the mesh.
    let state_dir = Path::new(paths::DAEMON_STATE_DIR);
    errors.extend(node_mesh::remove(&config, state_dir, report));
    match node_hostnet::remove(&node_hostnet::HostPaths::default(), PodLinks::Delete) {
        Ok(()) => report("removed the host network".to_owned()),
        Err(error) => errors.push(display_chain(&error)),
    }
    // These directories have the records that another try needs.
    if errors.is_empty() {
        drop(lock);
        for dir in own_directories().into_iter().chain(leases) {
            match fs::remove_dir_all(&dir) {
                Ok(()) => report(format!("removed {}", dir.display())),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                // A mount point, as in a container, can only be emptied.
                Err(error) if error.kind() == ErrorKind::ResourceBusy && is_empty(&dir) => {
                    report(format!("emptied {}", dir.display()));
                }
                Err(error) => errors.push(format!("remove {}: {error}", dir.display())),
            }
        }
    }
    if errors.is_empty() {
        return Ok(());
    }
    bail!(
        "failed to remove everything; fix these errors and run it again:\n  {}",
        errors.join("\n  ")
    );
}

/// Directories that only headcni uses. Lease directories of other IPAM plugins stay.
fn own_directories() -> Vec<PathBuf> {
    let mut dirs = vec![
        PathBuf::from(paths::PLUGIN_DATA_DIR),
        PathBuf::from(paths::DAEMON_STATE_DIR),
    ];
    if let Some(run_dir) = Path::new(paths::DAEMON_SOCKET).parent() {
        dirs.push(run_dir.to_owned());
    }
    dirs
}

fn is_empty(dir: &Path) -> bool {
    fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_none())
}
