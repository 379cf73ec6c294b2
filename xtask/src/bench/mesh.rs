//! The mesh: throughput and latency from pod to pod, against node to node over the same tailscaled, and
//! against node to node without a mesh; and how long a new node takes to join.
//!
//! Short samples of pods and nodes alternate, so that a busy moment of the machine affects both, and
//! ratios are reported with their standard error.

mod join;
mod ratio;
mod report;
mod samples;
mod tuning;
mod two_nodes;

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use lab::scenario::{MeshCluster, Site, Topology};
use lab::{Latency, Load};

use super::table::machine;
use samples::Samples;
use two_nodes::{Sent, TwoNodes};

/// Time of one throughput sample.
const SAMPLE_TIME: Duration = Duration::from_secs(1);
/// Per round. Single samples differ by a quarter on two cores.
const THROUGHPUT_SAMPLES: usize = 5;
/// Pings per sample.
const PINGS: u32 = 100;
/// Per round. The choice of cores makes a whole sample quick or slow, so many short samples tell more
/// than many pings.
const PING_SAMPLES: usize = 20;
const JOINS: usize = 5;
/// A round takes more than a minute, a plugin's call milliseconds.
const CALLS_PER_ROUND: usize = 20;
const STREAMS: [u8; 2] = [1, 4];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IpFamily {
    Ipv4,
    Ipv6,
}

impl IpFamily {
    const ALL: [Self; 2] = [Self::Ipv4, Self::Ipv6];

    fn name(self) -> &'static str {
        match self {
            Self::Ipv4 => "IPv4",
            Self::Ipv6 => "IPv6",
        }
    }
}

/// Throughput over a number of connections.
#[derive(Debug)]
struct Rates {
    streams: u8,
    sent: Samples<Sent>,
}

#[expect(clippy::print_stdout, reason = "the tables are the result")]
pub(super) fn measure(iterations: usize, _state: &Path) -> Result<()> {
    let rounds = iterations.div_ceil(CALLS_PER_ROUND);
    let Compared {
        rates,
        latencies,
        joins,
    } = compare(rounds)?;
    let tuning = tuning::measure(rounds)?;

    println!("## The mesh\n");
    println!(
        "{}, {rounds} rounds of {THROUGHPUT_SAMPLES} samples of {} s and {PING_SAMPLES} of {PINGS} pings.\n",
        machine()?,
        SAMPLE_TIME.as_secs()
    );
    println!("{}\n", report::rates(&rates));
    println!("{}\n", report::costs(&rates));
    println!("{}\n", report::latencies(&latencies));
    println!("{}\n", tuning::report(&tuning));
    println!("{}\n", report::joins(&joins));
    println!("{}", report::goals(&rates, &latencies, &joins));
    Ok(())
}

/// Measured in a cluster with the default configuration.
struct Compared {
    rates: Vec<Rates>,
    latencies: Vec<Samples<Latency>>,
    joins: Vec<Duration>,
}

fn compare(rounds: usize) -> Result<Compared> {
    let grounds = Topology::new(&[Site::Open, Site::Open])?;
    let mut cluster = MeshCluster::on(grounds)?;
    cluster.start_daemons()?;
    let nodes = TwoNodes::new(&cluster)?;
    nodes.await_direct(&cluster)?;

    let (mut rates, mut latencies) = (no_rates(), no_latencies());
    for _ in 0..rounds {
        for Rates { streams, sent } in &mut rates {
            let load = Load::Tcp { streams: *streams };
            let family = sent.family;
            sent.measure_round(THROUGHPUT_SAMPLES, |ends| {
                nodes.throughput(ends, family, load, SAMPLE_TIME)
            })?;
        }
        for pings in &mut latencies {
            let family = pings.family;
            pings.measure_round(PING_SAMPLES, |ends| nodes.latency(ends, family, PINGS))?;
        }
    }
    let joins = join::times(&cluster, JOINS)?;
    Ok(Compared {
        rates,
        latencies,
        joins,
    })
}

fn no_rates() -> Vec<Rates> {
    let of_all_families = |streams| {
        IpFamily::ALL.map(|family| Rates {
            streams,
            sent: Samples::none(family),
        })
    };
    STREAMS.into_iter().flat_map(of_all_families).collect()
}

fn no_latencies() -> Vec<Samples<Latency>> {
    IpFamily::ALL.map(Samples::none).into()
}
