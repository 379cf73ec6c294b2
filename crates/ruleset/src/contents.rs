//! The sets of the table `headcni` whose elements only the daemon decides.

use std::collections::BTreeSet;

use ipnet::IpNet;
use net::nft::{self, Element, Existing, Interval, Set, Transaction};
use net::{NetError, Socket};

use crate::{TABLE, cover, elements, set};

/// `IFNAMSIZ`, the key length of interface names.
const NAME_LEN: usize = 16;
/// `NFPROTO_IPV4` and `NFPROTO_IPV6`.
const FAMILIES: [u8; 2] = [2, 10];

/// Desired elements of those sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Destinations that packets reach only by pod veths, `lo` and `mesh_ifaces`, never in clear.
    pub mesh_only: Vec<IpNet>,
    /// Interfaces by which such packets may leave.
    pub mesh_ifaces: Vec<String>,
    /// Bridges of pods.
    pub bridges: Vec<String>,
    /// Addresses of peers: not masqueraded where packets leave by `mesh_ifaces`.
    pub tailnet: Vec<IpNet>,
    /// Whether nothing is masqueraded.
    pub is_unmasqueraded: bool,
}

pub(crate) enum Desired {
    Intervals(Vec<Interval>),
    Keys(Vec<Vec<u8>>),
}

impl Contents {
    pub(crate) fn by_set(&self) -> [(Set<'static>, Desired); 7] {
        let [ipv4, ipv6] = by_family(&self.mesh_only);
        let [tailnet_ipv4, tailnet_ipv6] = by_family(&self.tailnet);
        let names = |names: &[String]| Desired::Keys(names.iter().map(|name| key(name)).collect());
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
            (set(TABLE, "unmasqueraded"), Desired::Keys(families)),
        ]
    }
}

fn by_family(networks: &[IpNet]) -> [Desired; 2] {
    let (ipv4, ipv6): (Vec<IpNet>, Vec<IpNet>) =
        networks.iter().partition(|net| net.addr().is_ipv4());
    [ipv4, ipv6].map(|networks| {
        let intervals = networks.into_iter().map(Interval::from).collect();
        Desired::Intervals(cover::merged(intervals))
    })
}

/// An interface name as a key, padded with zeros.
fn key(name: &str) -> Vec<u8> {
    let mut key = name.as_bytes().to_vec();
    key.resize(NAME_LEN, 0);
    key
}

/// Whether the sets have exactly these elements; `ENOENT` if a set or the table is missing.
pub fn has_contents(socket: &Socket, contents: &Contents) -> Result<bool, NetError> {
    for (set, desired) in contents.by_set() {
        if !difference(socket, set, &desired)?.is_empty() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Sets the elements of all sets in one transaction.
pub fn set_contents(socket: &Socket, contents: &Contents) -> Result<(), NetError> {
    nft::retry_outdated(|| {
        let mut transaction = Transaction::at(nft::generation(socket)?);
        for (set, desired) in contents.by_set() {
            let difference = difference(socket, set, &desired)?;
            transaction.delete(set, &difference.extra);
            transaction.add(set, &difference.missing, Existing::Reject);
        }
        transaction.commit(socket)
    })
}

struct Difference {
    extra: Vec<Element>,
    missing: Vec<Element>,
}

impl Difference {
    fn is_empty(&self) -> bool {
        self.extra.is_empty() && self.missing.is_empty()
    }
}

fn difference(socket: &Socket, set: Set<'_>, desired: &Desired) -> Result<Difference, NetError> {
    Ok(match desired {
        Desired::Intervals(desired) => {
            let (extra, missing) = compare(&nft::intervals(socket, set)?, desired);
            Difference {
                extra: elements(&extra),
                missing: elements(&missing),
            }
        }
        Desired::Keys(desired) => {
            let present = nft::elements(socket, set)?;
            let present: Vec<Vec<u8>> = present.into_iter().map(|element| element.key).collect();
            let (extra, missing) = compare(&present, desired);
            let members = |keys: Vec<Vec<u8>>| keys.into_iter().map(Element::member).collect();
            Difference {
                extra: members(extra),
                missing: members(missing),
            }
        }
    })
}

/// The elements only in `present`, and the elements only in `desired`.
fn compare<T: Clone + Ord>(present: &[T], desired: &[T]) -> (Vec<T>, Vec<T>) {
    // Both may have thousands of elements.
    let set = |all: &[T]| all.iter().cloned().collect::<BTreeSet<T>>();
    let (present, desired) = (set(present), set(desired));
    let extra = present.difference(&desired).cloned().collect();
    (extra, desired.difference(&present).cloned().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_differences_are_returned() {
        assert_eq!(compare(&[1, 2], &[2, 3, 3]), (vec![1], vec![3]));
        assert_eq!(compare(&[1, 2], &[2, 1]), (vec![], vec![]));
        assert_eq!(compare::<u8>(&[], &[]), (vec![], vec![]));
    }

    #[test]
    fn interface_names_are_padded() {
        assert_eq!(key("lo"), b"lo\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
    }
}
