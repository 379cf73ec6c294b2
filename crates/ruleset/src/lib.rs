//! Our two nftables tables and their sets. The rules never change; what depends on pods are elements.
//!
//! `headcni.nft` filters packets of pods, masquerades, and keeps packets to pods inside the mesh.
//! `headcni-ports.nft` forwards hostPorts. Both begin with `create table`, so that one of several
//! concurrent installers succeeds and the others do nothing.
//!
//! The plugin [installs](install) missing tables. The daemon also fills the sets of [`Contents`],
//! detects foreign edits by a [`Fingerprint`], and repairs the tables: [`replace`], [`repair_ports`].

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
pub use fingerprint::{Fingerprint, fingerprint, fresh_fingerprint, is_intact};
pub use replace::{ReplaceError, delete, repair_ports, replace};

/// Link group of the host ends of pod veths.
pub const LINK_GROUP: u32 = 26723;
/// Link group of host ends that are about to be deleted together.
pub const DOOMED_GROUP: u32 = 26724;
/// Table with the rules for pods.
pub const TABLE: &str = "headcni";
/// Table with the hostPorts.
pub const PORTS_TABLE: &str = "headcni-ports";

/// One of our tables, both of the family `inet`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// [`TABLE`]: filter for packets of pods, masquerading, mesh-only destinations.
    Pods,
    /// [`PORTS_TABLE`]: hostPorts.
    Ports,
}

impl Table {
    /// Both tables.
    pub const ALL: [Self; 2] = [Self::Pods, Self::Ports];

    /// Name in the kernel.
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

    /// The script that creates it, and fails if it exists.
    pub fn script(self) -> &'static str {
        match self {
            Self::Pods => include_str!("headcni.nft"),
            Self::Ports => include_str!("headcni-ports.nft"),
        }
    }
}

/// A table in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Installed {
    /// Version in its comment, if any; ours is [`Table::version`].
    pub version: Option<u32>,
}

/// The table in the kernel, if it exists.
pub fn installed(socket: &Socket, table: Table) -> Result<Option<Installed>, NetError> {
    let info = nft::table(socket, table.name())?;
    Ok(info.map(|info| Installed {
        version: version_in(&info.comment),
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

/// Installs these tables in the netns of this thread, with `mesh_only` in the sets of that name. An
/// existing table stays as it is.
pub fn install(tables: &[Table], mesh_only: &[IpNet]) -> Result<(), NftError> {
    if tables.is_empty() {
        return Ok(());
    }
    let scripts = tables.iter().map(|table| match table {
        Table::Pods => format!("{}{}", table.script(), mesh_only_script(mesh_only)),
        Table::Ports => table.script().to_owned(),
    });
    match nft::run(&scripts.collect::<String>()) {
        Err(NftError::Exists) if tables.len() == 1 => Ok(()),
        // At least one exists, and none was installed.
        Err(NftError::Exists) => tables
            .iter()
            .try_for_each(|table| install(std::slice::from_ref(table), mesh_only)),
        outcome => outcome,
    }
}

fn mesh_only_script(networks: &[IpNet]) -> String {
    // The kernel rejects overlapping intervals.
    let networks = IpNet::aggregate(&networks.to_vec());
    let lines = networks.iter().map(|network| {
        let family = if network.addr().is_ipv4() { 4 } else { 6 };
        format!("add element inet {TABLE} mesh_only{family} {{ {network} }}\n")
    });
    lines.collect()
}

/// A pair of sets of networks, for IPv4 and IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sets {
    /// Pods and Services: never masqueraded.
    Cluster,
    /// Local addresses without hostPorts: Services and gateways.
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

/// Ensures that the sets cover these networks; `ENOENT` if the table is missing.
///
/// Adds missing networks, and merges them with intervals that they overlap.
pub fn ensure_covered(socket: &Socket, sets: Sets, networks: &[IpNet]) -> Result<(), NetError> {
    // The common case, which needs no generation.
    if covers(socket, sets, networks)? {
        return Ok(());
    }
    nft::retry_outdated(|| {
        let mut transaction = Transaction::at(nft::generation(socket)?);
        for (set, plan) in plans(socket, sets, networks)? {
            transaction.delete(set, &elements(&plan.remove));
            transaction.add(set, &elements(&plan.add), Existing::Reject);
        }
        transaction.commit(socket)
    })
}

/// Removes these networks from the sets. One that is part of a larger interval stays.
pub fn uncover(socket: &Socket, sets: Sets, networks: &[IpNet]) -> Result<(), NetError> {
    nft::retry_outdated(|| {
        let mut transaction = Transaction::at(nft::generation(socket)?);
        for set in [sets.ipv4(), sets.ipv6()] {
            let present = nft::intervals(socket, set)?;
            let mut removed: Vec<Interval> =
                networks.iter().map(|net| Interval::from(*net)).collect();
            removed.retain(|interval| present.contains(interval));
            transaction.delete(set, &elements(&removed));
        }
        transaction.commit(socket)
    })
}

fn elements(intervals: &[Interval]) -> Vec<Element> {
    intervals.iter().flat_map(Interval::elements).collect()
}

/// Whether the sets cover these networks; `ENOENT` if the table is missing.
pub fn covers(socket: &Socket, sets: Sets, networks: &[IpNet]) -> Result<bool, NetError> {
    Ok(plans(socket, sets, networks)?.is_empty())
}

/// The changes of each set that does not cover its networks.
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
    use rstest::rstest;

    use super::*;

    #[test]
    fn scripts_begin_with_create_table_and_the_version() {
        for table in Table::ALL {
            let first = table.script().lines().next().unwrap();
            let start = format!("create table inet {} {{ comment \"", table.name());
            let comment = first.strip_prefix(&start).unwrap();
            let comment = comment.strip_suffix("\"; }").unwrap();
            assert_eq!(version_in(comment), Some(table.version()), "{first}");
        }
    }

    #[test]
    fn rules_match_only_our_link_groups() {
        let groups = [LINK_GROUP, DOOMED_GROUP].map(|group| group.to_string());
        let rules = Table::Pods.script().lines();
        let mut matches = 0;
        for rule in rules.filter(|line| !line.trim_start().starts_with('#')) {
            let tokens: Vec<&str> = rule.split_whitespace().collect();
            let keywords = (0..tokens.len()).filter(|at| tokens[*at].ends_with("ifgroup"));
            for at in keywords {
                let numbers = tokens[at + 1..]
                    .iter()
                    .skip_while(|token| ["!=", "{"].contains(token))
                    .take_while(|token| token.starts_with(|first: char| first.is_ascii_digit()))
                    .map(|token| token.trim_end_matches(','));
                for number in numbers {
                    assert!(groups.iter().any(|group| group == number), "{rule}");
                    matches += 1;
                }
            }
        }
        assert_eq!(matches, 9);
    }

    #[rstest]
    #[case("", None)]
    #[case("version", None)]
    #[case("my version of headcni", None)]
    #[case("headcni, version 12", Some(12))]
    fn the_version_is_the_number_at_the_end(#[case] comment: &str, #[case] version: Option<u32>) {
        assert_eq!(version_in(comment), version);
    }
}
