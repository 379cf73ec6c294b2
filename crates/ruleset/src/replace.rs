//! Replaces a table that was edited or has another version.

use std::fmt::Write as _;

use ipnet::IpNet;
use net::nft::{self, Interval, NftError, Set};
use net::{Errno, NetError, Socket};

use crate::contents::Desired;
use crate::host_ports::{self, HostPortError};
use crate::{Contents, Sets, TABLE, Table, cover};

/// Why a table could not be replaced.
#[derive(Debug, thiserror::Error)]
pub enum ReplaceError {
    /// Reading the old table failed.
    #[error(transparent)]
    Net(#[from] NetError),
    /// Installing the new table failed.
    #[error(transparent)]
    Nft(#[from] NftError),
    /// Not an interface name.
    #[error("{0:?} is not an interface name")]
    Name(String),
}

/// Replaces the table [`TABLE`] in one transaction, so that no packet passes in between. The sets
/// `cluster4` and `cluster6` keep their networks and get those of `cluster`; the others get `contents`.
pub fn replace(
    socket: &Socket,
    cluster: &[IpNet],
    contents: &Contents,
) -> Result<(), ReplaceError> {
    let names = contents.mesh_ifaces.iter().chain(&contents.bridges);
    if let Some(wrong) = names.into_iter().find(|name| !is_ifname(name)) {
        return Err(ReplaceError::Name(wrong.clone()));
    }
    // "delete table" fails without a table. Flushing instead would keep the comment with the version,
    // and foreign chains.
    let mut script = format!("add table inet {TABLE}\ndelete table inet {TABLE}\n");
    script.push_str(Table::Pods.script());
    for (set, intervals) in cluster_networks(socket, cluster)? {
        add_elements(&mut script, set, intervals.iter().map(range));
    }
    for (set, desired) in contents.by_set() {
        match desired {
            Desired::Intervals(intervals) => {
                add_elements(&mut script, set, intervals.iter().map(range));
            }
            Desired::Keys(keys) => {
                add_elements(&mut script, set, keys.iter().map(|key| key_text(key)));
            }
        }
    }
    Ok(nft::run(&script)?)
}

/// The networks in the table, and `cluster`.
fn cluster_networks(
    socket: &Socket,
    cluster: &[IpNet],
) -> Result<[(Set<'static>, Vec<Interval>); 2], NetError> {
    let of = |set, is_ipv4| {
        let mut intervals = match nft::intervals(socket, set) {
            Err(error) if error.is(Errno::NOENT) => Vec::new(),
            found => found?,
        };
        let networks = cluster.iter().filter(|net| net.addr().is_ipv4() == is_ipv4);
        intervals.extend(networks.map(|net| Interval::from(*net)));
        Ok((set, cover::merged(intervals)))
    };
    Ok([
        of(Sets::Cluster.ipv4(), true)?,
        of(Sets::Cluster.ipv6(), false)?,
    ])
}

/// Restores the rules of the table [`PORTS_TABLE`](crate::PORTS_TABLE) and keeps its elements.
///
/// A table of another version, or with foreign objects of the same names, is replaced, and its
/// hostPorts are added again.
pub fn repair_ports(socket: &Socket) -> Result<(), ReplaceError> {
    let table = Table::Ports;
    let name = table.name();
    let has_another_version = crate::installed(socket, table)?
        .is_some_and(|installed| installed.version != Some(table.version()));
    // "flush table" deletes the rules of all chains, and nothing else.
    let (first, definition) = table.script().split_once('\n').unwrap_or_default();
    let first = first.replacen("create", "add", 1);
    let in_place = format!("{first}\nflush table inet {name}\n{definition}");
    if has_another_version {
        return replace_ports(socket);
    }
    match nft::run(&in_place) {
        Err(NftError::Rejected { .. }) => replace_ports(socket),
        outcome => Ok(outcome?),
    }
}

fn replace_ports(socket: &Socket) -> Result<(), ReplaceError> {
    let name = Table::Ports.name();
    // An unreadable table is a foreign one.
    let ports = host_ports::list(socket).unwrap_or_default();
    nft::run(&format!(
        "add table inet {name}\ndelete table inet {name}\n{}",
        Table::Ports.script()
    ))?;
    for port in ports {
        // The old table cannot have had conflicting hostPorts.
        if let Err(HostPortError::Net(error)) = host_ports::add(socket, &[port]) {
            return Err(error.into());
        }
    }
    Ok(())
}

/// Deletes a table, if it exists.
pub fn delete(table: Table) -> Result<(), NftError> {
    let name = table.name();
    nft::run(&format!(
        "add table inet {name}\ndelete table inet {name}\n"
    ))
}

fn add_elements(script: &mut String, set: Set<'_>, elements: impl Iterator<Item = String>) {
    let elements: Vec<String> = elements.collect();
    if !elements.is_empty() {
        let (table, name, all) = (set.table, set.name, elements.join(", "));
        let _ = writeln!(script, "add element inet {table} {name} {{ {all} }}");
    }
}

fn range(interval: &Interval) -> String {
    format!("{}-{}", interval.first, interval.last)
}

/// A key in the syntax of `nft`: the name of a family, or an interface name in quotes.
fn key_text(key: &[u8]) -> String {
    match key {
        [2] => "ipv4".to_owned(),
        [10] => "ipv6".to_owned(),
        name => {
            let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
            format!("\"{}\"", String::from_utf8_lossy(name))
        }
    }
}

/// Whether this is an interface name, and contains nothing that `nft` interprets.
fn is_ifname(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_graphic() && !['/', '"', '\\', '*'].contains(&c);
    (1..16).contains(&name.len()) && name.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("headcni0", true)]
    #[case("eth0.100", true)]
    #[case("a", true)]
    #[case("", false)]
    #[case("a b", false)]
    #[case("a\"", false)]
    #[case("a*", false)]
    #[case("a/b", false)]
    #[case("a\n", false)]
    #[case("sixteen-letters-", false)]
    fn only_plain_interface_names_are_accepted(#[case] name: &str, #[case] is_accepted: bool) {
        assert_eq!(is_ifname(name), is_accepted);
    }

    #[test]
    fn keys_are_in_the_syntax_of_nft() {
        assert_eq!(key_text(&[2]), "ipv4");
        assert_eq!(key_text(b"headcni0\0\0\0\0\0\0\0\0"), "\"headcni0\"");
    }
}
