//! What it brings that the kernel joins UDP packets before they are forwarded, as the daemon has it do
//! by `tailscale.tuneLinks`.

use anyhow::Result;
use lab::{Load, Member, UPLINK};

use super::ratio::Ratio;
use super::way::{Stage, Way};
use super::{Family, SPELL, STREAMS, report};

/// Bits per second of pods with it and without it, round by round.
pub(super) struct Tuning {
    streams: u8,
    on: Vec<f64>,
    off: Vec<f64>,
}

/// Daemons would put back what is changed here, so they are ended first: packets don't need them.
pub(super) fn measure(
    stage: &Stage<'_>,
    members: &mut [Member<'_>],
    rounds: usize,
) -> Result<Vec<Tuning>> {
    for member in members {
        member.kill_daemon()?;
    }
    let mut all: Vec<Tuning> = STREAMS
        .into_iter()
        .map(|streams| Tuning {
            streams,
            on: Vec::new(),
            off: Vec::new(),
        })
        .collect();
    for round in 0..rounds {
        for tuning in &mut all {
            // Neither is always the first of a pair.
            for is_on in [round % 2 == 0, round % 2 == 1] {
                let switch = if is_on { "on" } else { "off" };
                stage.on_nodes(&["ethtool", "-K", UPLINK, "rx-udp-gro-forwarding", switch])?;
                let load = Load::Tcp {
                    streams: tuning.streams,
                };
                let sent = stage.throughput(Way::Pods, Family::Ipv4, load, SPELL)?;
                let rates = if is_on {
                    &mut tuning.on
                } else {
                    &mut tuning.off
                };
                rates.push(sent.bits_per_second);
            }
        }
    }
    Ok(all)
}

pub(super) fn report(all: &[Tuning]) -> String {
    let mut lines = vec![
        "\
Pod to pod by IPv4, with UDP GRO forwarding on the nodes' uplinks and without:

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
