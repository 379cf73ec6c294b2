//! Puts a table back that somebody was at, or that is of an older version.

use std::fmt::Write as _;

use ipnet::IpNet;
use net::nft::{self, Interval, NftError, Set};
use net::{Errno, NetError, Socket};

use crate::contents::Wanted;
use crate::host_ports::{self, HostPortError};
use crate::{Contents, Sets, TABLE, Table, cover};

/// Why a table could not be put back.
#[derive(Debug, thiserror::Error)]
pub enum ReplaceError {
    /// The networks in the old one could not be read.
    #[error(transparent)]
    Net(#[from] NetError),
    /// The new one was not taken.
    #[error(transparent)]
    Nft(#[from] NftError),
    /// A link can't have this name.
    #[error("{0:?} is not a link's name")]
    Name(String),
}

/// Puts the table [`TABLE`] in the place of whatever is there, in one transaction: at no moment is
/// anything unguarded. Networks that pods reach under their own address are kept, and `cluster`
/// with them; all other sets hold `contents`.
pub fn replace(
    socket: &Socket,
    cluster: &[IpNet],
    contents: &Contents,
) -> Result<(), ReplaceError> {
    let names = contents.mesh_ifaces.iter().chain(&contents.bridges);
    if let Some(wrong) = names.into_iter().find(|name| !is_name(name)) {
        return Err(ReplaceError::Name(wrong.clone()));
    }
    // A table's comment, which has the version, can't be changed; and what others have put in would
    // stay. So it is deleted, if need be after it was made for that.
    let mut script = format!("add table inet {TABLE}\ndelete table inet {TABLE}\n");
    script.push_str(Table::Pods.script());
    for (set, intervals) in kept(socket, cluster)? {
        add_elements(&mut script, set, intervals.iter().map(range));
    }
    for (set, wanted) in contents.by_set() {
        match wanted {
            Wanted::Intervals(intervals) => {
                add_elements(&mut script, set, intervals.iter().map(range));
            }
            Wanted::Keys(keys) => add_elements(&mut script, set, keys.iter().map(|key| word(key))),
        }
    }
    Ok(nft::run(&script)?)
}

/// The networks that are in the table, and `cluster`.
fn kept(
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

/// Puts the rules of the table of hostPorts back, and leaves what is in its maps.
///
/// One of another version, and one where somebody has made other things of the same names, is made
/// anew, and then gets the hostPorts that were in it.
pub fn repair_ports(socket: &Socket) -> Result<(), ReplaceError> {
    let table = Table::Ports;
    let name = table.name();
    let is_of_another_version = crate::installed(socket, table)?
        .is_some_and(|installed| installed.version != Some(table.version()));
    // "flush table" takes the rules of all chains, and nothing else.
    let (first, definition) = table.script().split_once('\n').unwrap_or_default();
    let first = first.replacen("create", "add", 1);
    let in_place = format!("{first}\nflush table inet {name}\n{definition}");
    if is_of_another_version {
        return remake_ports(socket);
    }
    match nft::run(&in_place) {
        Err(NftError::Refused { .. }) => remake_ports(socket),
        outcome => Ok(outcome?),
    }
}

fn remake_ports(socket: &Socket) -> Result<(), ReplaceError> {
    let name = Table::Ports.name();
    // What can't be read is of a form that is not ours.
    let published = host_ports::list(socket).unwrap_or_default();
    nft::run(&format!(
        "add table inet {name}\ndelete table inet {name}\n{}",
        Table::Ports.script()
    ))?;
    for port in published {
        // Two that contradict each other can't both have been there.
        if let Err(HostPortError::Net(error)) = host_ports::add(socket, &[port]) {
            return Err(error.into());
        }
    }
    Ok(())
}

/// Deletes a table; that it is missing is fine.
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

/// A key as `nft` words it: a family by its name, a link's name in quotes.
fn word(key: &[u8]) -> String {
    match key {
        [2] => "ipv4".to_owned(),
        [10] => "ipv6".to_owned(),
        name => {
            let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
            format!("\"{}\"", String::from_utf8_lossy(name))
        }
    }
}

/// Whether a link can have this name, and `nft` takes it for no more than a name.
fn is_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_graphic() && !['/', '"', '\\', '*'].contains(&c);
    (1..16).contains(&name.len()) && name.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_nft_would_misread_are_refused() {
        for good in ["headcni0", "tailscale0", "eth0.100", "a"] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", "a b", "a\"", "a*", "a/b", "a\n", "sixteen-letters-"] {
            assert!(!is_name(bad), "{bad:?}");
        }
    }

    #[test]
    fn keys_are_worded_as_nft_reads_them() {
        assert_eq!(word(&[2]), "ipv4");
        assert_eq!(word(b"headcni0\0\0\0\0\0\0\0\0"), "\"headcni0\"");
    }
}
