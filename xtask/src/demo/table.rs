//! Results as columns of plain text.

use super::pairs::{Pair, PairResult};
use super::throughput::PathThroughput;

/// A line for each pair of pods, followed by the errors.
pub(super) fn pairs(pairs: &[Pair]) -> String {
    let head = [
        "from",
        "to",
        "path",
        "IPv4",
        "source kept",
        "IPv6",
        "source kept",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let mut errors = Vec::new();
    for pair in pairs {
        let mut row = vec![pair.from.clone(), pair.to.clone(), pair.path.clone()];
        for result in &pair.results {
            match result {
                PairResult::Reached {
                    latency,
                    is_source_kept,
                } => {
                    row.push(format!("{:.2} ms", latency.as_secs_f64() * 1000.0));
                    row.push(if *is_source_kept { "yes" } else { "NO" }.to_owned());
                }
                PairResult::Failed(error) => {
                    row.extend(["FAILED".to_owned(), "-".to_owned()]);
                    errors.push(format!("\n{} to {}: {error}\n", pair.from, pair.to));
                }
            }
        }
        rows.push(row);
    }
    columns(&rows) + &errors.concat()
}

/// A line for each path.
pub(super) fn throughputs(measured: &[PathThroughput]) -> String {
    let head = ["one TCP connection", "IPv4", "IPv6"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for path in measured {
        let [v4, v6] = path
            .bits_per_second
            .map(|bits| format!("{:.0} Mbit/s", bits / 1e6));
        rows.push(vec![path.path.to_owned(), v4, v6]);
    }
    columns(&rows)
}

/// Pads columns to the same width; numbers are aligned right.
fn columns(rows: &[Vec<String>]) -> String {
    let count = rows.first().map_or(0, Vec::len);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..count).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| {
            if cell.starts_with(|first: char| first.is_ascii_digit()) {
                format!("{cell:>width$}")
            } else {
                format!("{cell:<width$}")
            }
        });
        let line = cells.collect::<Vec<_>>().join("  ");
        text += line.trim_end();
        text += "\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn reached(micros: u64, is_source_kept: bool) -> PairResult {
        PairResult::Reached {
            latency: Duration::from_micros(micros),
            is_source_kept,
        }
    }

    #[test]
    fn every_pair_has_a_line_and_every_failure_its_error() {
        let pair = |to: &str, path: &str, results| Pair {
            from: "node-1/a".to_owned(),
            to: to.to_owned(),
            path: path.to_owned(),
            results,
        };
        let text = pairs(&[
            pair(
                "node-1/b",
                "same node",
                [reached(80, true), reached(91, true)],
            ),
            pair(
                "node-3/a",
                "relay",
                [
                    reached(12_340, false),
                    PairResult::Failed("no answer".to_owned()),
                ],
            ),
        ]);
        let expected = "\
from      to        path       IPv4      source kept  IPv6     source kept
node-1/a  node-1/b  same node   0.08 ms  yes          0.09 ms  yes
node-1/a  node-3/a  relay      12.34 ms  NO           FAILED   -

node-1/a to node-3/a: no answer
";
        assert_eq!(text, expected);
    }

    #[test]
    fn throughput_is_in_megabits() {
        let text = throughputs(&[PathThroughput {
            path: "pod to pod",
            bits_per_second: [1_234_567_890.0, 9_400_000.0],
        }]);
        let expected = "\
one TCP connection  IPv4         IPv6
pod to pod          1235 Mbit/s  9 Mbit/s
";
        assert_eq!(text, expected);
    }
}
