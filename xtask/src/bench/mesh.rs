//! What the mesh carries: from pod to pod, against node to node by the same tailscaled, and against
//! node to node with no mesh at all. And how soon a node that knows nothing serves its pods.
//!
//! Pods and nodes take turns, many short ones, so that a busy moment of the machine hits both, and
//! what they have of each other is said with how exactly it is known. Two nodes on one switch; whatever
//! is sent stays in namespaces.

mod by_way;
mod joining;
mod ratio;
mod report;
mod tuning;
mod way;

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use lab::scenario::{MeshCluster, Site, Topology};
use lab::{Latency, Load};

use super::native::machine;
use by_way::ByWay;
use way::{Sent, Stage};

/// How long one throughput is measured.
const SPELL: Duration = Duration::from_secs(1);
/// How often pods and nodes take turns in a round. Single turns differ by a quarter on two cores.
const TURNS: usize = 5;
/// How many pings make a turn.
const PINGS: u32 = 100;
/// The same for pings. Which core the kernel wakes whom on makes a turn quick or slow as a whole, so it
/// takes many turns, not many pings, to see what the ways differ by.
const PING_TURNS: usize = 20;
/// How often a node joins.
const JOINS: usize = 5;
/// One round takes more than a minute, where a call of a plugin takes milliseconds.
const CALLS_PER_ROUND: usize = 20;
const STREAMS: [u8; 2] = [1, 4];

/// By which family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    Ipv4,
    Ipv6,
}

impl Family {
    const ALL: [Self; 2] = [Self::Ipv4, Self::Ipv6];

    fn name(self) -> &'static str {
        match self {
            Self::Ipv4 => "IPv4",
            Self::Ipv6 => "IPv6",
        }
    }
}

/// What was sent over a number of connections.
#[derive(Debug)]
struct Rates {
    streams: u8,
    sent: ByWay<Sent>,
}

#[expect(
    clippy::print_stdout,
    reason = "the tables are what a bench is run for"
)]
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
        "{}, {rounds} rounds of {TURNS} turns of {} s and {PING_TURNS} of {PINGS} pings.\n",
        machine()?,
        SPELL.as_secs()
    );
    println!("{}\n", report::rates(&rates));
    println!("{}\n", report::costs(&rates));
    println!("{}\n", report::latencies(&latencies));
    println!("{}\n", tuning::report(&tuning));
    println!("{}\n", report::joins(&joins));
    println!("{}", report::goals(&rates, &latencies, &joins));
    Ok(())
}

/// What was measured in a cluster as it comes.
struct Compared {
    rates: Vec<Rates>,
    latencies: Vec<ByWay<Latency>>,
    joins: Vec<Duration>,
}

fn compare(rounds: usize) -> Result<Compared> {
    let grounds = Topology::new(&[Site::Open, Site::Open])?;
    let mut cluster = MeshCluster::on(grounds)?;
    cluster.start_daemons()?;
    let stage = Stage::new(&cluster)?;
    stage.await_direct(&cluster)?;

    let (mut rates, mut latencies) = (no_rates(), no_latencies());
    for _ in 0..rounds {
        for Rates { streams, sent } in &mut rates {
            let load = Load::Tcp { streams: *streams };
            let family = sent.family;
            sent.measure_round(TURNS, |way| stage.throughput(way, family, load, SPELL))?;
        }
        for pings in &mut latencies {
            let family = pings.family;
            pings.measure_round(PING_TURNS, |way| stage.latency(way, family, PINGS))?;
        }
    }
    let joins = joining::times(&cluster, JOINS)?;
    Ok(Compared {
        rates,
        latencies,
        joins,
    })
}

fn no_rates() -> Vec<Rates> {
    let of_all_families = |streams| {
        Family::ALL.map(|family| Rates {
            streams,
            sent: ByWay::none(family),
        })
    };
    STREAMS.into_iter().flat_map(of_all_families).collect()
}

fn no_latencies() -> Vec<ByWay<Latency>> {
    Family::ALL.map(ByWay::none).into()
}
