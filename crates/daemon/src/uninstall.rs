//! Takes everything away that headcni has made on this node, and puts back what it set aside.
//!
//! First the CNI configuration, so that no pod starts any more; then the pods' networks; then what the
//! Kubernetes API was told, as long as there is a mesh that may lead to it; then this node's place in
//! the mesh; then what pods shared; then our own files. What can't be done is told in
//! the end, and all the rest is done.

use std::env;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use api::paths;

use crate::instance::Instance;
use node_config::{Config, Dirs, Sources};
use node_core::error::display_chain;
use node_core::node_name;
use node_hostnet::PodLinks;

/// Does it, and tells line by line what was done. A configuration that can't be used is no reason not
/// to: what it would have said is taken from the defaults. The node's name is the one that a flag says,
/// if any does.
pub fn run(
    sources: &Sources,
    node_name: Option<&str>,
    tell: &mut (dyn FnMut(String) + Send),
) -> Result<()> {
    let config = match node_config::load(sources) {
        Ok(loaded) => loaded.config,
        Err(error) => {
            tell(format!("going by defaults, because of this:\n{error}"));
            Config::default()
        }
    };
    let instance = Instance::take(Path::new(paths::DAEMON_LOCK))?;
    let dirs = Dirs::locate(&config.cni, Path::new("/"));
    let mut errors: Vec<String> = Vec::new();

    match node_cniconf::remove(&dirs) {
        Ok(lines) => lines.into_iter().for_each(&mut *tell),
        Err(error) => errors.push(error.explained()),
    }
    let mut leases = None;
    match node_pods::Place::of(&config, &dirs.bin_dir) {
        Ok(place) => {
            leases = node_pods::own_leases(&place);
            let (detached, troubles) = node_pods::detach_all(&place);
            detached
                .into_iter()
                .map(|key| format!("detached {key}"))
                .for_each(&mut *tell);
            errors.extend(troubles);
        }
        Err(error) => errors.push(error.to_string()),
    }
    let variable = env::var_os(node_name::VARIABLE);
    let node = node_name::find(node_name, variable.as_deref());
    node_kube::cleanup(&config.kubernetes, node, tell);
    // Packets that find no way out meanwhile are stopped by what is taken away next.
    let state_dir = Path::new(paths::DAEMON_STATE_DIR);
    errors.extend(node_mesh::remove(&config, state_dir, tell));
    match node_hostnet::remove(&node_hostnet::Place::default(), PodLinks::Delete) {
        Ok(()) => tell("took the shared network away".to_owned()),
        Err(error) => errors.push(display_chain(&error)),
    }
    // What could not be undone is on record there, for another try.
    if errors.is_empty() {
        drop(instance);
        for dir in own_directories().into_iter().chain(leases) {
            match fs::remove_dir_all(&dir) {
                Ok(()) => tell(format!("removed {}", dir.display())),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                // Something is mounted there, as in a container: it can be emptied only.
                Err(error) if error.kind() == ErrorKind::ResourceBusy && is_empty(&dir) => {
                    tell(format!("emptied {}", dir.display()));
                }
                Err(error) => errors.push(format!("remove {}: {error}", dir.display())),
            }
        }
    }
    if errors.is_empty() {
        return Ok(());
    }
    bail!(
        "not everything could be undone; mend this and run it again:\n  {}",
        errors.join("\n  ")
    );
}

/// Directories that nobody else uses. Leases of other plugins are theirs; ours are void with the
/// pods' networks.
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
