//! The native datapath against the reference plugins, and against the floor: a program that makes the
//! kernel do the same work and does nothing else.
//!
//! Every round visits all cases in another order, each with a new namespace: first all ADDs, then all
//! DELs. Bursts of fifty follow.

mod case;
mod report;
mod trace;

use std::convert::identity;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use lab::tools::{cni_plugin_dir, headcni, headcni_bin_dir};
use serde_json::Value;

use super::burst::{AT_ONCE, Burst, burst};
use super::call::{Cost, cost_of};
use super::order::order;
use super::sandbox::Pod;
use super::table::machine;
use crate::dist::{copy_executable, musl_target, static_build};
use crate::process::run;
use case::{Implementation, NativeCase, Network};

/// The first rounds warm the caches; they are not counted.
const WARM_UP: usize = 5;

/// Builds the floor with the plugins' profile.
pub(super) fn build_floor() -> Result<()> {
    run(static_build()?.args(["--package", "net", "--example", "floor"]))
}

/// Copies the floor and our plugin to a new directory: the page faults of a new process depend on how
/// its file came into the page cache.
fn programs(state: &Path) -> Result<PathBuf> {
    let target = state.parent().context("the state directory has a parent")?;
    let release = target.join(musl_target()?).join("release");
    let dir = state.join("bin");
    fs::create_dir(&dir).context("create a directory for programs")?;
    for program in [release.join("examples/floor"), headcni()] {
        let name = program
            .file_name()
            .context("the program has no file name")?;
        copy_executable(&program, &dir.join(name))
            .with_context(|| format!("copy {}", program.display()))?;
    }
    Ok(dir)
}

/// The measurements of one case.
struct Measured {
    network: Network,
    by: Implementation,
    add: Vec<Cost>,
    del: Vec<Cost>,
    /// Of one ADD.
    system_calls: usize,
    /// Bursts of ADDs and of DELs; empty where they are not measured.
    bursts: (Vec<Burst>, Vec<Burst>),
}

#[expect(clippy::print_stdout, reason = "the tables are the result")]
pub(super) fn measure(iterations: usize, state: &Path) -> Result<()> {
    let mut pods = Pods::new()?;
    let programs = programs(state)?;
    let (mut cases, mut left_out) = (vec![], None);
    // A pod that stays: the first ADD and the last DEL of a node cost more than others.
    let staying = pods.fresh(NativeCase::ALL.len())?;
    for (pod, (network, by)) in staying.iter().zip(NativeCase::ALL) {
        let case = NativeCase::new(network, by, &programs, state);
        match case.attach(pod, identity) {
            Ok(_) => cases.push(case),
            // The figures of the others are still useful.
            Err(error) if by == Implementation::Headcni => left_out = Some(error),
            Err(error) => return Err(error),
        }
    }

    let mut all: Vec<Measured> = cases.iter().map(Measured::nothing).collect();
    for round in 0..WARM_UP + iterations {
        if round == WARM_UP {
            all = cases.iter().map(Measured::nothing).collect();
        }
        measure_round(round, &cases, &mut all, &mut pods)?;
    }
    count_system_calls(&cases, &mut all, &mut pods, state)?;
    let bursts = iterations.div_ceil(AT_ONCE as usize);
    for round in 0..bursts {
        measure_bursts(round, &cases, &mut all, &mut pods)?;
    }

    println!("## The native datapath\n");
    println!("{}, {iterations} calls each.\n", machine()?);
    println!("{}\n", report::calls(&all));
    println!("{AT_ONCE} at once, {bursts} times:\n");
    println!("{}\n", report::bursts(&all));
    println!("{}\n", report::goals(&all));
    match left_out {
        Some(error) => Err(error.context("headcni is left out")),
        None => Ok(()),
    }
}

/// One ADD and one DEL of every case.
fn measure_round(
    round: usize,
    cases: &[NativeCase],
    all: &mut [Measured],
    pods: &mut Pods,
) -> Result<()> {
    let fresh = pods.fresh(all.len())?;
    let mut results = vec![Value::Null; all.len()];
    for nth in order(round, all.len()) {
        let cost = cost_of(|| {
            let (wall, result) = cases[nth].attach(&fresh[nth], identity)?;
            results[nth] = result;
            Ok(wall)
        })?;
        all[nth].add.push(cost);
    }
    for nth in order(round, all.len()) {
        let cost = cost_of(|| cases[nth].detach(&fresh[nth], &results[nth]))?;
        all[nth].del.push(cost);
    }
    Pod::remove_all(&fresh)
}

fn count_system_calls(
    cases: &[NativeCase],
    all: &mut [Measured],
    pods: &mut Pods,
    state: &Path,
) -> Result<()> {
    let fresh = pods.fresh(all.len())?;
    for ((case, pod), measured) in cases.iter().zip(&fresh).zip(all) {
        let log = state.join(format!("trace-{}", pod.nth));
        let (_, result) = case.attach(pod, |command| trace::into(&log, &command))?;
        measured.system_calls = trace::count(&log)?;
        case.detach(pod, &result)?;
    }
    Pod::remove_all(&fresh)
}

/// A burst of ADDs and one of DELs of every case with a plain IPv4 network.
fn measure_bursts(
    round: usize,
    cases: &[NativeCase],
    all: &mut [Measured],
    pods: &mut Pods,
) -> Result<()> {
    for nth in order(round, all.len()) {
        let (case, measured) = (&cases[nth], &mut all[nth]);
        if measured.network != Network::Ipv4 || measured.by == Implementation::BridgeMasq {
            continue;
        }
        let fresh = pods.fresh(AT_ONCE as usize)?;
        let pod = |nth| &fresh[nth as usize];
        let (adds, dels) = &mut measured.bursts;
        adds.push(burst(|nth| Ok(case.attach(pod(nth), identity)?.0))?);
        dels.push(burst(|nth| case.detach(pod(nth), &Value::Null))?);
        Pod::remove_all(&fresh)?;
    }
    Ok(())
}

impl Measured {
    fn nothing(of: &NativeCase) -> Self {
        Self {
            network: of.network,
            by: of.by,
            add: vec![],
            del: vec![],
            system_calls: 0,
            bursts: (vec![], vec![]),
        }
    }
}

/// Creates pods that no case has used yet.
struct Pods {
    made: usize,
    search: OsString,
}

impl Pods {
    fn new() -> Result<Self> {
        let search = env::join_paths([cni_plugin_dir(), headcni_bin_dir()])?;
        Ok(Self { made: 0, search })
    }

    fn fresh(&mut self, count: usize) -> Result<Vec<Pod>> {
        let numbers = self.made..self.made + count;
        self.made += count;
        Pod::make_all(numbers, &self.search)
    }
}
