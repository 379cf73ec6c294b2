//! The packet filter that tailscaled builds from the tailnet policy.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::Value;

use super::lenient::LenientObject;

/// IP protocol numbers: <https://www.iana.org/assignments/protocol-numbers>.
const ICMP: u64 = 1;
const TCP: u64 = 6;
const UDP: u64 = 17;
const ICMPV6: u64 = 58;

/// Rules for traffic to this node. Anything else is dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PacketFilter {
    rules: Vec<Rule>,
}

/// How much of the traffic between two prefixes is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coverage {
    /// All addresses, all TCP and UDP ports, and ICMP.
    Full,
    Partial,
    None,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    from: Vec<Source>,
    to: Vec<Target>,
    /// Empty for TCP, UDP and ICMP.
    protocols: Vec<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Source {
    span: Span,
    /// As in the rule.
    text: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Target {
    span: Span,
    text: String,
    first_port: u64,
    last_port: u64,
}

/// Addresses of one family, from the first to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    is_v6: bool,
    first: u128,
    last: u128,
}

impl PacketFilter {
    /// <https://pkg.go.dev/tailscale.com/tailcfg#FilterRule>
    pub fn parse(value: &Value) -> Self {
        let rules = value.as_array().into_iter().flatten();
        Self {
            rules: rules.map(Rule::parse).collect(),
        }
    }

    /// How much of the traffic from one prefix to another is allowed. Port ranges that only several rules
    /// together open count as partial.
    pub fn coverage(&self, from: &IpNet, to: &IpNet) -> Coverage {
        let (from, to) = (Span::of(from), Span::of(to));
        let matches: Vec<_> = self.between(from, to).collect();
        if matches.is_empty() {
            return Coverage::None;
        }
        let icmp = if from.is_v6 { ICMPV6 } else { ICMP };
        let opens = |rule: &Rule, target: &Target, protocol| {
            let applies = rule.protocols.is_empty() || rule.protocols.contains(&protocol);
            applies && (protocol == icmp || target.has_all_ports())
        };
        let is_full = [TCP, UDP, icmp].into_iter().all(|protocol| {
            let open = matches.iter();
            let open = open.filter(|(rule, _, target)| opens(rule, target, protocol));
            let spans = open.map(|(_, source, target)| (source.span, target.span));
            covers(&spans.collect::<Vec<_>>(), from, to)
        });
        if is_full {
            Coverage::Full
        } else {
            Coverage::Partial
        }
    }

    /// Whether any of the traffic from one prefix to another is allowed.
    pub fn allows_any(&self, from: &IpNet, to: &IpNet) -> bool {
        self.between(Span::of(from), Span::of(to)).next().is_some()
    }

    /// The allowed traffic from one prefix to another, in the notation of the policy.
    pub fn allowed(&self, from: &IpNet, to: &IpNet) -> BTreeSet<String> {
        let all = self.between(Span::of(from), Span::of(to));
        all.map(|(rule, source, target)| {
            let (ports, protocols) = (target.ports(), rule.protocols());
            format!("{} to {}:{ports}{protocols}", source.text, target.text)
        })
        .collect()
    }

    /// Sources and targets of rules that overlap the two spans.
    fn between(&self, from: Span, to: Span) -> impl Iterator<Item = (&Rule, &Source, &Target)> {
        self.rules.iter().flat_map(move |rule| {
            let sources = rule.from.iter();
            let sources = sources.filter(move |source| source.span.overlaps(from));
            sources.flat_map(move |source| {
                let targets = rule.to.iter();
                let targets = targets.filter(move |target| target.span.overlaps(to));
                targets.map(move |target| (rule, source, target))
            })
        })
    }
}

/// Whether pairs of sources and targets together cover one pair.
fn covers(openings: &[(Span, Span)], from: Span, to: Span) -> bool {
    // All sources between two of these have the same targets.
    let mut starts = vec![from.first];
    for (source, _) in openings {
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
    /// A rule that grants capabilities has no ports, so it allows nothing.
    fn parse(value: &Value) -> Self {
        let rule = LenientObject::of(value);
        let from = rule.parsed_list::<String>("SrcIPs");
        let to = rule.list("DstPorts").iter().flat_map(|entry| {
            let entry = LenientObject::of(entry);
            let ports = entry.object("Ports");
            let (first_port, last_port) = (ports.number("First"), ports.number("Last"));
            let text = entry.text("IP");
            let spans = Span::parse(&text).into_iter();
            spans.map(move |span| Target {
                span,
                text: text.clone(),
                first_port,
                last_port,
            })
        });
        let from = from.into_iter().flat_map(|text| {
            let spans = Span::parse(&text).into_iter();
            spans.map(move |span| Source {
                span,
                text: text.clone(),
            })
        });
        Self {
            from: from.collect(),
            to: to.collect(),
            protocols: rule.typed("IPProto").unwrap_or_default(),
        }
    }

    /// Empty if the rule is for TCP, UDP and ICMP.
    fn protocols(&self) -> String {
        let named = self.protocols.iter().map(|number| match *number {
            ICMP => "ICMP".to_owned(),
            TCP => "TCP".to_owned(),
            UDP => "UDP".to_owned(),
            ICMPV6 => "ICMPv6".to_owned(),
            other => format!("protocol {other}"),
        });
        let named: Vec<String> = named.collect();
        if named.is_empty() {
            return String::new();
        }
        format!(" ({})", named.join(", "))
    }
}

impl Target {
    fn has_all_ports(&self) -> bool {
        self.first_port == 0 && self.last_port == 65_535
    }

    fn ports(&self) -> String {
        if self.has_all_ports() {
            "*".to_owned()
        } else if self.first_port == self.last_port {
            self.first_port.to_string()
        } else {
            format!("{}-{}", self.first_port, self.last_port)
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

    /// An address, a prefix, two addresses with a hyphen, or `*`. Empty for a capability (`cap:…`), whose
    /// addresses are not known here.
    fn parse(text: &str) -> Vec<Self> {
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

    fn overlaps(self, other: Self) -> bool {
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
