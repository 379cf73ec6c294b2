//! One IPAM plugin on one lease store, and the cost of its calls.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use lab::tools::{cni_plugin_dir, headcni_bin_dir};
use serde_json::{Value, json};

use super::leases::{self, NETWORK, Range};
use crate::bench::call::{Call, Cost};
use crate::bench::sandbox::Pod;

/// A call of host-local can take seconds, so the time per case is limited.
const BUDGET: Duration = Duration::from_secs(10);
const MIN_CALLS: usize = 5;

/// A plugin, with its strategy if it has several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Allocator {
    HostLocal,
    Headcni(&'static str),
}

impl Allocator {
    /// host-local's only strategy is our `sequential`.
    pub(super) const ALL: [Self; 4] = [
        Self::HostLocal,
        Self::Headcni("sequential"),
        Self::Headcni("random"),
        Self::Headcni("dense-pack"),
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::HostLocal => "host-local",
            Self::Headcni(strategy) => strategy,
        }
    }

    pub(super) fn program(self) -> PathBuf {
        match self {
            Self::HostLocal => cni_plugin_dir().join("host-local"),
            Self::Headcni(_) => headcni_bin_dir().join("headcni-ipam"),
        }
    }

    /// Each plugin has its own stores.
    pub(super) fn data_dir(self, store: LeaseStore, state: &Path) -> PathBuf {
        let plugin = match self {
            Self::HostLocal => "host-local",
            Self::Headcni(_) => "headcni-ipam",
        };
        state.join(format!("{plugin}-{}-{:?}", store.leases, store.range))
    }

    pub(super) fn config(self, store: LeaseStore, state: &Path) -> Value {
        let mut ipam = json!({
            "type": "headcni-ipam",
            "dataDir": self.data_dir(store, state),
            "ranges": leases::ranges(store.leases, store.range),
            "routes": [{ "dst": "0.0.0.0/0" }],
        });
        if let Self::Headcni(strategy) = self {
            ipam["allocation_strategy"] = json!(strategy);
        }
        json!({ "cniVersion": "1.0.0", "name": NETWORK, "type": "bridge", "ipam": ipam })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LeaseStore {
    pub(super) leases: u32,
    pub(super) range: Range,
}

pub(super) struct StoreCase {
    pub(super) by: Allocator,
    pub(super) store: LeaseStore,
    program: PathBuf,
    config: Value,
    /// It is called in `calls` of `rounds` rounds.
    calls: usize,
    rounds: usize,
    pub(super) add: Vec<Cost>,
    pub(super) del: Vec<Cost>,
}

impl StoreCase {
    /// Makes uncounted calls: they convert the store, warm the caches, and show how many of `rounds` the
    /// budget allows.
    pub(super) fn warm(
        by: Allocator,
        store: LeaseStore,
        pod: &Pod,
        state: &Path,
        rounds: usize,
    ) -> Result<Self> {
        let mut case = Self {
            by,
            store,
            program: by.program(),
            config: by.config(store, state),
            calls: rounds,
            rounds,
            add: vec![],
            del: vec![],
        };
        case.add_and_del(pod, "warm-up-1")?;
        let start = Instant::now();
        case.add_and_del(pod, "warm-up-2")?;
        case.calls = calls_within_budget(start.elapsed(), rounds);
        (case.add, case.del) = (vec![], vec![]);
        Ok(case)
    }

    /// Measures one ADD and one DEL, if it is called in this round. Few calls are spread over the run.
    pub(super) fn measure(&mut self, round: usize, pod: &Pod) -> Result<()> {
        let (calls, rounds) = (self.calls, self.rounds);
        if round * calls / rounds < (round + 1) * calls / rounds {
            self.add_and_del(pod, &format!("bench-{round}"))?;
        }
        Ok(())
    }

    fn add_and_del(&mut self, pod: &Pod, container: &str) -> Result<()> {
        let call = self.call(pod, container);
        let failed = || format!("{} at {:?}", self.by.name(), self.store);
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

fn calls_within_budget(one: Duration, rounds: usize) -> usize {
    let calls = BUDGET.as_nanos() / one.as_nanos().max(1);
    usize::try_from(calls)
        .unwrap_or(rounds)
        .max(MIN_CALLS)
        .min(rounds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_case_is_called_less_often_but_not_too_seldom() {
        let of = |millis| calls_within_budget(Duration::from_millis(millis), 200);
        assert_eq!((of(4), of(200), of(2_000), of(10_000)), (200, 50, 5, 5));
        assert_eq!(calls_within_budget(Duration::from_secs(10), 3), 3);
    }
}
