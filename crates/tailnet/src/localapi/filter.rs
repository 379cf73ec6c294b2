//! What the mesh's policy lets through to this node.

use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::Value;

use super::lenient::Fields;

/// IP protocol numbers: <https://www.iana.org/assignments/protocol-numbers>.
const ICMP: u64 = 1;
const TCP: u64 = 6;
const UDP: u64 = 17;
const ICMPV6: u64 = 58;

/// The rules of this node's packet filter. What none of them allows is dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PacketFilter {
    rules: Vec<Rule>,
}

/// How much of a network's traffic is let through to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// From each address to each address, all ports of TCP and UDP, and ICMP.
    Whole,
    /// Some of it.
    Part,
    /// None of it.
    Nothing,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    from: Vec<Span>,
    to: Vec<Target>,
    /// Empty for TCP, UDP and ICMP.
    protocols: Vec<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Target {
    span: Span,
    has_all_ports: bool,
}

/// Addresses of one family, from the first to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    is_v6: bool,
    first: u128,
    last: u128,
}

impl PacketFilter {
    /// Reads tailscaled's own rules: <https://pkg.go.dev/tailscale.com/tailcfg#FilterRule>.
    pub(super) fn read(value: &Value) -> Self {
        let rules = value.as_array().into_iter().flatten();
        Self {
            rules: rules.map(Rule::read).collect(),
        }
    }

    /// How much of the traffic from one network to another is let through. Ports that only
    /// several rules together would open count as a part.
    pub fn reach(&self, from: &IpNet, to: &IpNet) -> Reach {
        let (from, to) = (Span::of(from), Span::of(to));
        if from.is_v6 != to.is_v6 {
            return Reach::Nothing;
        }
        let icmp = if from.is_v6 { ICMPV6 } else { ICMP };
        let is_whole = [TCP, UDP, icmp]
            .into_iter()
            .all(|protocol| covers(&self.openings(protocol), from, to));
        if is_whole {
            return Reach::Whole;
        }
        let touches = |rule: &Rule| {
            rule.from.iter().any(|span| span.touches(from))
                && rule.to.iter().any(|target| target.span.touches(to))
        };
        if self.rules.iter().any(touches) {
            Reach::Part
        } else {
            Reach::Nothing
        }
    }

    /// What all of a protocol may pass, as pairs of source and destination.
    fn openings(&self, protocol: u64) -> Vec<(Span, Span)> {
        let has_no_ports = [ICMP, ICMPV6].contains(&protocol);
        let of_rule = |rule: &Rule| {
            let is_meant = rule.protocols.is_empty() || rule.protocols.contains(&protocol);
            let targets = rule.to.iter();
            let open = targets.filter(|target| is_meant && (has_no_ports || target.has_all_ports));
            let open: Vec<Span> = open.map(|target| target.span).collect();
            let pairs = rule
                .from
                .iter()
                .flat_map(|from| open.iter().map(|to| (*from, *to)));
            pairs.collect::<Vec<_>>()
        };
        self.rules.iter().flat_map(of_rule).collect()
    }
}

/// Whether pairs of sources and destinations make up the whole of one pair.
fn covers(openings: &[(Span, Span)], from: Span, to: Span) -> bool {
    let useful = |(source, target): &&(Span, Span)| source.touches(from) && target.touches(to);
    let openings: Vec<_> = openings.iter().filter(useful).collect();
    // Between two of these, each source has the same destinations.
    let mut starts = vec![from.first];
    for (source, _) in &openings {
        starts.push(source.first);
        starts.extend(source.last.checked_add(1));
    }
    starts.retain(|start| (from.first..=from.last).contains(start));
    starts.sort_unstable();
    starts.dedup();
    starts.into_iter().all(|start| {
        let mut targets: Vec<Span> = openings
            .iter()
            .filter(|(source, _)| (source.first..=source.last).contains(&start))
            .map(|(_, target)| *target)
            .collect();
        targets.sort_unstable_by_key(|target| target.first);
        let mut next = to.first;
        for target in targets {
            if target.first > next {
                return false;
            }
            if target.last >= to.last {
                return true;
            }
            next = next.max(target.last + 1);
        }
        false
    })
}

impl Rule {
    /// A rule that grants capabilities has no ports, so it lets nothing through.
    fn read(value: &Value) -> Self {
        let rule = Fields::of(value);
        let from = rule.texts("SrcIPs");
        let to = rule.list("DstPorts").iter().flat_map(|entry| {
            let entry = Fields::of(entry);
            let ports = entry.within("Ports");
            let has_all_ports = ports.number("First") == 0 && ports.number("Last") == 65_535;
            let spans = Span::read(&entry.text("IP"));
            spans.into_iter().map(move |span| Target {
                span,
                has_all_ports,
            })
        });
        Self {
            from: from.iter().flat_map(|text| Span::read(text)).collect(),
            to: to.collect(),
            protocols: rule.typed("IPProto").unwrap_or_default(),
        }
    }
}

impl Span {
    const EVERYTHING: [Self; 2] = [
        Self {
            is_v6: false,
            first: 0,
            last: u32::MAX as u128,
        },
        Self {
            is_v6: true,
            first: 0,
            last: u128::MAX,
        },
    ];

    fn of(network: &IpNet) -> Self {
        Self::between(network.network(), network.broadcast())
    }

    fn between(first: IpAddr, last: IpAddr) -> Self {
        Self {
            is_v6: first.is_ipv6(),
            first: number(first),
            last: number(last),
        }
    }

    /// An address, a network, two addresses with a hyphen, or a star. A capability in the place of
    /// a source is none of them: which addresses have it is not said here.
    fn read(text: &str) -> Vec<Self> {
        if text == "*" {
            return Self::EVERYTHING.to_vec();
        }
        if let Ok(network) = text.parse() {
            return vec![Self::of(&network)];
        }
        if let Ok(address) = text.parse() {
            return vec![Self::between(address, address)];
        }
        let span = text.split_once('-').and_then(|(first, last)| {
            let (first, last): (IpAddr, IpAddr) = (first.parse().ok()?, last.parse().ok()?);
            let is_one = first.is_ipv6() == last.is_ipv6() && first <= last;
            is_one.then(|| Self::between(first, last))
        });
        span.into_iter().collect()
    }

    fn touches(self, other: Self) -> bool {
        self.is_v6 == other.is_v6 && self.first <= other.last && other.first <= self.last
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

#[cfg(test)]
mod tests;
