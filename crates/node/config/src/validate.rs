//! Contradictions: values that are each fine and together would hurt.
//!
//! Pure. What would break pods is a problem and refused, with the way out. What has no effect, or is
//! likely not meant, is a warning. What only the node knows (its own network, if the configuration does
//! not say it) is left to those who find it out.

mod addresses;
mod cni;
mod mesh;
mod networks;
mod paths;
mod warnings;

use std::time::Duration;

use super::problem::Problem;
use super::schema::{Config, Monitoring, Pods};

pub use warnings::advise;

/// An ADD may take that long: what is younger may still be in the making.
const LEAST_GRACE: Duration = Duration::from_mins(1);
const LEAST_INTERVAL: Duration = Duration::from_secs(1);

/// All contradictions.
pub fn validate(config: &Config) -> Vec<Problem> {
    let mut problems = networks::problems(&config.network);
    problems.extend(addresses::problems(config));
    problems.extend(cni::problems(config));
    problems.extend(mesh::problems(config));
    problems.extend(paths::problems(config));
    problems.extend(pods(&config.pods));
    problems.extend(monitoring(&config.monitoring));
    problems
}

fn pods(pods: &Pods) -> Vec<Problem> {
    let mut problems = Vec::new();
    if pods.orphan_grace.0 < LEAST_GRACE {
        problems.push(Problem::new(
            "pods.orphanGrace",
            "too short: a pod may take a minute to start, and would be taken away; 60s or more",
        ));
    }
    if pods.orphan_interval.0 < LEAST_INTERVAL {
        problems.push(Problem::new(
            "pods.orphanInterval",
            "too short: looking all the time costs more than it finds; 1s or more",
        ));
    }
    problems
}

fn monitoring(monitoring: &Monitoring) -> Vec<Problem> {
    if monitoring.pprof && !monitoring.address.ip().is_loopback() {
        return vec![Problem::new(
            "monitoring.pprof",
            "would show the daemon's inside to the network: set monitoring.address to \
             127.0.0.1, or pprof to false",
        )];
    }
    Vec::new()
}
