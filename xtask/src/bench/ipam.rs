//! headcni-ipam against the real host-local: what an ADD and a DEL cost with few and with many
//! leases, in a range with room and in one that is nearly full, alone and fifty at once.
//!
//! host-local reads every lease on every call, so with many it gets fewer calls than we do. All
//! stores are made first, and every round visits all of them: that is what makes sizes comparable.

mod burst;
mod contestant;
mod leases;
mod report;

use std::ffi::OsStr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::call::Call;
use super::memory::peak_kib;
use super::sandbox::Pod;
use super::turns::order;
use contestant::{By, Cell, Contestant};
use leases::Room;

/// The sizes that the goals are about.
const NONE: u32 = 0;
const MANY: u32 = 50_000;

const CELLS: [Cell; 6] = [
    ample(NONE),
    ample(100),
    ample(1_000),
    ample(10_000),
    ample(MANY),
    Cell {
        leases: 10_000,
        room: Room::Scarce,
    },
];

const fn ample(leases: u32) -> Cell {
    Cell {
        leases,
        room: Room::Ample,
    }
}

#[expect(
    clippy::print_stdout,
    reason = "the tables are what a bench is run for"
)]
pub(super) fn measure(iterations: usize, state: &Path) -> Result<()> {
    let pod = Pod::make(0, OsStr::new("/nowhere"))?;
    for cell in CELLS {
        for by in [By::HostLocal, By::ALL[1]] {
            leases::write(&by.data_dir(cell, state), cell.leases)?;
        }
    }
    let takeover = take_over(&pod, state)?;
    let mut contestants = Vec::new();
    for (cell, by) in CELLS.iter().flat_map(|cell| By::ALL.map(|by| (*cell, by))) {
        contestants.push(Contestant::warm(by, cell, &pod, state, iterations)?);
    }

    for round in 0..iterations {
        for nth in order(round, contestants.len()) {
            contestants[nth].take_turn(round, &pod)?;
        }
    }
    let memory = contestants
        .iter()
        .filter(|who| who.cell == ample(NONE) || who.cell == ample(MANY))
        .map(|who| Memory::of(who, &pod))
        .collect::<Result<Vec<_>>>()?;

    println!("## headcni-ipam against host-local\n");
    println!("{}\n", report::calls(&contestants));
    println!("{}\n", burst::measure(&contestants, &pod, iterations)?);
    println!("{}\n", report::memory(&memory, &takeover));
    println!("{}\n", report::goals(&contestants, &memory));
    Ok(())
}

/// The most memory that somebody's calls needed, in KiB.
struct Memory {
    by: By,
    leases: u32,
    add_kib: u64,
    del_kib: u64,
}

impl Memory {
    fn of(who: &Contestant, pod: &Pod) -> Result<Self> {
        let call = who.call(pod, "memory");
        Ok(Self {
            by: who.by,
            leases: who.cell.leases,
            add_kib: peak_kib(&call, "ADD")?,
            del_kib: peak_kib(&call, "DEL")?,
        })
    }
}

/// What our first call on a store of host-local's costs, which no later one has to pay.
struct Takeover {
    wall: Duration,
    peak_kib: u64,
}

fn take_over(pod: &Pod, state: &Path) -> Result<Takeover> {
    let (by, at) = (By::ALL[1], ample(MANY));
    let (program, config) = (by.program(), by.config(at, state));
    let call = Call {
        program: &program,
        config: &config,
        container: "takeover",
        pod,
    };
    let start = Instant::now();
    let peak_kib = peak_kib(&call, "ADD").context("take a store over")?;
    let wall = start.elapsed();
    call.wall("DEL")?;
    Ok(Takeover { wall, peak_kib })
}
