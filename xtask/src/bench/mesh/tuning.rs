//! What it brings that the kernel joins UDP packets before they are forwarded, as the daemon has it do
//! by `tailscale.tuneLinks`.
//!
//! It counts where packets for tailscaled are forwarded, so there it has a network of its own. And it
//! counts where packets come one by one, as network cards bring them: a veth hands over what the
//! sender had not divided yet, and there would be nothing to join.

use anyhow::Result;
use lab::scenario::{MeshCluster, Site, Topology};
use lab::{Load, Netns, UPLINK};

use super::ratio::Ratio;
use super::way::{Stage, Way};
use super::{Family, SPELL, STREAMS, report};

/// Bits per second of pods with it and without it, round by round.
pub(super) struct Tuning {
    streams: u8,
    on: Vec<f64>,
    off: Vec<f64>,
}

/// Makes a cluster of its own, and has pods with it and without it take turns.
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
    let stage = Stage::new(&cluster)?;
    stage.await_direct(&cluster)?;
    // Daemons would put back what is changed here. Packets don't need them.
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
                let rate = rate(&stage, tuning.streams, is_on)?;
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

fn rate(stage: &Stage, streams: u8, is_on: bool) -> Result<f64> {
    let switch = if is_on { "on" } else { "off" };
    stage.on_nodes(&["ethtool", "-K", UPLINK, "rx-udp-gro-forwarding", switch])?;
    let load = Load::Tcp { streams };
    let sent = stage.throughput(Way::Pods, Family::Ipv4, load, SPELL)?;
    Ok(sent.bits_per_second)
}

pub(super) fn report(all: &[Tuning]) -> String {
    let mut lines = vec![
        "\
Pod to pod by IPv4, tailscaled in a network of its own, uplinks that bring packets one by one, with UDP GRO
forwarding on them and without:

| connections | off | on | ratio |
|--:|--:|--:|--:|"
            .to_owned(),
    ];
    for Tuning { streams, on, off } in all {
        lines.push(format!(
            "| {streams} | {} | {} | {} |",
            report::megabits(off),
            report::megabits(on),
            Ratio::of_pairs(on, off)
        ));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_states_are_shown_side_by_side() {
        let tuning = Tuning {
            streams: 4,
            on: vec![1e8, 2e8],
            off: vec![1e8, 2e8],
        };
        let text = report(&[tuning]);
        assert!(
            text.ends_with("| 4 | 150 Mbit/s | 150 Mbit/s | 1.000 ± 0.000 |"),
            "{text}"
        );
    }
}
