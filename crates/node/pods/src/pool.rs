//! The size and the use of the address pools.

use std::collections::BTreeMap;
use std::net::IpAddr;

use api::{SubnetEnv, SubnetEnvError};
use ipam::{Range, RangeSet};
use ipnet::IpNet;

use super::paths::{LeaseSettings, PodPaths};
use node_core::error::display_chain;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// `ipv4` or `ipv6`.
    pub family: &'static str,
    pub size: u128,
    pub used: u128,
}

impl Pool {
    pub fn is_full(&self) -> bool {
        self.used >= self.size
    }
}

/// The pools of our network; none before `subnet.env` exists.
///
/// Counts files, because the count of the lease store needs its lock.
pub(super) fn pools(paths: &PodPaths) -> Result<Vec<Pool>, String> {
    let subnets = match SubnetEnv::load(&paths.subnet_file, |_| None) {
        Err(SubnetEnvError::Absent { .. }) => return Ok(Vec::new()),
        subnets => subnets.map_err(|error| display_chain(&error))?,
    };
    let Some(store) = paths.lease_store() else {
        return Ok(Vec::new());
    };
    let sets = sets(&subnets, &paths.leases).map_err(|error| display_chain(&error))?;
    let mut used = vec![0; sets.len()];
    store
        .for_each_address(&mut |address| {
            let set = sets.iter().position(|set| set.range_of(address).is_some());
            if let Some(set) = set {
                used[set] += 1;
            }
        })
        .map_err(|error| display_chain(&error))?;
    Ok(by_family(&sets, &used))
}

/// A set per family, as in the IPAM configuration.
fn sets(subnets: &SubnetEnv, leases: &LeaseSettings) -> Result<Vec<RangeSet>, ipam::RangeError> {
    let inside =
        |net: IpNet, address: Option<IpAddr>| address.filter(|address| net.contains(address));
    let families = subnets.families.iter();
    families
        .filter(|family| !family.subnets.is_empty())
        .map(|family| {
            let ranges = family.subnets.iter().map(|subnet| {
                let gateway = subnet.gateway.or(inside(subnet.net, leases.gateway));
                let (first, last) = (
                    inside(subnet.net, leases.first),
                    inside(subnet.net, leases.last),
                );
                Range::new(subnet.net, first, last, gateway)
            });
            RangeSet::new(ranges.collect::<Result<_, _>>()?)
        })
        .collect()
}

fn by_family(sets: &[RangeSet], used: &[u128]) -> Vec<Pool> {
    let mut pools: BTreeMap<&'static str, Pool> = BTreeMap::new();
    for (set, used) in sets.iter().zip(used) {
        let is_ipv4 = set
            .ranges()
            .iter()
            .any(|range| range.subnet().addr().is_ipv4());
        let family = if is_ipv4 { "ipv4" } else { "ipv6" };
        let pool = pools.entry(family).or_insert(Pool {
            family,
            size: 0,
            used: 0,
        });
        pool.used += used;
        for range in set.ranges() {
            pool.size = pool.size.saturating_add(range.capacity());
        }
    }
    pools.into_values().collect()
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::Write;
    use std::path::Path;

    use tempfile::TempDir;

    use super::super::paths::LeaseOwnership;
    use super::*;

    fn paths(dir: &Path, ownership: LeaseOwnership) -> PodPaths {
        let config = node_config::Config::default();
        let mut paths = PodPaths::of(&config, Path::new("/opt/cni/bin")).unwrap();
        paths.subnet_file = dir.join("subnet.env");
        paths.leases.ownership = ownership;
        paths.leases.dir = dir.join("networks");
        paths
    }

    fn furnished(dir: &Path) {
        let subnets = "HEADCNI_NETWORK=10.9.0.0/16\nHEADCNI_SUBNET=10.9.1.1/29\n\
            HEADCNI_IPV6_NETWORK=fd00:9::/48\nHEADCNI_IPV6_SUBNET=fd00:9:0:1::1/64\n\
            HEADCNI_MTU=1280\nHEADCNI_IPMASQ=true\n";
        let mut file = File::create(dir.join("subnet.env")).unwrap();
        file.write_all(subnets.as_bytes()).unwrap();
        let leases = dir.join("networks/headcni");
        fs::create_dir_all(&leases).unwrap();
        for name in [
            "10.9.1.2",
            "10.9.1.3",
            "fd00:9:0:1::2",
            "10.77.0.1",
            "lock",
            "last_reserved_ip.0",
        ] {
            File::create(leases.join(name)).unwrap();
        }
    }

    #[test]
    fn leases_in_the_ranges_are_counted_by_family() {
        let dir = TempDir::new().unwrap();
        furnished(dir.path());
        for ownership in [LeaseOwnership::Native, LeaseOwnership::Shared] {
            let pools = pools(&paths(dir.path(), ownership)).unwrap();
            let [v4, v6] = &pools[..] else {
                panic!("{pools:?}")
            };
            assert_eq!((v4.family, v4.size, v4.used), ("ipv4", 5, 2));
            assert_eq!((v6.family, v6.used), ("ipv6", 1));
            assert!(v6.size > 1 << 60 && !v6.is_full());
        }
        assert!(!dir.path().join("networks/headcni/.headcni").exists());
    }

    #[test]
    fn range_start_and_end_limit_the_pool() {
        let dir = TempDir::new().unwrap();
        furnished(dir.path());
        let mut paths = paths(dir.path(), LeaseOwnership::Native);
        paths.leases.first = Some("10.9.1.3".parse().unwrap());
        paths.leases.last = Some("10.9.1.3".parse().unwrap());
        let pools = pools(&paths).unwrap();
        assert_eq!((pools[0].size, pools[0].used), (1, 1));
        assert!(pools[0].is_full());
    }

    #[test]
    fn there_are_no_pools_without_subnet_env_or_a_known_store() {
        let dir = TempDir::new().unwrap();
        assert_eq!(
            pools(&paths(dir.path(), LeaseOwnership::Native)),
            Ok(vec![])
        );
        furnished(dir.path());
        assert_eq!(
            pools(&paths(dir.path(), LeaseOwnership::Unknown)),
            Ok(vec![])
        );
    }
}
