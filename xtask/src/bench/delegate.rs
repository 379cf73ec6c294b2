//! What headcni adds to a delegate: `headcni` → `bridge` → `host-local` against `bridge` →
//! `host-local`.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use lab::tools::{cni_plugin_dir, headcni_bin_dir};
use serde_json::{Value, json};

use super::call::{Call, Cost};
use super::sandbox::Pod;
use super::table::{cpu, markdown, wall};

/// The first calls create the bridge and warm the page cache; they are not counted.
const WARM_UP: usize = 5;
/// Pods whose network namespaces are reused.
const PODS: usize = 8;

/// A plugin with its configuration, and what its calls cost.
struct DelegateCase {
    name: &'static str,
    program: PathBuf,
    config: Value,
    add: Vec<Cost>,
    del: Vec<Cost>,
}

impl DelegateCase {
    fn new(name: &'static str, program: PathBuf, config: Value) -> Self {
        Self {
            name,
            program,
            config,
            add: vec![],
            del: vec![],
        }
    }

    fn call<'a>(&'a self, pod: &'a Pod, container: &'a str) -> Call<'a> {
        Call {
            program: &self.program,
            config: &self.config,
            container,
            pod,
        }
    }

    fn add_and_del(&mut self, pod: &Pod, container: &str) -> Result<()> {
        let call = self.call(pod, container);
        let failed = || format!("{} on {container}", self.name);
        let add = call.cost("ADD").with_context(failed)?;
        let del = call.cost("DEL").with_context(failed)?;
        self.add.push(add);
        self.del.push(del);
        Ok(())
    }
}

/// Both have the same bridge and the same IPAM, and each its own network, so that neither meets the
/// other's leases.
fn cases(state: &Path) -> [DelegateCase; 2] {
    let bridge = json!({ "type": "bridge", "bridge": "hcbench0", "isGateway": true, "mtu": 1400 });
    let ipam = json!({
        "type": "host-local",
        "dataDir": state.join("host-local"),
        "ranges": [[{ "subnet": "10.77.0.0/16" }]],
        "routes": [{ "dst": "0.0.0.0/0" }],
    });

    let mut direct = bridge.clone();
    direct["cniVersion"] = json!("1.0.0");
    direct["name"] = json!("bench-direct");
    direct["ipam"] = ipam.clone();

    let headcni = json!({
        "cniVersion": "1.0.0",
        "name": "bench-headcni",
        "type": "headcni",
        "dataDir": state.join("headcni"),
        "mtu": 1400,
        "ipam": ipam,
        "delegate": bridge,
    });
    let program = headcni_bin_dir().join("headcni");
    [
        DelegateCase::new("bridge", cni_plugin_dir().join("bridge"), direct),
        DelegateCase::new("headcni → bridge", program, headcni),
    ]
}

#[expect(clippy::print_stdout, reason = "the table is the result")]
pub(super) fn measure(iterations: usize, state: &Path) -> Result<()> {
    let [mut direct, mut headcni] = cases(state);
    let search = env::join_paths([cni_plugin_dir(), headcni_bin_dir()])?;
    let pods = (0..PODS)
        .map(|nth| Pod::make(nth, &search))
        .collect::<Result<Vec<_>>>()?;
    // A pod that stays: the first ADD and the last DEL of a node cost more than others.
    for (nth, case) in [&direct, &headcni].into_iter().enumerate() {
        let pod = Pod::make(PODS + nth, &search)?;
        case.call(&pod, "staying").wall("ADD")?;
    }
    let mut version = Vec::new();

    for nth in 0..WARM_UP + iterations {
        let (pod, container) = (&pods[nth % PODS], format!("bench-{nth}"));
        // The second one finds warmer caches, so they alternate.
        let order = if nth % 2 == 0 {
            [&mut direct, &mut headcni]
        } else {
            [&mut headcni, &mut direct]
        };
        for case in order {
            case.add_and_del(pod, &container)?;
        }
        version.push(headcni.call(pod, &container).cost("VERSION")?);
    }

    let mut rows = compare("ADD", [&direct.add[WARM_UP..], &headcni.add[WARM_UP..]]);
    rows.extend(compare(
        "DEL",
        [&direct.del[WARM_UP..], &headcni.del[WARM_UP..]],
    ));
    let version = percentiles(&version[WARM_UP..]).map(milliseconds);
    rows.push(row("VERSION", "headcni", version));
    println!("## headcni on top of a delegate\n");
    println!("{iterations} calls each; CPU is user + system, children included.\n");
    let head = "call | by | wall p50 | p90 | p99 | CPU p50 | p90 | p99";
    println!("{}", markdown(2, head, rows));
    Ok(())
}

/// A row for each case, the difference and the ratio.
fn compare(verb: &str, costs: [&[Cost]; 2]) -> Vec<Vec<String>> {
    let [direct, headcni] = costs.map(percentiles);
    let with = |f: fn(f64, f64) -> String| std::array::from_fn(|i| f(direct[i], headcni[i]));
    vec![
        row(verb, "bridge", direct.map(milliseconds)),
        row(verb, "headcni → bridge", headcni.map(milliseconds)),
        row(verb, "difference", with(|a, b| format!("{:+.2} ms", b - a))),
        row(verb, "ratio", with(|a, b| format!("{:.2}", b / a))),
    ]
}

fn row(verb: &str, by: &str, columns: [String; 6]) -> Vec<String> {
    let names = [verb, by].map(str::to_owned);
    names.into_iter().chain(columns).collect()
}

fn milliseconds(number: f64) -> String {
    format!("{number:.2} ms")
}

/// Wall and CPU time in milliseconds.
fn percentiles(costs: &[Cost]) -> [f64; 6] {
    let of = |time: fn(&[Cost], usize) -> std::time::Duration| {
        [50, 90, 99].map(|percent| time(costs, percent).as_secs_f64() * 1000.0)
    };
    let (wall, cpu) = (of(wall), of(cpu));
    [wall[0], wall[1], wall[2], cpu[0], cpu[1], cpu[2]]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_comparison_has_both_their_difference_and_their_ratio() {
        let costs = |millis: std::ops::RangeInclusive<u64>| -> Vec<Cost> {
            let times = millis.map(Duration::from_millis);
            times
                .map(|time| Cost {
                    wall: time,
                    cpu: time,
                })
                .collect()
        };
        let rows = compare("ADD", [&costs(1..=100), &costs(2..=101)]);
        assert_eq!(
            rows[0][..5],
            ["ADD", "bridge", "50.00 ms", "90.00 ms", "99.00 ms"]
        );
        assert_eq!(rows[1][2], "51.00 ms");
        assert_eq!(rows[2][2], "+1.00 ms");
        assert_eq!(rows[3][2], "1.02");
    }
}
