//! Removes everything that this crate added, and restores the previous values.

use net::nft::NftError;
use net::{Batch, Errno};
use ruleset::{LINK_GROUP, Table};

use super::apply::{on_lo, remove_routes, set_feature, set_sysctl};
use super::plan::{is_in_mesh_table, is_managed_rule, is_unreachable_route};
use super::{HostPaths, HostnetError, HostnetRecord, Sockets, firewall, record, unmanaged_links};
use node_config::UnmanagedLinks;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodLinks {
    /// Running pods of this node still reach each other.
    Keep,
    /// With the bridge, unless it existed before us.
    Delete,
}

/// Removes everything; idempotent. Continues after an error, and then keeps the record for a retry.
pub fn remove(paths: &HostPaths, links: PodLinks) -> Result<(), HostnetError> {
    let sockets = Sockets::open()?;
    let mut file = record::load(paths);
    let record = file.get().of_this_boot();
    // In reverse order of creation.
    let mut outcomes = vec![
        remove_rules(&sockets),
        remove_all_routes(&sockets),
        remove_gateways(&sockets, &record),
        firewall::withdraw(paths),
        unmanaged_links::ensure(paths, UnmanagedLinks::Off).map(drop),
    ];
    for table in Table::ALL {
        outcomes.push(delete(&sockets, table));
    }
    for (name, value) in &record.sysctls {
        outcomes.push(set_sysctl(name, value));
    }
    outcomes.push(restore_features(&sockets, &record));
    if links == PodLinks::Delete {
        outcomes.push(delete_links(&sockets, &record));
    }
    HostnetError::from_all(outcomes.into_iter().filter_map(Result::err).collect())?;
    let error = HostnetError::file("remove", file.path());
    file.remove().map_err(error)
}

fn remove_rules(sockets: &Sockets) -> Result<(), HostnetError> {
    let mut batch = Batch::new();
    let rules = net::destination_rules(&sockets.route)?;
    for rule in rules.iter().filter(|rule| is_managed_rule(rule)) {
        rule.remove_in(&mut batch);
        batch.tolerating(&[Errno::NOENT]);
    }
    Ok(sockets.route.send(batch)?)
}

fn remove_all_routes(sockets: &Sockets) -> Result<(), HostnetError> {
    let mut routes = net::routes(&sockets.route)?;
    routes.retain(|route| is_unreachable_route(route) || is_in_mesh_table(route));
    remove_routes(sockets, &routes)
}

fn remove_gateways(sockets: &Sockets, record: &HostnetRecord) -> Result<(), HostnetError> {
    let mut batch = Batch::new();
    for gateway in &record.gateways {
        on_lo(*gateway).remove_in(&mut batch);
        batch.tolerating(&[Errno::ADDRNOTAVAIL]);
    }
    Ok(sockets.route.send(batch)?)
}

fn delete(sockets: &Sockets, table: Table) -> Result<(), HostnetError> {
    if ruleset::installed(&sockets.netfilter, table)?.is_none() {
        // Needs no nft binary.
        return Ok(());
    }
    ruleset::delete(table).map_err(|source: NftError| HostnetError::Nft {
        table: table.name(),
        source,
    })
}

fn restore_features(sockets: &Sockets, record: &HostnetRecord) -> Result<(), HostnetError> {
    for (name, before) in &record.features {
        let Some(link) = net::link(&sockets.route, name)? else {
            continue;
        };
        for (feature, is_on) in before {
            set_feature(link.index, feature, (*is_on).into())?;
        }
    }
    Ok(())
}

fn delete_links(sockets: &Sockets, record: &HostnetRecord) -> Result<(), HostnetError> {
    net::delete_group(&sockets.route, LINK_GROUP)?;
    for name in record.bridges.difference(&record.found_bridges) {
        let found = net::link(&sockets.route, name)?;
        if found.is_some_and(|link| link.kind == "bridge") {
            net::delete_link(&sockets.route, name)?;
        }
    }
    Ok(())
}
