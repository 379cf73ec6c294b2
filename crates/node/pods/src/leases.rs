//! Where the leases of this node's pods are, remembered over restarts.
//!
//! Other values of `cni.name`, `ipam.type` or `ipam.dataDir` mean another store, which is empty: new
//! pods would get addresses that pods of the old one have. So such a change waits until the last of
//! those is gone. It is the same whether SIGHUP or a start brings it.

mod location;
mod locations;

use std::path::PathBuf;

pub use location::LeaseStoreLocation;
pub use locations::LeaseStoreLocations;

/// Why the CNI configuration may not name another place for leases.
#[derive(Debug, thiserror::Error)]
pub enum LeasesError {
    /// Pods have leases in the old one.
    #[error(
        "cni.name, ipam.type and ipam.dataDir put leases at {now}, and {pods} running pods have \
         theirs at {before}: new pods would get their addresses a second time; drain the node \
         first, or put the old values back"
    )]
    InUse {
        /// Where leases would be.
        now: String,
        /// Where they are.
        before: String,
        /// How many pods have some there.
        pods: usize,
    },
    /// Nobody knows whether pods have leases in the old one.
    #[error(
        "cni.name, ipam.type and ipam.dataDir put leases at {now}, and it can't be handle_event whether \
         running pods have theirs at {before}: {error}; mend that, or put the old values back"
    )]
    Unknown {
        /// Where leases would be.
        now: String,
        /// Where they are.
        before: String,
        /// What can't be looked at.
        error: String,
    },
    /// The name of the network can't be used.
    #[error(transparent)]
    Name(#[from] cni::Error),
    /// What has to be known after a restart can't be written.
    #[error("write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// How many pods that may live have leases somewhere, or why nobody knows.
pub type PodCount = Result<usize, String>;

/// Whether the CNI configuration may put leases at `now`, by who lives at the other places.
fn check_users(
    now: &LeaseStoreLocation,
    others: impl IntoIterator<Item = (LeaseStoreLocation, PodCount)>,
) -> Result<(), LeasesError> {
    for (location, life) in others {
        let (now, before) = (now.to_string(), location.to_string());
        match life {
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
    fn only_the_certainty_that_nobody_lives_there_lets_leases_move() {
        let (now, old) = (location("new"), location("old"));
        let judged = |lives: &[PodCount]| {
            let others = lives.iter().map(|life| (old.clone(), life.clone()));
            check_users(&now, others).map_err(|error| error.to_string())
        };
        assert_eq!(judged(&[]), Ok(()));
        assert_eq!(judged(&[Ok(0), Ok(0)]), Ok(()));
        let in_use = judged(&[Ok(0), Ok(3)]).unwrap_err();
        assert!(in_use.contains("3 running pods"), "{in_use}");
        assert!(in_use.contains("drain the node"), "{in_use}");
        let unknown = judged(&[Err("the kernel is silent".to_owned())]).unwrap_err();
        assert!(unknown.contains("the kernel is silent"), "{unknown}");
    }
}
