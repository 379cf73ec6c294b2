//! firewalld: pods' networks are sources of its zone `trusted`, as long as it runs.
//!
//! What an administrator has put there looks just the same, so what was put there by us is kept in a
//! file.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;

use ipnet::IpNet;
use net::program;

use super::{FirewallError, run, run_well};
use crate::Place;
use node_config::Integrate;
use node_core::files::write_atomic;

const PROGRAM: &str = "firewall-cmd";

/// Tells firewalld to let these networks through, or no longer. Which of them it drops after that.
pub(super) fn settle(
    place: &Place,
    networks: &[IpNet],
    integrate: Integrate,
    repairs: &mut Vec<String>,
) -> Result<Vec<IpNet>, FirewallError> {
    if program::find(PROGRAM).is_none() {
        return Ok(networks.to_vec());
    }
    let ours = load(place);
    let wanted: BTreeSet<IpNet> = match integrate {
        Integrate::Auto => networks.iter().copied().collect(),
        Integrate::Off => BTreeSet::new(),
    };
    for old in ours.difference(&wanted) {
        if is_trusted(old)? {
            run_well(
                PROGRAM,
                &["--zone=trusted", &format!("--remove-source={old}")],
            )?;
            repairs.push(format!("firewalld does not trust {old} any more"));
        }
    }
    let mut dropped = Vec::new();
    let mut kept: BTreeSet<IpNet> = ours.intersection(&wanted).copied().collect();
    for network in networks {
        if is_trusted(network)? {
            continue;
        }
        if wanted.contains(network) {
            run_well(
                PROGRAM,
                &["--zone=trusted", &format!("--add-source={network}")],
            )?;
            kept.insert(*network);
            repairs.push(format!("firewalld trusts {network} now"));
        } else {
            dropped.push(*network);
        }
    }
    if kept != ours {
        save(place, &kept)?;
    }
    Ok(dropped)
}

fn is_trusted(network: &IpNet) -> Result<bool, FirewallError> {
    let ended = run(
        PROGRAM,
        &["--zone=trusted", &format!("--query-source={network}")],
    )?;
    Ok(ended.status.success())
}

fn path(place: &Place) -> std::path::PathBuf {
    place.state_dir.join("firewalld.json")
}

/// A file that can't be read says nothing: then what is trusted is taken for the administrator's.
fn load(place: &Place) -> BTreeSet<IpNet> {
    let text = fs::read_to_string(path(place)).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

fn save(place: &Place, networks: &BTreeSet<IpNet>) -> Result<(), FirewallError> {
    let path = path(place);
    let outcome = if networks.is_empty() {
        match fs::remove_file(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            outcome => outcome,
        }
    } else {
        let text = serde_json::to_string(networks).unwrap_or_default();
        write_atomic(&path, text.as_bytes(), 0o600)
    };
    outcome.map_err(|source| FirewallError::Memory { path, source })
}
