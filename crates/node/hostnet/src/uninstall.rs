//! Takes everything away that passes have made, and puts back what was there before.

use net::nft::NftError;
use net::{Batch, Errno};
use ruleset::{LINK_GROUP, Table};

use super::apply::{on_lo, remove_routes, set_feature, set_sysctl};
use super::plan::{is_in_mesh_table, is_our_rule, is_ours};
use super::{Memory, NetworkError, Place, Sockets, firewall, unmanaged_links};
use node_config::UnmanagedLinks;

/// What becomes of the links to pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodLinks {
    /// They stay, and pods talk to each other as long as they live.
    Keep,
    /// They are deleted, and with them the bridge that pods are on, unless it was there before us.
    Delete,
}

/// Takes everything away. Doing so twice is fine; after an error, the rest has been done, and what is
/// known of how things were is kept for another try.
pub fn remove(place: &Place, links: PodLinks) -> Result<(), NetworkError> {
    let sockets = Sockets::open()?;
    let memory = Memory::load(place);
    // In the reverse of the order in which they were made.
    let mut outcomes = vec![
        take_rules(&sockets),
        take_routes(&sockets),
        take_gateways(&sockets, &memory),
        firewall::withdraw(place),
        unmanaged_links::ensure(place, UnmanagedLinks::Off).map(drop),
    ];
    for table in Table::ALL {
        outcomes.push(delete(&sockets, table));
    }
    for (name, value) in &memory.sysctls {
        outcomes.push(set_sysctl(name, value));
    }
    outcomes.push(restore_features(&sockets, &memory));
    if links == PodLinks::Delete {
        outcomes.push(delete_links(&sockets, &memory));
    }
    let mut errors: Vec<NetworkError> = outcomes.into_iter().filter_map(Result::err).collect();
    match errors.len() {
        0 => Memory::erase(place),
        1 => Err(errors.remove(0)),
        _ => Err(NetworkError::Several(errors)),
    }
}

fn take_rules(sockets: &Sockets) -> Result<(), NetworkError> {
    let mut batch = Batch::new();
    let rules = net::destination_rules(&sockets.route)?;
    for rule in rules.iter().filter(|rule| is_our_rule(rule)) {
        rule.remove_in(&mut batch);
        batch.tolerating(&[Errno::NOENT]);
    }
    Ok(sockets.route.send(batch)?)
}

fn take_routes(sockets: &Sockets) -> Result<(), NetworkError> {
    let mut routes = net::routes(&sockets.route)?;
    routes.retain(|route| is_ours(route) || is_in_mesh_table(route));
    remove_routes(sockets, &routes)
}

fn take_gateways(sockets: &Sockets, memory: &Memory) -> Result<(), NetworkError> {
    let mut batch = Batch::new();
    for gateway in &memory.gateways {
        on_lo(*gateway).remove_in(&mut batch);
        batch.tolerating(&[Errno::ADDRNOTAVAIL]);
    }
    Ok(sockets.route.send(batch)?)
}

fn delete(sockets: &Sockets, table: Table) -> Result<(), NetworkError> {
    if ruleset::installed(&sockets.netfilter, table)?.is_none() {
        // Also where there is no nft to ask.
        return Ok(());
    }
    ruleset::delete(table).map_err(|source: NftError| NetworkError::Nft {
        table: table.name(),
        source,
    })
}

/// Links that are gone have nothing to be restored.
fn restore_features(sockets: &Sockets, memory: &Memory) -> Result<(), NetworkError> {
    for (name, before) in &memory.features {
        let Some(link) = net::link(&sockets.route, name)? else {
            continue;
        };
        for (feature, is_on) in before {
            set_feature(link.index, feature, (*is_on).into())?;
        }
    }
    Ok(())
}

fn delete_links(sockets: &Sockets, memory: &Memory) -> Result<(), NetworkError> {
    net::delete_group(&sockets.route, LINK_GROUP)?;
    for name in memory.bridges.difference(&memory.found_bridges) {
        let found = net::link(&sockets.route, name)?;
        if found.is_some_and(|link| link.kind == "bridge") {
            net::delete_link(&sockets.route, name)?;
        }
    }
    Ok(())
}
