//! The effect of UDP GRO forwarding, which the daemon enables by `tailscale.tuneLinks`.
//!
//! It matters where packets for tailscaled are forwarded, so tailscaled has its own netns here, and where
//! packets arrive one by one as from a network card, so segmentation offload of the veths is off.

use anyhow::Result;
use lab::scenario::{MeshCluster, Site, Topology};
use lab::{Load, Netns, UPLINK};

use super::ratio::Ratio;
use super::two_nodes::{Endpoints, TwoNodes};
use super::{IpFamily, SAMPLE_TIME, STREAMS, report};
use crate::bench::table::markdown;

/// Bits per second between pods with it and without it.
pub(super) struct Tuning {
    streams: u8,
    on: Vec<f64>,
    off: Vec<f64>,
}

/// Samples with it and without it alternate.
pub(super) fn measure(rounds: usize) -> Result<Vec<Tuning>> {
    let grounds = Topology::new(&[Site::Open, Site::Open])?;
    for node in &grounds.nodes {
        for [feature, state] in [["tx-udp-segmentation", "off"], ["gro", "on"]] {
            node.run(["ethtool", "-K", UPLINK, feature, state])?;
        }
    }
    let mut cluster = MeshCluster::on(grounds)?;
    for member in &cluster.nodes {
        let config = member.config(&cluster.headscale.url());
        member.configure(&format!("{config}  netns: own\n"))?;
    }
    cluster.start_daemons()?;
    let nodes = TwoNodes::new(&cluster)?;
    nodes.await_direct(&cluster)?;
    // The daemons would repair what is changed here; packets flow without them.
    for member in &mut cluster.nodes {
        member.kill_daemon()?;
    }
    let mut all = STREAMS.map(|streams| Tuning {
        streams,
        on: Vec::new(),
        off: Vec::new(),
    });
    for round in 0..rounds {
        for tuning in &mut all {
            // Neither is always the first of a pair.
            for is_on in [round % 2 == 0, round % 2 == 1] {
                let rate = rate(&nodes, tuning.streams, is_on)?;
                let rates = if is_on {
                    &mut tuning.on
                } else {
                    &mut tuning.off
                };
                rates.push(rate);
            }
        }
    }
    Ok(all.into())
}

fn rate(nodes: &TwoNodes, streams: u8, is_on: bool) -> Result<f64> {
    let switch = if is_on { "on" } else { "off" };
    nodes.run_on_both(&["ethtool", "-K", UPLINK, "rx-udp-gro-forwarding", switch])?;
    let load = Load::Tcp { streams };
    let sent = nodes.throughput(Endpoints::Pods, IpFamily::Ipv4, load, SAMPLE_TIME)?;
    Ok(sent.bits_per_second)
}

pub(super) fn report(all: &[Tuning]) -> String {
    let rows = all.iter().map(|Tuning { streams, on, off }| {
        let ratio = Ratio::of_pairs(on, off).to_string();
        vec![
            streams.to_string(),
            report::megabits(off),
            report::megabits(on),
            ratio,
        ]
    });
    markdown(
        0,
        "connections | UDP GRO forwarding off | on | on / off",
        rows,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_states_are_in_one_row() {
        let tuning = Tuning {
            streams: 4,
            on: vec![1e8, 2e8],
            off: vec![1e8, 2e8],
        };
        let text = report(&[tuning]);
        assert!(
            text.ends_with("| 4 | 150 Mbit/s | 150 Mbit/s | 1.000 ± 0.000 |\n"),
            "{text}"
        );
    }
}
