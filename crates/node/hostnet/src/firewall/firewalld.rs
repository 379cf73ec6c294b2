//! firewalld: adds pod CIDRs as runtime sources of its zone `trusted`.
//!
//! An administrator's sources look the same, so ours are on record in `firewalld.json`.

use std::collections::BTreeSet;

use ipnet::IpNet;
use net::program;

use super::{FirewallError, run, run_ok};
use crate::HostPaths;
use node_config::Integrate;
use node_core::StateFile;

const PROGRAM: &str = "firewall-cmd";
/// The file has a few hundred bytes.
const MAX_BYTES: u64 = 1 << 16;

/// Adds or removes sources, and returns the networks that firewalld still drops.
pub(super) fn reconcile(
    paths: &HostPaths,
    networks: &[IpNet],
    integrate: Integrate,
    repairs: &mut Vec<String>,
) -> Result<Vec<IpNet>, FirewallError> {
    if program::find(PROGRAM).is_none() {
        return Ok(networks.to_vec());
    }
    let mut file = load(paths);
    let ours = file.get().clone();
    let wanted: BTreeSet<IpNet> = match integrate {
        Integrate::Auto => networks.iter().copied().collect(),
        Integrate::Off => BTreeSet::new(),
    };
    for old in ours.difference(&wanted) {
        if is_trusted(old)? {
            run_ok(
                PROGRAM,
                &["--zone=trusted", &format!("--remove-source={old}")],
            )?;
            repairs.push(format!("remove {old} from the firewalld zone trusted"));
        }
    }
    let mut dropped = Vec::new();
    let mut added: BTreeSet<IpNet> = ours.intersection(&wanted).copied().collect();
    for network in networks {
        if is_trusted(network)? {
            continue;
        }
        if wanted.contains(network) {
            run_ok(
                PROGRAM,
                &["--zone=trusted", &format!("--add-source={network}")],
            )?;
            added.insert(*network);
            repairs.push(format!("add {network} to the firewalld zone trusted"));
        } else {
            dropped.push(*network);
        }
    }
    let saved = if added.is_empty() {
        file.remove()
    } else {
        file.update(|sources| *sources = added)
    };
    saved.map_err(|source| FirewallError::State {
        path: file.path().to_owned(),
        source,
    })?;
    Ok(dropped)
}

fn is_trusted(network: &IpNet) -> Result<bool, FirewallError> {
    let output = run(
        PROGRAM,
        &["--zone=trusted", &format!("--query-source={network}")],
    )?;
    Ok(output.status.success())
}

/// Without a readable file, all trusted sources count as the administrator's.
fn load(paths: &HostPaths) -> StateFile<BTreeSet<IpNet>> {
    StateFile::load(paths.state_dir.join("firewalld.json"), MAX_BYTES)
}
