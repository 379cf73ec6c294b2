//! What the mesh carries: from pod to pod, against node to node by the same tailscaled, and against
//! node to node with no mesh at all. And how soon a node that knows nothing serves its pods.
//!
//! The three are measured one right after the other, in a changing order, and compared with each
//! other before anything else is: a busy moment of the machine hits all or spoils one comparison of
//! many. Two nodes on one switch; whatever is sent stays in namespaces.

mod joining;
mod report;
mod tuning;
mod way;

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use lab::{Cluster, Grounds, Load, Site};

use super::native::machine;
use super::turns::order;
use way::{Sent, Stage, Way};

/// How long one throughput is measured.
const SPELL: Duration = Duration::from_secs(1);
/// How many pings make one latency.
const PINGS: u32 = 100;
/// How often a node joins.
const JOINS: usize = 5;
/// One round takes about half a minute, where a call of a plugin takes milliseconds.
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

/// What is measured of a way in one round, and what came of it in all rounds.
#[derive(Debug)]
struct Series<T> {
    way: Way,
    family: Family,
    rounds: Vec<T>,
}

/// What was sent over a number of connections.
#[derive(Debug)]
struct Rates {
    streams: u8,
    series: Series<Sent>,
}

#[expect(
    clippy::print_stdout,
    reason = "the tables are what a bench is run for"
)]
pub(super) fn measure(iterations: usize, _state: &Path) -> Result<()> {
    let rounds = iterations.div_ceil(CALLS_PER_ROUND);
    let grounds = Grounds::new(&[Site::Open, Site::Open])?;
    let mut cluster = Cluster::new(&grounds)?;
    cluster.start()?;
    let stage = Stage::new(&cluster)?;
    stage.await_direct(&cluster)?;

    let (mut rates, mut latencies) = (nothing_sent(), nothing());
    for round in 0..rounds {
        for compared in rates.chunks_mut(Way::ALL.len()) {
            for nth in order(round, compared.len()) {
                let Rates { streams, series } = &mut compared[nth];
                let load = Load::Tcp { streams: *streams };
                let sent = stage.throughput(series.way, series.family, load, SPELL)?;
                series.rounds.push(sent);
            }
        }
        for compared in latencies.chunks_mut(Way::ALL.len()) {
            for nth in order(round, compared.len()) {
                let series = &mut compared[nth];
                let latency = stage.latency(series.way, series.family, PINGS)?;
                series.rounds.push(latency);
            }
        }
    }
    let joins = joining::times(&cluster, JOINS)?;
    // Last, because daemons would undo it.
    let tuning = tuning::measure(&stage, &mut cluster.members, rounds)?;

    println!("## The mesh\n");
    println!(
        "{}, {rounds} rounds of {} s and {PINGS} pings each.\n",
        machine()?,
        SPELL.as_secs()
    );
    println!("{}\n", report::rates(&rates));
    println!("{}\n", report::costs(&rates));
    println!("{}\n", report::latencies(&latencies));
    println!("{}\n", tuning::report(&tuning));
    println!("{}\n", report::joins(&joins));
    println!("{}", report::goals(&rates, &joins));
    Ok(())
}

fn nothing_sent() -> Vec<Rates> {
    let mut all = Vec::new();
    for streams in STREAMS {
        for series in nothing() {
            all.push(Rates { streams, series });
        }
    }
    all
}

/// Those that are compared with each other stand together.
fn nothing<T>() -> Vec<Series<T>> {
    let families = Family::ALL.into_iter();
    let pairs = families.flat_map(|family| Way::ALL.map(|way| (family, way)));
    pairs
        .map(|(family, way)| Series {
            way,
            family,
            rounds: Vec::new(),
        })
        .collect()
}
