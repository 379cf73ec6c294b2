//! The native datapath against the reference plugins, and against the floor: a program that has
//! the kernel do the same work and does nothing else.
//!
//! Every round visits all contestants in a changing order, each with a namespace that was made
//! for it: first all attach, then all detach. Afterwards come fifty at once.

mod contestant;
mod plot;
mod report;
mod trace;

use std::convert::identity;
use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use lab::tools::{cni_plugin_dir, headcni, headcni_bin_dir, workspace_dir};
use serde_json::Value;

use super::burst::{AT_ONCE, Burst, burst};
use super::call::{Cost, cost_of};
use super::sandbox::Pod;
use super::turns::order;
use crate::cargo::target_dir;
use crate::dist::{copy_executable, musl_target, static_build};
use crate::run::run;
use contestant::{By, Contestant, Network};
pub(super) use report::machine;

/// Rounds that warm the caches; they are not counted.
const WARM_UP: usize = 5;

/// Builds the floor the way that plugins are built.
pub(super) fn build_floor() -> Result<()> {
    run(static_build()?.args(["--package", "net", "--example", "floor"]))
}

/// A directory with the floor and with our plugin, both copied a moment ago: how many page faults
/// a new process has depends on how its file came into memory, in one piece or bit by bit.
fn programs(state: &Path) -> Result<PathBuf> {
    let release = target_dir()?.join(musl_target()?).join("release");
    let dir = state.join("bin");
    fs::create_dir(&dir).context("make a directory for programs")?;
    for program in [release.join("examples/floor"), headcni()] {
        let name = program.file_name().context("a program has a name")?;
        copy_executable(&program, &dir.join(name))
            .with_context(|| format!("copy {}", program.display()))?;
    }
    Ok(dir)
}

/// All that was measured of somebody.
struct Measured {
    network: Network,
    by: By,
    add: Vec<Cost>,
    del: Vec<Cost>,
    /// Of one ADD.
    system_calls: usize,
    /// Fifty ADDs and fifty DELs at once; none if that is not measured.
    bursts: (Vec<Burst>, Vec<Burst>),
}

#[expect(
    clippy::print_stdout,
    reason = "the tables are what a bench is run for"
)]
pub(super) fn measure(iterations: usize, state: &Path) -> Result<()> {
    let mut pods = Pods::new()?;
    let programs = programs(state)?;
    let (mut contestants, mut left_out) = (vec![], None);
    // Nodes have pods: the first one to come and the last one to go cost more than others.
    let staying = pods.fresh(Contestant::ALL.len())?;
    for (pod, (network, by)) in staying.iter().zip(Contestant::ALL) {
        let who = Contestant::new(network, by, &programs, state);
        match who.attach(pod, identity) {
            Ok(_) => contestants.push(who),
            // What the others cost is worth knowing all the same.
            Err(error) if by == By::Headcni => left_out = Some(error),
            Err(error) => return Err(error),
        }
    }

    let mut all: Vec<Measured> = contestants.iter().map(Measured::nothing).collect();
    for round in 0..WARM_UP + iterations {
        if round == WARM_UP {
            all = contestants.iter().map(Measured::nothing).collect();
        }
        take_turns(round, &contestants, &mut all, &mut pods)?;
    }
    count_system_calls(&contestants, &mut all, &mut pods, state)?;
    let bursts = iterations.div_ceil(AT_ONCE as usize);
    for round in 0..bursts {
        come_at_once(round, &contestants, &mut all, &mut pods)?;
    }

    println!("## The native datapath\n");
    println!("{}, {iterations} calls each.\n", report::machine()?);
    println!("{}\n", report::calls(&all));
    println!("{AT_ONCE} at once, {bursts} times:\n");
    println!("{}\n", report::bursts(&all));
    println!("{}\n", report::goals(&all));
    let plot = workspace_dir().join("dist/benchmarks-native.svg");
    save(&plot, &plot::draw(&all, &report::machine()?))?;
    println!("{}", plot.display());
    match left_out {
        Some(error) => Err(error.context("headcni is left out")),
        None => Ok(()),
    }
}

/// One ADD and one DEL of everybody.
fn take_turns(
    round: usize,
    contestants: &[Contestant],
    all: &mut [Measured],
    pods: &mut Pods,
) -> Result<()> {
    let fresh = pods.fresh(all.len())?;
    let mut results = vec![Value::Null; all.len()];
    for nth in order(round, all.len()) {
        let cost = cost_of(|| {
            let (wall, result) = contestants[nth].attach(&fresh[nth], identity)?;
            results[nth] = result;
            Ok(wall)
        })?;
        all[nth].add.push(cost);
    }
    for nth in order(round, all.len()) {
        let cost = cost_of(|| contestants[nth].detach(&fresh[nth], &results[nth]))?;
        all[nth].del.push(cost);
    }
    Pod::remove_all(&fresh)
}

fn count_system_calls(
    contestants: &[Contestant],
    all: &mut [Measured],
    pods: &mut Pods,
    state: &Path,
) -> Result<()> {
    let fresh = pods.fresh(all.len())?;
    for ((who, pod), measured) in contestants.iter().zip(&fresh).zip(all) {
        let log = state.join(format!("trace-{}", pod.nth));
        let (_, result) = who.attach(pod, |command| trace::into(&log, &command))?;
        measured.system_calls = trace::count(&log)?;
        who.detach(pod, &result)?;
    }
    Pod::remove_all(&fresh)
}

/// Fifty ADDs and fifty DELs of everybody with a plain IPv4 network.
fn come_at_once(
    round: usize,
    contestants: &[Contestant],
    all: &mut [Measured],
    pods: &mut Pods,
) -> Result<()> {
    for nth in order(round, all.len()) {
        let (who, measured) = (&contestants[nth], &mut all[nth]);
        if measured.network != Network::Ipv4 || measured.by == By::BridgeMasq {
            continue;
        }
        let fresh = pods.fresh(AT_ONCE as usize)?;
        let pod = |nth| &fresh[nth as usize];
        let (adds, dels) = &mut measured.bursts;
        adds.push(burst(|nth| Ok(who.attach(pod(nth), identity)?.0))?);
        dels.push(burst(|nth| who.detach(pod(nth), &Value::Null))?);
        Pod::remove_all(&fresh)?;
    }
    Ok(())
}

impl Measured {
    fn nothing(of: &Contestant) -> Self {
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

/// Makes pods that nobody has used yet.
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

fn save(path: &Path, text: &str) -> Result<()> {
    let failed = || format!("write {}", path.display());
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir).with_context(failed)?;
    }
    let mut file = File::create(path).with_context(failed)?;
    file.write_all(text.as_bytes()).with_context(failed)
}
