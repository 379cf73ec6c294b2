//! What headcni adds to a delegate: `headcni` → `bridge` → `host-local` against `bridge` →
//! `host-local`.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use lab::tools::{cni_plugin_dir, headcni_bin_dir};
use serde_json::{Value, json};

use super::call::{Call, Cost};
use super::sandbox::Pod;
use super::table;

/// The first calls create the bridge and warm the page cache; they are not counted.
const WARM_UP: usize = 5;

/// Pods whose namespaces the calls take in turn.
const PODS: usize = 8;

/// One way to attach a pod, and what it has cost so far.
struct Way {
    name: &'static str,
    program: PathBuf,
    config: Value,
    add: Vec<Cost>,
    del: Vec<Cost>,
}

impl Way {
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

    fn attach_and_detach(&mut self, pod: &Pod, container: &str) -> Result<()> {
        let call = self.call(pod, container);
        let failed = || format!("{} on {container}", self.name);
        let add = call.cost("ADD").with_context(failed)?;
        let del = call.cost("DEL").with_context(failed)?;
        self.add.push(add);
        self.del.push(del);
        Ok(())
    }
}

/// The two ways with the same bridge and the same IPAM. Each has a network of its own, so that
/// neither finds the other's leases in its way.
fn ways(state: &Path) -> [Way; 2] {
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
    [
        Way::new("bridge", cni_plugin_dir().join("bridge"), direct),
        Way::new(
            "headcni → bridge",
            headcni_bin_dir().join("headcni"),
            headcni,
        ),
    ]
}

#[expect(clippy::print_stdout, reason = "the table is what a bench is run for")]
pub(super) fn measure(iterations: usize, state: &Path) -> Result<()> {
    let [mut direct, mut headcni] = ways(state);
    let search = env::join_paths([cni_plugin_dir(), headcni_bin_dir()])?;
    let pods = (0..PODS)
        .map(|nth| Pod::make(nth, &search))
        .collect::<Result<Vec<_>>>()?;
    // Nodes have pods: the first one to come and the last one to go cost more than others.
    for (nth, way) in [&direct, &headcni].into_iter().enumerate() {
        let pod = Pod::make(PODS + nth, &search)?;
        way.call(&pod, "staying").wall("ADD")?;
    }
    let mut version = Vec::new();

    for nth in 0..WARM_UP + iterations {
        let (pod, container) = (&pods[nth % PODS], format!("bench-{nth}"));
        // Whoever comes second finds warmer caches: they take turns at that too.
        let order = if nth % 2 == 0 {
            [&mut direct, &mut headcni]
        } else {
            [&mut headcni, &mut direct]
        };
        for way in order {
            way.attach_and_detach(pod, &container)?;
        }
        version.push(headcni.call(pod, &container).cost("VERSION")?);
    }

    let counted = |costs: &[Cost]| costs[WARM_UP..].to_vec();
    let add = [
        (direct.name, counted(&direct.add)),
        (headcni.name, counted(&headcni.add)),
    ];
    let del = [
        (direct.name, counted(&direct.del)),
        (headcni.name, counted(&headcni.del)),
    ];
    println!("## headcni on top of a delegate\n");
    println!("{iterations} calls each; CPU is user + system, children included.\n");
    println!("{}", table::HEAD);
    println!("{}", table::compare("ADD", &add));
    println!("{}", table::compare("DEL", &del));
    println!("{}", table::row("VERSION", "headcni", &counted(&version)));
    Ok(())
}
