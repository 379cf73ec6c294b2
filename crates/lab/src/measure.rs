//! Throughput by iperf3 and latency by ping.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::netns::Netns;
use crate::process::{DEADLINE, Running, run};
use crate::wait::eventually;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    Tcp {
        streams: u8,
    },
    /// Datagrams of 1200 bytes at a fixed rate.
    Udp {
        bits_per_second: u64,
    },
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Throughput {
    /// As the receiver counted.
    pub bits_per_second: f64,
    pub retransmits: u64,
    /// The share of lost datagrams.
    pub lost: f64,
}

pub fn throughput(
    from: &impl Netns,
    to: (&impl Netns, IpAddr),
    load: Load,
    time: Duration,
) -> Result<Throughput> {
    let (place, address) = to;
    let mut command = place.command("iperf3");
    command.args(["--server", "--one-off"]);
    let server = Running::spawn(&mut command, b"")?;
    eventually(DEADLINE, "iperf3 listens", || {
        let line = ["ss", "-Hltn", "sport = :5201"];
        let listening = place.run(line).ok()?;
        (!listening.stdout.is_empty()).then_some(())
    })?;
    let mut command = from.command("iperf3");
    command
        .args(["--json", "--client", &address.to_string()])
        .args(["--time", &time.as_secs().max(1).to_string()]);
    match load {
        Load::Tcp { streams } => command.args(["--parallel", &streams.to_string()]),
        Load::Udp { bits_per_second } => {
            let rate = bits_per_second.to_string();
            command.args(["--udp", "--length", "1200", "--bitrate", &rate])
        }
    };
    let text = Running::spawn(&mut command, b"")?
        .wait(time + DEADLINE)?
        .stdout;
    let measured =
        read_throughput(&text).with_context(|| format!("measure the throughput to {address}"))?;
    // The port is free only when it has exited.
    server.wait(DEADLINE)?;
    Ok(measured)
}

fn read_throughput(text: &str) -> Result<Throughput> {
    let report: Value = serde_json::from_str(text).context("parse the output of iperf3")?;
    let error = report["error"].as_str();
    ensure!(error.is_none(), "iperf3: {}", error.unwrap_or_default());
    let end = &report["end"];
    // UDP has one sum, with the receiver's losses.
    let received = [&end["sum_received"], &end["sum"]];
    let rate = received
        .iter()
        .find_map(|sum| sum["bits_per_second"].as_f64())
        .context("iperf3 measured nothing")?;
    let lost = end["sum"]["lost_percent"].as_f64().unwrap_or_default() / 100.0;
    let is_udp = !end["sum"].is_null();
    Ok(Throughput {
        bits_per_second: if is_udp { rate * (1.0 - lost) } else { rate },
        retransmits: end["sum_sent"]["retransmits"].as_u64().unwrap_or_default(),
        lost,
    })
}

/// One packet in so many may be lost: on a busy machine a queue overflows at times.
const LOSS_DIVISOR: usize = 50;

/// Round-trip times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Latency {
    pub least: Duration,
    pub average: Duration,
    pub p50: Duration,
    pub p99: Duration,
    pub lost: usize,
}

/// Sends `count` pings, one every 2 ms. Nearly all must be answered.
pub fn latency(from: &impl Netns, to: IpAddr, count: u32) -> Result<Latency> {
    let mut command = from.command("ping");
    command
        .args(["-n", "-i", "0.002", "-W", "5", "-c", &count.to_string()])
        .arg(to.to_string());
    let text = run(&mut command)?.stdout;
    let mut times = read_times(&text)?;
    let lost = (count as usize).saturating_sub(times.len());
    ensure!(
        lost <= count as usize / LOSS_DIVISOR,
        "{} of {count} pings to {to} were answered",
        times.len()
    );
    times.sort();
    let percentile = |percent: usize| {
        let rank = (times.len() * percent).div_ceil(100);
        times[rank.saturating_sub(1)]
    };
    Ok(Latency {
        least: *times.first().context("count is 0")?,
        average: times.iter().sum::<Duration>() / u32::try_from(times.len())?,
        p50: percentile(50),
        p99: percentile(99),
        lost,
    })
}

/// From `64 bytes from 10.0.0.1: icmp_seq=1 ttl=64 time=0.034 ms`.
fn read_times(text: &str) -> Result<Vec<Duration>> {
    let times = text.lines().filter_map(|line| line.split_once("time="));
    times
        .map(|(_, rest)| {
            let number = rest.trim_end_matches(" ms");
            let millis: f64 = number
                .parse()
                .with_context(|| format!("parse the time in {rest:?}"))?;
            Ok(Duration::from_secs_f64(millis / 1000.0))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_parsed_from_ping() {
        let text = "PING ::1 56 data bytes\n64 bytes from ::1: icmp_seq=1 ttl=64 time=0.034 ms\n\
                    64 bytes from ::1: icmp_seq=2 ttl=64 time=12 ms\n";
        let times = [Duration::from_micros(34), Duration::from_millis(12)];
        assert_eq!(read_times(text).unwrap(), times);
    }

    #[test]
    fn the_receivers_rate_is_used() {
        let text = r#"{"end":{"sum_sent":{"bits_per_second":9,"retransmits":3},
                              "sum_received":{"bits_per_second":8}}}"#;
        let tcp = read_throughput(text).unwrap();
        assert_eq!((tcp.bits_per_second, tcp.retransmits), (8.0, 3));
        let text = r#"{"end":{"sum":{"bits_per_second":100,"lost_percent":25}}}"#;
        let udp = read_throughput(text).unwrap();
        assert_eq!((udp.bits_per_second, udp.lost), (75.0, 0.25));
    }

    #[test]
    fn the_error_of_iperf3_is_returned() {
        let error = read_throughput(r#"{"error":"Connection refused"}"#).unwrap_err();
        assert_eq!(error.to_string(), "iperf3: Connection refused");
    }
}
