//! What the mesh carries: from pod to pod, against node to node by the same tailscaled, and against
//! node to node with no mesh at all. And how soon a node that knows nothing serves its pods.
//!
//! Pods and nodes take turns, many short ones, so that a busy moment of the machine hits both, and
//! what they have of each other is said with how exactly it is known. Two nodes on one switch; whatever
//! is sent stays in namespaces.

mod joining;
mod ratio;
mod report;
mod tuning;
mod way;

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use lab::{Cluster, Grounds, Latency, Load, Site};

use super::native::machine;
use super::turns::order;
use way::{Sent, Stage, Way};

/// How long one throughput is measured.
const SPELL: Duration = Duration::from_secs(1);
/// How many pings make one latency.
const PINGS: u32 = 100;
/// How often a node joins.
const JOINS: usize = 5;
/// One round takes about a minute, where a call of a plugin takes milliseconds.
const CALLS_PER_ROUND: usize = 20;
/// How often pods and nodes take turns in a round. Single turns differ by a quarter on two cores.
const TURNS: usize = 5;

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

/// How long packets took by a way, round by round.
#[derive(Debug)]
struct Latencies {
    way: Way,
    family: Family,
    rounds: Vec<Latency>,
}

/// What was sent over a number of connections.
#[derive(Debug)]
struct Rates {
    streams: u8,
    family: Family,
    underlay: Vec<Sent>,
    /// As many as of pods: those at the same place were measured together.
    nodes: Vec<Sent>,
    pods: Vec<Sent>,
}

impl Rates {
    fn none(streams: u8, family: Family) -> Self {
        Self {
            streams,
            family,
            underlay: Vec::new(),
            nodes: Vec::new(),
            pods: Vec::new(),
        }
    }

    fn measure_round(&mut self, stage: &Stage<'_>) -> Result<()> {
        self.measure(stage, Way::Underlay)?;
        for turn in 0..TURNS {
            // Neither is always the first of a pair.
            let pair = if turn % 2 == 0 {
                [Way::Nodes, Way::Pods]
            } else {
                [Way::Pods, Way::Nodes]
            };
            for way in pair {
                self.measure(stage, way)?;
            }
        }
        Ok(())
    }

    fn measure(&mut self, stage: &Stage<'_>, way: Way) -> Result<()> {
        let load = Load::Tcp {
            streams: self.streams,
        };
        let sent = stage.throughput(way, self.family, load, SPELL)?;
        match way {
            Way::Underlay => self.underlay.push(sent),
            Way::Nodes => self.nodes.push(sent),
            Way::Pods => self.pods.push(sent),
        }
        Ok(())
    }
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
        "{}, {rounds} rounds of {TURNS} turns of {} s, and {PINGS} pings each.\n",
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
    latencies: Vec<Latencies>,
    joins: Vec<Duration>,
}

fn compare(rounds: usize) -> Result<Compared> {
    let grounds = Grounds::new(&[Site::Open, Site::Open])?;
    let mut cluster = Cluster::new(&grounds)?;
    cluster.start()?;
    let stage = Stage::new(&cluster)?;
    stage.await_direct(&cluster)?;

    let (mut rates, mut latencies) = (no_rates(), no_latencies());
    for round in 0..rounds {
        for rates in &mut rates {
            rates.measure_round(&stage)?;
        }
        for compared in latencies.chunks_mut(Way::ALL.len()) {
            for nth in order(round, compared.len()) {
                let Latencies {
                    way,
                    family,
                    rounds,
                } = &mut compared[nth];
                rounds.push(stage.latency(*way, *family, PINGS)?);
            }
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
    let of_all_families = |streams| Family::ALL.map(|family| Rates::none(streams, family));
    STREAMS.into_iter().flat_map(of_all_families).collect()
}

/// Those that are compared with each other stand together.
fn no_latencies() -> Vec<Latencies> {
    let families = Family::ALL.into_iter();
    let pairs = families.flat_map(|family| Way::ALL.map(|way| (family, way)));
    pairs
        .map(|(family, way)| Latencies {
            way,
            family,
            rounds: Vec::new(),
        })
        .collect()
}
