//! Sets of the table `headcni` that only a daemon fills, and that hold just what it says.

use std::collections::BTreeSet;

use ipnet::IpNet;
use net::nft::{self, Element, Existing, Interval, Set, Transaction};
use net::{NetError, Socket};

use crate::{TABLE, cover, elements, set};

/// `IFNAMSIZ`: names of links are keys of this length.
const NAME_LEN: usize = 16;
/// `NFPROTO_IPV4` and `NFPROTO_IPV6`.
const FAMILIES: [u8; 2] = [2, 10];

/// What a daemon wants the table `headcni` to know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Networks and addresses that packets go to by pods' links, `lo` and `inside` only.
    pub mesh_only: Vec<IpNet>,
    /// Names of links that such packets may leave by.
    pub mesh_ifaces: Vec<String>,
    /// Names of bridges that pods are on.
    pub bridges: Vec<String>,
    /// Networks of the mesh's members: pods keep their own address where they reach them by `inside`.
    pub tailnet: Vec<IpNet>,
    /// Whether pods keep their own address wherever they send to.
    pub is_unmasqueraded: bool,
}

/// What a set is to hold.
pub(crate) enum Wanted {
    Intervals(Vec<Interval>),
    Keys(Vec<Vec<u8>>),
}

impl Contents {
    pub(crate) fn by_set(&self) -> [(Set<'static>, Wanted); 7] {
        let [ipv4, ipv6] = by_family(&self.mesh_only);
        let [tailnet_ipv4, tailnet_ipv6] = by_family(&self.tailnet);
        let names = |names: &[String]| Wanted::Keys(names.iter().map(|name| key(name)).collect());
        let families = if self.is_unmasqueraded {
            FAMILIES.map(|family| vec![family]).to_vec()
        } else {
            Vec::new()
        };
        [
            (set(TABLE, "mesh_only4"), ipv4),
            (set(TABLE, "mesh_only6"), ipv6),
            (set(TABLE, "mesh_ifaces"), names(&self.mesh_ifaces)),
            (set(TABLE, "bridges"), names(&self.bridges)),
            (set(TABLE, "tailnet4"), tailnet_ipv4),
            (set(TABLE, "tailnet6"), tailnet_ipv6),
            (set(TABLE, "unmasqueraded"), Wanted::Keys(families)),
        ]
    }
}

/// What the sets for IPv4 and IPv6 are to hold.
fn by_family(networks: &[IpNet]) -> [Wanted; 2] {
    let (ipv4, ipv6): (Vec<IpNet>, Vec<IpNet>) =
        networks.iter().partition(|net| net.addr().is_ipv4());
    [ipv4, ipv6].map(|networks| {
        let intervals = networks.into_iter().map(Interval::from).collect();
        Wanted::Intervals(cover::merged(intervals))
    })
}

/// A name as the kernel compares it: with zeros up to its full length.
fn key(name: &str) -> Vec<u8> {
    let mut key = name.as_bytes().to_vec();
    key.resize(NAME_LEN, 0);
    key
}

/// Whether the sets hold this and nothing else. An error that is `NOENT` means that a set is
/// missing, be it with its table.
pub fn has_contents(socket: &Socket, contents: &Contents) -> Result<bool, NetError> {
    for (set, wanted) in contents.by_set() {
        if !difference(socket, set, &wanted)?.is_empty() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Makes the sets hold this and nothing else, in one go.
pub fn set_contents(socket: &Socket, contents: &Contents) -> Result<(), NetError> {
    nft::retry_outdated(|| {
        let mut transaction = Transaction::at(nft::generation(socket)?);
        for (set, wanted) in contents.by_set() {
            let difference = difference(socket, set, &wanted)?;
            transaction.delete(set, &difference.extra);
            transaction.add(set, &difference.missing, Existing::Refuse);
        }
        transaction.commit(socket)
    })
}

/// What a set has too much, and what it lacks.
struct Difference {
    extra: Vec<Element>,
    missing: Vec<Element>,
}

impl Difference {
    fn is_empty(&self) -> bool {
        self.extra.is_empty() && self.missing.is_empty()
    }
}

fn difference(socket: &Socket, set: Set<'_>, wanted: &Wanted) -> Result<Difference, NetError> {
    Ok(match wanted {
        Wanted::Intervals(wanted) => {
            let (extra, missing) = compare(&nft::intervals(socket, set)?, wanted);
            Difference {
                extra: elements(&extra),
                missing: elements(&missing),
            }
        }
        Wanted::Keys(wanted) => {
            let present = nft::elements(socket, set)?;
            let present: Vec<Vec<u8>> = present.into_iter().map(|element| element.key).collect();
            let (extra, missing) = compare(&present, wanted);
            let members = |keys: Vec<Vec<u8>>| keys.into_iter().map(Element::member).collect();
            Difference {
                extra: members(extra),
                missing: members(missing),
            }
        }
    })
}

/// Those of `present` that aren't wanted, and those of `wanted` that aren't present.
fn compare<T: Clone + Ord>(present: &[T], wanted: &[T]) -> (Vec<T>, Vec<T>) {
    // There may be thousands of both.
    let set = |all: &[T]| all.iter().cloned().collect::<BTreeSet<T>>();
    let (present, wanted) = (set(present), set(wanted));
    let extra = present.difference(&wanted).cloned().collect();
    (extra, wanted.difference(&present).cloned().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_changed() {
        assert_eq!(compare(&[1, 2], &[2, 3, 3]), (vec![1], vec![3]));
        assert_eq!(compare(&[1, 2], &[2, 1]), (vec![], vec![]));
        assert_eq!(compare::<u8>(&[], &[]), (vec![], vec![]));
    }

    #[test]
    fn names_are_padded_to_what_the_kernel_compares() {
        assert_eq!(key("lo"), b"lo\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
    }
}
