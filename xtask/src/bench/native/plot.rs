//! The measurements as a picture: horizontal bars, an SVG without dependencies.
//!
//! The scales are linear, so that a bar of twice the length is twice as much. Text is text, and
//! the colours suit a light and a dark page.

use super::Measured;
use super::contestant::{By, Network};
use crate::bench::burst::rate;
use crate::bench::call::Cost;
use crate::bench::table::wall;

const WIDTH: f64 = 760.0;
const BARS_AT: f64 = 225.0;
const LONGEST: f64 = 430.0;
const ROW: f64 = 20.0;
const BAR: f64 = 13.0;

const STYLE: &str = "\
text { font: 12px system-ui, sans-serif; fill: #24292f; }
.title { font-weight: 600; font-size: 14px; }
.group { font-weight: 600; }
.small { font-size: 11px; fill: #6e7781; }
.floor { fill: #8c959f; }
.headcni { fill: #1f6feb; }
.peer { fill: #d4843e; }
line { stroke: #6e7781; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; }
  .small { fill: #9198a1; }
}";

/// One bar: its contestant, its length, and where the line that goes on from it ends.
struct Bar {
    by: By,
    length: f64,
    whisker: f64,
    label: String,
}

/// Bars under one heading.
type Group = (&'static str, Vec<Bar>);

/// Bars that share a scale.
struct Panel {
    title: &'static str,
    groups: Vec<Group>,
}

/// Draws all panels, with what was measured on which machine below.
pub(super) fn draw(all: &[Measured], machine: &str) -> String {
    let panels = [
        Panel {
            title: "ADD, milliseconds (less is better)",
            groups: times(all, |who| &who.add),
        },
        Panel {
            title: "DEL, milliseconds (less is better)",
            groups: times(all, |who| &who.del),
        },
        Panel {
            title: "50 ADDs at once, per second (more is better)",
            groups: vec![("IPv4", rates(all))],
        },
    ];
    let mut parts = Vec::new();
    let mut y = 24.0;
    for panel in panels {
        panel.draw(&mut parts, &mut y);
    }
    let caption = format!("Bars end at p50, lines at p90. {machine}.");
    text(&mut parts, "small", 10.0, y, &caption);
    let height = y + 14.0;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         width=\"{WIDTH}\" height=\"{height}\" role=\"img\">\n\
         <title>What attaching and detaching a pod costs</title>\n\
         <style>\n{STYLE}\n</style>\n{}\n</svg>\n",
        parts.join("\n")
    )
}

fn times(all: &[Measured], costs: impl Fn(&Measured) -> &[Cost]) -> Vec<Group> {
    let networks = [Network::Ipv4, Network::DualStack, Network::HostPort];
    networks
        .map(|network| {
            let among = all.iter().filter(|who| who.network == network);
            let bar = |who| {
                let [p50, p90] =
                    [50, 90].map(|percent| wall(costs(who), percent).as_secs_f64() * 1000.0);
                Bar {
                    by: who.by,
                    length: p50,
                    whisker: p90,
                    label: format!("{p50:.1}"),
                }
            };
            (network.name(), among.map(bar).collect())
        })
        .into()
}

fn rates(all: &[Measured]) -> Vec<Bar> {
    let among = all.iter().filter(|who| !who.bursts.0.is_empty());
    among
        .map(|who| {
            let rate = rate(&who.bursts.0);
            Bar {
                by: who.by,
                length: rate,
                whisker: rate,
                label: format!("{rate:.0}"),
            }
        })
        .collect()
}

impl Panel {
    /// Draws from `y` on, which then is where the next one begins.
    fn draw(&self, parts: &mut Vec<String>, y: &mut f64) {
        let bars = self.groups.iter().flat_map(|(_, bars)| bars);
        let most = bars.map(|bar| bar.whisker.max(bar.length));
        let scale = LONGEST / most.fold(f64::MIN_POSITIVE, f64::max);
        text(parts, "title", 10.0, *y, self.title);
        *y += ROW;
        for (heading, bars) in &self.groups {
            text(parts, "group", 10.0, *y, heading);
            *y += ROW;
            for bar in bars {
                bar.draw(parts, *y, scale);
                *y += ROW;
            }
        }
        *y += ROW;
    }
}

impl Bar {
    /// Draws on the line of text whose base is at `y`.
    fn draw(&self, parts: &mut Vec<String>, y: f64, scale: f64) {
        let class = match self.by {
            By::Floor => "floor",
            By::Headcni => "headcni",
            _ => "peer",
        };
        let (length, end) = (self.length * scale, BARS_AT + self.whisker * scale);
        let (top, middle) = (y - 10.5, y - 10.5 + BAR / 2.0);
        text(parts, "by", 22.0, y, self.by.name());
        parts.push(format!(
            "<rect class=\"{class}\" x=\"{BARS_AT}\" y=\"{top:.1}\" width=\"{length:.1}\" \
             height=\"{BAR}\"/>"
        ));
        if self.whisker > self.length {
            let start = BARS_AT + length;
            parts.push(format!(
                "<line x1=\"{start:.1}\" y1=\"{middle:.1}\" x2=\"{end:.1}\" y2=\"{middle:.1}\"/>"
            ));
        }
        let beside = end.max(BARS_AT + length) + 6.0;
        text(parts, "value", beside, y, &self.label);
    }
}

/// Adds a line of text. What is written here needs no escaping.
fn text(parts: &mut Vec<String>, class: &str, x: f64, y: f64, words: &str) {
    parts.push(format!(
        "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{words}</text>"
    ));
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_longest_bar_fills_the_width_and_half_of_it_is_half_as_long() {
        let cost = |millis| Cost {
            wall: Duration::from_millis(millis),
            cpu: Duration::ZERO,
        };
        let measured = |by, millis| Measured {
            network: Network::Ipv4,
            by,
            add: vec![cost(millis)],
            del: vec![cost(millis)],
            system_calls: 0,
            bursts: (vec![], vec![]),
        };
        let all = [measured(By::Headcni, 20), measured(By::Bridge, 40)];
        let picture = draw(&all, "nowhere");
        for part in [
            "<rect class=\"headcni\" x=\"225\" y=\"53.5\" width=\"215.0\"",
            "<rect class=\"peer\" x=\"225\" y=\"73.5\" width=\"430.0\"",
            ">bridge + host-local</text>",
            ">20.0</text>",
        ] {
            assert!(picture.contains(part), "{part}\n{picture}");
        }
    }
}
