//! The rules that are the same for every pod: two tables that the first to need them installs.
//!
//! `headcni.nft` says what pods may not send, what is masqueraded and what must not leave in clear,
//! `headcni-ports.nft` leads hostPorts to pods. Both begin with `create table`, so that of many who
//! install them at once one succeeds and the others do nothing. That is all a plugin does, but that it
//! may guard pods' networks from the table's first moment. A daemon
//! also fills the sets of [`Contents`], sees by a [`Fingerprint`] that somebody was at a table, and
//! puts it back: the first one by another one with the same networks, the second one, which holds
//! what the plugin wrote for each pod, in its place.

#![cfg(target_os = "linux")]

mod contents;
mod cover;
mod fingerprint;
pub mod host_ports;
mod replace;

use ipnet::IpNet;

use net::nft::{self, Element, Existing, Interval, NftError, Set, Transaction};
use net::{NetError, Socket};

pub use contents::{Contents, has_contents, set_contents};
use cover::Plan;
pub use fingerprint::{Fingerprint, fingerprint, fresh_fingerprint, is_whole};
pub use replace::{ReplaceError, delete, repair_ports, replace};

/// The link group of the host ends of all our veths.
pub const LINK_GROUP: u32 = 26723;
/// The link group of those that are about to be deleted, all at once.
pub const DOOMED_GROUP: u32 = 26724;
/// The table with the rules for pods.
pub const TABLE: &str = "headcni";
/// The table with the hostPorts.
pub const PORTS_TABLE: &str = "headcni-ports";

/// One of our tables, both of the family `inet`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// [`TABLE`]: what pods may not send, what is masqueraded, and what may not leave in clear.
    Pods,
    /// [`PORTS_TABLE`]: hostPorts.
    Ports,
}

impl Table {
    /// Both of them.
    pub const ALL: [Self; 2] = [Self::Pods, Self::Ports];

    /// Its name in the kernel.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pods => TABLE,
            Self::Ports => PORTS_TABLE,
        }
    }

    /// The version that [`install`] installs.
    pub fn version(self) -> u32 {
        match self {
            Self::Pods => 5,
            Self::Ports => 1,
        }
    }

    /// The script that creates it, and fails if it is there.
    pub fn script(self) -> &'static str {
        match self {
            Self::Pods => include_str!("headcni.nft"),
            Self::Ports => include_str!("headcni-ports.nft"),
        }
    }
}

/// A table that is in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Installed {
    /// Its version, if its comment says one; ours is [`Table::version`].
    pub version: Option<u32>,
}

/// What is known about a table; nothing if it is missing.
pub fn installed(socket: &Socket, table: Table) -> Result<Option<Installed>, NetError> {
    let facts = nft::table(socket, table.name())?;
    Ok(facts.map(|facts| Installed {
        version: version_in(&facts.comment),
    }))
}

fn version_in(comment: &str) -> Option<u32> {
    let (_, version) = comment.rsplit_once("version ")?;
    version.parse().ok()
}

/// Which of the tables are missing.
pub fn missing(socket: &Socket) -> Result<Vec<Table>, NetError> {
    let mut missing = Vec::new();
    for table in Table::ALL {
        if installed(socket, table)?.is_none() {
            missing.push(table);
        }
    }
    Ok(missing)
}

/// Installs these tables in the namespace of this thread, with `guarded` in those sets from the first
/// moment: nothing goes there but by pods' links and `lo` until a daemon says by which else. That
/// somebody else installs them at the same moment is fine.
pub fn install(tables: &[Table], guarded: &[IpNet]) -> Result<(), NftError> {
    if tables.is_empty() {
        return Ok(());
    }
    let scripts = tables.iter().map(|table| match table {
        Table::Pods => format!("{}{}", table.script(), guard_script(guarded)),
        Table::Ports => table.script().to_owned(),
    });
    match nft::run(&scripts.collect::<String>()) {
        Err(NftError::Exists) if tables.len() == 1 => Ok(()),
        // One of them is there, which one isn't said, and none was installed.
        Err(NftError::Exists) => tables
            .iter()
            .try_for_each(|table| install(std::slice::from_ref(table), guarded)),
        outcome => outcome,
    }
}

/// What fills the sets of guarded networks of a table that was just made.
fn guard_script(guarded: &[IpNet]) -> String {
    // Sets don't take what they have already.
    let guarded = IpNet::aggregate(&guarded.to_vec());
    let lines = guarded.iter().map(|network| {
        let family = if network.addr().is_ipv4() { 4 } else { 6 };
        format!("add element inet {TABLE} mesh_only{family} {{ {network} }}\n")
    });
    lines.collect()
}

/// Sets of networks, one for IPv4 and one for IPv6 each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sets {
    /// Destinations that pods reach under their own address: pods and services.
    Cluster,
    /// Local addresses where hostPorts don't apply: services and gateways.
    Excluded,
}

impl Sets {
    fn ipv4(self) -> Set<'static> {
        match self {
            Self::Cluster => set(TABLE, "cluster4"),
            Self::Excluded => set(PORTS_TABLE, "excluded4"),
        }
    }

    fn ipv6(self) -> Set<'static> {
        match self {
            Self::Cluster => set(TABLE, "cluster6"),
            Self::Excluded => set(PORTS_TABLE, "excluded6"),
        }
    }
}

fn set(table: &'static str, name: &'static str) -> Set<'static> {
    Set { table, name }
}

/// Makes sure that the sets cover these networks.
///
/// What is missing is added; smaller intervals that would overlap it become part of it. An error
/// that is `NOENT` means that the table is missing.
pub fn ensure_covered(socket: &Socket, sets: Sets, networks: &[IpNet]) -> Result<(), NetError> {
    // Mostly nothing is missing, and then the generation doesn't matter.
    if covers(socket, sets, networks)? {
        return Ok(());
    }
    nft::retry_outdated(|| {
        let mut transaction = Transaction::at(nft::generation(socket)?);
        for (set, plan) in plans(socket, sets, networks)? {
            transaction.delete(set, &elements(&plan.remove));
            transaction.add(set, &elements(&plan.add), Existing::Refuse);
        }
        transaction.commit(socket)
    })
}

/// Takes these networks out again, as far as they are in the sets just so: one that has become part
/// of a larger interval stays.
pub fn uncover(socket: &Socket, sets: Sets, networks: &[IpNet]) -> Result<(), NetError> {
    nft::retry_outdated(|| {
        let mut transaction = Transaction::at(nft::generation(socket)?);
        for set in [sets.ipv4(), sets.ipv6()] {
            let present = nft::intervals(socket, set)?;
            let mut old: Vec<Interval> = networks.iter().map(|net| Interval::from(*net)).collect();
            old.retain(|interval| present.contains(interval));
            transaction.delete(set, &elements(&old));
        }
        transaction.commit(socket)
    })
}

fn elements(intervals: &[Interval]) -> Vec<Element> {
    intervals.iter().flat_map(Interval::elements).collect()
}

/// Whether the sets cover these networks. An error that is `NOENT` means that the table is missing.
pub fn covers(socket: &Socket, sets: Sets, networks: &[IpNet]) -> Result<bool, NetError> {
    Ok(plans(socket, sets, networks)?.is_empty())
}

/// What has to be changed in which set.
fn plans(
    socket: &Socket,
    sets: Sets,
    networks: &[IpNet],
) -> Result<Vec<(Set<'static>, Plan)>, NetError> {
    let (ipv4, ipv6): (Vec<IpNet>, _) = networks.iter().partition(|net| net.addr().is_ipv4());
    let mut plans = Vec::new();
    for (set, networks) in [(sets.ipv4(), ipv4), (sets.ipv6(), ipv6)] {
        if networks.is_empty() {
            continue;
        }
        let wanted: Vec<Interval> = networks.into_iter().map(Into::into).collect();
        let plan = cover::plan(&nft::intervals(socket, set)?, &wanted);
        if !plan.is_empty() {
            plans.push((set, plan));
        }
    }
    Ok(plans)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_begin_by_creating_their_table_with_our_version() {
        for table in Table::ALL {
            let first = table.script().lines().next().unwrap();
            let start = format!("create table inet {} {{ comment \"", table.name());
            let comment = first.strip_prefix(&start).unwrap();
            let comment = comment.strip_suffix("\"; }").unwrap();
            assert_eq!(version_in(comment), Some(table.version()), "{first}");
        }
    }

    #[test]
    fn the_only_link_groups_in_the_rules_are_ours() {
        let groups = [LINK_GROUP, DOOMED_GROUP].map(|group| group.to_string());
        let rules = Table::Pods.script().lines();
        let mut matches = 0;
        for rule in rules.filter(|line| !line.trim_start().starts_with('#')) {
            let words: Vec<&str> = rule.split_whitespace().collect();
            let places = (0..words.len()).filter(|place| words[*place].ends_with("ifgroup"));
            for place in places {
                let numbers = words[place + 1..]
                    .iter()
                    .skip_while(|word| ["!=", "{"].contains(word))
                    .take_while(|word| word.starts_with(|first: char| first.is_ascii_digit()))
                    .map(|word| word.trim_end_matches(','));
                for number in numbers {
                    assert!(groups.iter().any(|group| group == number), "{rule}");
                    matches += 1;
                }
            }
        }
        assert_eq!(matches, 9);
    }

    #[test]
    fn a_comment_without_a_version_has_none() {
        assert_eq!(version_in(""), None);
        assert_eq!(version_in("version"), None);
        assert_eq!(version_in("my version of headcni"), None);
        assert_eq!(version_in("headcni, version 12"), Some(12));
    }
}
