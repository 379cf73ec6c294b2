//! headcni-ipam against the real host-local: ADD and DEL with few and with many leases, in a range with
//! free addresses and in one that is nearly full, alone and fifty at once.
//!
//! host-local reads every lease on every call, so with many leases it gets fewer calls. All stores are
//! created first and every round visits all of them, which makes sizes comparable.

mod burst;
mod case;
mod leases;
mod report;

use std::ffi::OsStr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::call::Call;
use super::memory::peak_kib;
use super::order::order;
use super::sandbox::Pod;
use case::{Allocator, LeaseStore, StoreCase};
use leases::Range;

/// Sizes that the goals compare.
const NONE: u32 = 0;
const MANY: u32 = 50_000;

const STORES: [LeaseStore; 6] = [
    large(NONE),
    large(100),
    large(1_000),
    large(10_000),
    large(MANY),
    LeaseStore {
        leases: 10_000,
        range: Range::NearlyFull,
    },
];

const fn large(leases: u32) -> LeaseStore {
    LeaseStore {
        leases,
        range: Range::Large,
    }
}

#[expect(clippy::print_stdout, reason = "the tables are the result")]
pub(super) fn measure(iterations: usize, state: &Path) -> Result<()> {
    let pod = Pod::make(0, OsStr::new("/nowhere"))?;
    for store in STORES {
        for by in [Allocator::HostLocal, Allocator::ALL[1]] {
            leases::write(&by.data_dir(store, state), store.leases)?;
        }
    }
    let migration = migrate(&pod, state)?;
    let mut cases = Vec::new();
    for (store, by) in STORES
        .iter()
        .flat_map(|store| Allocator::ALL.map(|by| (*store, by)))
    {
        cases.push(StoreCase::warm(by, store, &pod, state, iterations)?);
    }

    for round in 0..iterations {
        for nth in order(round, cases.len()) {
            cases[nth].measure(round, &pod)?;
        }
    }
    let memory = cases
        .iter()
        .filter(|case| case.store == large(NONE) || case.store == large(MANY))
        .map(|case| Memory::of(case, &pod))
        .collect::<Result<Vec<_>>>()?;

    println!("## headcni-ipam against host-local\n");
    println!("{}\n", report::calls(&cases));
    println!("{}\n", burst::measure(&cases, &pod, iterations)?);
    println!("{}\n", report::memory(&memory, &migration));
    println!("{}\n", report::goals(&cases, &memory));
    Ok(())
}

/// Peak memory of a case's calls.
struct Memory {
    by: Allocator,
    leases: u32,
    add_kib: u64,
    del_kib: u64,
}

impl Memory {
    fn of(case: &StoreCase, pod: &Pod) -> Result<Self> {
        let call = case.call(pod, "memory");
        Ok(Self {
            by: case.by,
            leases: case.store.leases,
            add_kib: peak_kib(&call, "ADD")?,
            del_kib: peak_kib(&call, "DEL")?,
        })
    }
}

/// Our first call on a store of host-local's, which converts it.
struct Migration {
    wall: Duration,
    peak_kib: u64,
}

fn migrate(pod: &Pod, state: &Path) -> Result<Migration> {
    let (by, at) = (Allocator::ALL[1], large(MANY));
    let (program, config) = (by.program(), by.config(at, state));
    let call = Call {
        program: &program,
        config: &config,
        container: "migration",
        pod,
    };
    let start = Instant::now();
    let peak_kib = peak_kib(&call, "ADD").context("convert a store")?;
    let wall = start.elapsed();
    call.wall("DEL")?;
    Ok(Migration { wall, peak_kib })
}
