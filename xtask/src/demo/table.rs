//! What was measured, as columns of plain text.

use super::reach::{Outcome, Way};
use super::speed::Speed;

/// A line for each pair of pods, and under them why some failed.
pub(super) fn ways(ways: &[Way]) -> String {
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
    let mut reasons = Vec::new();
    for way in ways {
        let mut row = vec![way.from.clone(), way.to.clone(), way.path.clone()];
        for outcome in &way.by {
            match outcome {
                Outcome::Reached {
                    latency,
                    is_source_kept,
                } => {
                    row.push(format!("{:.2} ms", latency.as_secs_f64() * 1000.0));
                    row.push(if *is_source_kept { "yes" } else { "NO" }.to_owned());
                }
                Outcome::Failed(reason) => {
                    row.extend(["FAILED".to_owned(), "-".to_owned()]);
                    reasons.push(format!("\n{} to {}: {reason}\n", way.from, way.to));
                }
            }
        }
        rows.push(row);
    }
    columns(&rows) + &reasons.concat()
}

/// A line for each way.
pub(super) fn speeds(speeds: &[Speed]) -> String {
    let head = ["one TCP connection", "IPv4", "IPv6"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for speed in speeds {
        let [v4, v6] = speed.by.map(|bits| format!("{:.0} Mbit/s", bits / 1e6));
        rows.push(vec![speed.way.to_owned(), v4, v6]);
    }
    columns(&rows)
}

/// Pads columns to the same width, two spaces apart. What begins with a digit goes to the right.
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

    fn reached(micros: u64, is_source_kept: bool) -> Outcome {
        Outcome::Reached {
            latency: Duration::from_micros(micros),
            is_source_kept,
        }
    }

    #[test]
    fn every_way_has_a_line_and_every_failure_a_reason() {
        let way = |to: &str, path: &str, by| Way {
            from: "node-1/a".to_owned(),
            to: to.to_owned(),
            path: path.to_owned(),
            by,
        };
        let text = ways(&[
            way(
                "node-1/b",
                "same node",
                [reached(80, true), reached(91, true)],
            ),
            way(
                "node-3/a",
                "relay",
                [
                    reached(12_340, false),
                    Outcome::Failed("no answer".to_owned()),
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
    fn speeds_are_in_megabits() {
        let text = speeds(&[Speed {
            way: "pod to pod",
            by: [1_234_567_890.0, 9_400_000.0],
        }]);
        let expected = "\
one TCP connection  IPv4         IPv6
pod to pod          1235 Mbit/s  9 Mbit/s
";
        assert_eq!(text, expected);
    }
}
