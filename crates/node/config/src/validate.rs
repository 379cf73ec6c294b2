//! Checks that values are usable and do not contradict each other. Pure.
//!
//! A value that would break pods is an error. A value that has no effect, or is probably a mistake, is
//! a warning.

mod addresses;
mod cni;
mod mesh;
mod networks;
mod paths;
mod warnings;

use std::time::Duration;

use super::problem::Problem;
use super::schema::{Config, Monitoring, Pods};

pub use warnings::warnings;

/// An ADD may take that long.
const MIN_GRACE: Duration = Duration::from_mins(1);
const MIN_INTERVAL: Duration = Duration::from_secs(1);

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
    if pods.orphan_grace.0 < MIN_GRACE {
        problems.push(Problem::new(
            "pods.orphanGrace",
            "too short: the network of a starting pod would be collected; use 60s or more",
        ));
    }
    if pods.orphan_interval.0 < MIN_INTERVAL {
        problems.push(Problem::new(
            "pods.orphanInterval",
            "too short; use 1s or more",
        ));
    }
    problems
}

fn monitoring(monitoring: &Monitoring) -> Vec<Problem> {
    if monitoring.pprof && !monitoring.address.ip().is_loopback() {
        return vec![Problem::new(
            "monitoring.pprof",
            "would expose profiles of the daemon to the network: set monitoring.address to \
             127.0.0.1, or pprof to false",
        )];
    }
    Vec::new()
}
