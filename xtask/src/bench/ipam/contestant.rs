//! One plugin with one configuration on one store, and what its calls have cost.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use lab::tools::{cni_plugin_dir, headcni_bin_dir};
use serde_json::{Value, json};

use super::leases::{self, NETWORK, Room};
use crate::bench::call::{Call, Cost};
use crate::bench::sandbox::Pod;

/// host-local may take seconds a call: so long for all its turns, and so many at least.
const BUDGET: Duration = Duration::from_secs(10);
const AT_LEAST: usize = 5;

/// A plugin, and the strategy if it has any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    HostLocal,
    Ours(&'static str),
}

impl By {
    /// host-local has a strategy of its own, which is ours called sequential.
    pub(super) const ALL: [Self; 4] = [
        Self::HostLocal,
        Self::Ours("sequential"),
        Self::Ours("random"),
        Self::Ours("dense-pack"),
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::HostLocal => "host-local",
            Self::Ours(strategy) => strategy,
        }
    }

    pub(super) fn program(self) -> PathBuf {
        match self {
            Self::HostLocal => cni_plugin_dir().join("host-local"),
            Self::Ours(_) => headcni_bin_dir().join("headcni-ipam"),
        }
    }

    /// Each plugin has stores that the other never touches.
    pub(super) fn data_dir(self, cell: Cell, state: &Path) -> PathBuf {
        let plugin = match self {
            Self::HostLocal => "host-local",
            Self::Ours(_) => "headcni-ipam",
        };
        state.join(format!("{plugin}-{}-{:?}", cell.leases, cell.room))
    }

    pub(super) fn config(self, cell: Cell, state: &Path) -> Value {
        let mut ipam = json!({
            "type": "ipam",
            "dataDir": self.data_dir(cell, state),
            "ranges": leases::ranges(cell.leases, cell.room),
            "routes": [{ "dst": "0.0.0.0/0" }],
        });
        if let Self::Ours(strategy) = self {
            ipam["allocation_strategy"] = json!(strategy);
        }
        json!({ "cniVersion": "1.0.0", "name": NETWORK, "type": "bridge", "ipam": ipam })
    }
}

/// A size of store, and how full the range is with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) leases: u32,
    pub(super) room: Room,
}

/// Somebody in a cell.
pub(super) struct Contestant {
    pub(super) by: By,
    pub(super) cell: Cell,
    program: PathBuf,
    config: Value,
    /// How many turns it takes in how many rounds.
    turns: (usize, usize),
    pub(super) add: Vec<Cost>,
    pub(super) del: Vec<Cost>,
}

impl Contestant {
    /// Makes one call of each kind, uncounted: it takes the store over, warms the caches, and
    /// tells how many of `rounds` it can take part in.
    pub(super) fn warm(by: By, cell: Cell, pod: &Pod, state: &Path, rounds: usize) -> Result<Self> {
        let mut contestant = Self {
            by,
            cell,
            program: by.program(),
            config: by.config(cell, state),
            turns: (rounds, rounds),
            add: vec![],
            del: vec![],
        };
        contestant.lease_and_release(pod, "warm-up-1")?;
        let start = Instant::now();
        contestant.lease_and_release(pod, "warm-up-2")?;
        contestant.turns.0 = affordable(start.elapsed(), rounds);
        (contestant.add, contestant.del) = (vec![], vec![]);
        Ok(contestant)
    }

    /// Takes its turn, if it has one in this round: whoever has few has them all over the run.
    pub(super) fn take_turn(&mut self, round: usize, pod: &Pod) -> Result<()> {
        let (turns, rounds) = self.turns;
        if round * turns / rounds < (round + 1) * turns / rounds {
            self.lease_and_release(pod, &format!("bench-{round}"))?;
        }
        Ok(())
    }

    fn lease_and_release(&mut self, pod: &Pod, container: &str) -> Result<()> {
        let call = self.call(pod, container);
        let failed = || format!("{} at {:?}", self.by.name(), self.cell);
        let add = call.cost("ADD").with_context(failed)?;
        let del = call.cost("DEL").with_context(failed)?;
        self.add.push(add);
        self.del.push(del);
        Ok(())
    }

    pub(super) fn call<'a>(&'a self, pod: &'a Pod, container: &'a str) -> Call<'a> {
        Call {
            program: &self.program,
            config: &self.config,
            container,
            pod,
        }
    }
}

/// How many turns that take as long as `one` can be had within the budget.
fn affordable(one: Duration, rounds: usize) -> usize {
    let turns = BUDGET.as_nanos() / one.as_nanos().max(1);
    usize::try_from(turns)
        .unwrap_or(rounds)
        .max(AT_LEAST)
        .min(rounds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slow_are_called_less_often_but_not_too_seldom() {
        let of = |millis| affordable(Duration::from_millis(millis), 200);
        assert_eq!((of(4), of(200), of(2_000), of(10_000)), (200, 50, 5, 5));
        assert_eq!(affordable(Duration::from_secs(10), 3), 3);
    }
}
