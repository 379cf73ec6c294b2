//! The rules that are the same for every pod: two tables that the first to need them installs.
//!
//! `headcni.nft` says what pods may not send and what is masqueraded, `headcni-ports.nft` leads
//! hostPorts to pods. Both begin with `create table`, so that of many who install them at once
//! one succeeds and the others do nothing. Nothing here ever replaces or deletes a table: the
//! second one holds what the plugin wrote for each pod.

mod cover;

use ipnet::IpNet;

use crate::nft::{self, Element, Existing, Interval, NftError, Set, Transaction};
use crate::{NetError, Socket};
use cover::Plan;

/// The link group of the host ends of all our veths.
pub const LINK_GROUP: u32 = 26723;
/// The link group of those that are about to be deleted, all at once.
pub const DOOMED_GROUP: u32 = 26724;
/// The table with the rules for pods.
pub const TABLE: &str = "headcni";
/// The table with the hostPorts.
pub const PORTS_TABLE: &str = "headcni-ports";
/// The version of the tables that [`install`] installs.
pub const VERSION: u32 = 1;

/// One of our tables, both of the family `inet`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// [`TABLE`]: what pods may not send, and what is masqueraded.
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

    /// The script that creates it, and fails if it is there.
    pub fn script(self) -> &'static str {
        match self {
            Self::Pods => include_str!("ruleset/headcni.nft"),
            Self::Ports => include_str!("ruleset/headcni-ports.nft"),
        }
    }
}

/// A table that is in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Installed {
    /// Its version, if its comment says one; ours is [`VERSION`].
    pub version: Option<u32>,
}

/// What is known about a table; nothing if it is missing.
pub fn installed(socket: &Socket, table: Table) -> Result<Option<Installed>, NetError> {
    let comment = nft::table_comment(socket, table.name())?;
    Ok(comment.map(|comment| Installed {
        version: version_in(&comment),
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

/// Installs these tables in the namespace of this thread. That somebody else does so at the same
/// moment is fine.
pub fn install(tables: &[Table]) -> Result<(), NftError> {
    if tables.is_empty() {
        return Ok(());
    }
    let scripts: Vec<&str> = tables.iter().map(|table| table.script()).collect();
    match nft::run(&scripts.concat()) {
        Err(NftError::Exists) if tables.len() == 1 => Ok(()),
        // One of them is there, which one isn't said, and none was installed.
        Err(NftError::Exists) => tables
            .iter()
            .try_for_each(|table| install(std::slice::from_ref(table))),
        outcome => outcome,
    }
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
            assert_eq!(version_in(comment), Some(VERSION), "{first}");
        }
    }

    #[test]
    fn the_only_link_groups_in_the_rules_are_ours() {
        let groups = [LINK_GROUP, DOOMED_GROUP].map(|group| group.to_string());
        let rules = Table::Pods.script().lines();
        let mut matches = 0;
        for rule in rules.filter(|line| !line.trim_start().starts_with('#')) {
            let words: Vec<&str> = rule.split_whitespace().collect();
            for pair in words
                .windows(3)
                .filter(|words| words[0].ends_with("ifgroup"))
            {
                let number = if pair[1] == "!=" { pair[2] } else { pair[1] };
                assert!(groups.iter().any(|group| group == number), "{rule}");
                matches += 1;
            }
        }
        assert_eq!(matches, 5);
    }

    #[test]
    fn a_comment_without_a_version_has_none() {
        assert_eq!(version_in(""), None);
        assert_eq!(version_in("version"), None);
        assert_eq!(version_in("my version of headcni"), None);
        assert_eq!(version_in("headcni, version 12"), Some(12));
    }
}
