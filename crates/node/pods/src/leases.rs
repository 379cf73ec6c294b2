//! Refuses to change the lease store while pods have leases in the old one.
//!
//! Other values of `cni.name`, `ipam.type` or `ipam.dataDir` mean another, empty store: new pods would
//! get addresses that running pods have. So the change waits until the last of those is gone, whether
//! it comes with SIGHUP or at start.

mod location;
mod locations;

use std::path::PathBuf;

pub use location::LeaseStoreLocation;
pub use locations::LeaseStoreLocations;

#[derive(Debug, thiserror::Error)]
pub enum LeasesError {
    #[error(
        "cni.name, ipam.type and ipam.dataDir select the lease store {now}, but {pods} running \
         pods have leases in {before}: new pods would get the same addresses; drain the node first, \
         or restore the old values"
    )]
    InUse {
        now: String,
        before: String,
        pods: usize,
    },
    #[error(
        "cni.name, ipam.type and ipam.dataDir select the lease store {now}, but it is unknown \
         whether running pods have leases in {before}: {error}; fix that, or restore the old values"
    )]
    Unknown {
        now: String,
        before: String,
        error: String,
    },
    #[error(transparent)]
    Name(#[from] cni::Error),
    #[error("write {}", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

/// The number of pods that may run and have leases in a store.
pub type PodCount = Result<usize, String>;

fn check_users(
    now: &LeaseStoreLocation,
    others: impl IntoIterator<Item = (LeaseStoreLocation, PodCount)>,
) -> Result<(), LeasesError> {
    for (location, count) in others {
        let (now, before) = (now.to_string(), location.to_string());
        match count {
            Ok(0) => {}
            Ok(pods) => return Err(LeasesError::InUse { now, before, pods }),
            Err(error) => {
                return Err(LeasesError::Unknown { now, before, error });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use node_config::Config;

    fn location(name: &str) -> LeaseStoreLocation {
        let mut config = Config::default();
        config.cni.name = name.to_owned();
        LeaseStoreLocation::of(&config)
    }

    #[test]
    fn the_lease_store_changes_only_if_provably_unused() {
        let (now, old) = (location("new"), location("old"));
        let check = |counts: &[PodCount]| {
            let others = counts.iter().map(|count| (old.clone(), count.clone()));
            check_users(&now, others).map_err(|error| error.to_string())
        };
        assert_eq!(check(&[]), Ok(()));
        assert_eq!(check(&[Ok(0), Ok(0)]), Ok(()));
        let in_use = check(&[Ok(0), Ok(3)]).unwrap_err();
        assert!(in_use.contains("3 running pods"), "{in_use}");
        assert!(in_use.contains("drain the node"), "{in_use}");
        let unknown = check(&[Err("no netlink".to_owned())]).unwrap_err();
        assert!(unknown.contains("no netlink"), "{unknown}");
    }
}
