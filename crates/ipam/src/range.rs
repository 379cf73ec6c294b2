//! Address ranges: pure arithmetic on addresses as numbers.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// The leasable part of a subnet: `rangeStart` to `rangeEnd`, without reserved addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    subnet: IpNet,
    first: IpAddr,
    last: IpAddr,
    gateway: IpAddr,
}

/// Ranges of one IP family. An owner gets one address per set, from the first range with a free
/// one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeSet(Vec<Range>);

/// An invalid range or range set.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[expect(missing_docs, reason = "the message of each variant describes it")]
pub enum RangeError {
    #[error("subnet {subnet} has host bits set: its network address is {network}")]
    HostBits { subnet: IpNet, network: IpNet },
    #[error("subnet {0} is too small: use at least a /30, or a /126 for IPv6")]
    TooSmall(IpNet),
    #[error("{key} {address} is not inside subnet {subnet}")]
    Outside {
        key: &'static str,
        address: IpAddr,
        subnet: IpNet,
    },
    #[error("rangeStart {first} is after rangeEnd {last}")]
    Backwards { first: IpAddr, last: IpAddr },
    #[error("range {0} has no address to lease besides the gateway")]
    Empty(String),
    #[error("a range set is empty")]
    EmptySet,
    #[error("ranges {0} and {1} are of different IP families: use one set per family")]
    MixedFamilies(String, String),
    #[error("range {range} contains {gateway}, the gateway of another range")]
    LeasedGateway { range: String, gateway: IpAddr },
    #[error("ranges {0} and {1} overlap")]
    Overlap(String, String),
}

impl Range {
    /// Builds a range of `subnet`. Missing values default as in host-local.
    pub fn new(
        subnet: IpNet,
        first: Option<IpAddr>,
        last: Option<IpAddr>,
        gateway: Option<IpAddr>,
    ) -> Result<Self, RangeError> {
        if subnet.trunc() != subnet {
            return Err(RangeError::HostBits {
                subnet,
                network: subnet.trunc(),
            });
        }
        if subnet.max_prefix_len() - subnet.prefix_len() < 2 {
            return Err(RangeError::TooSmall(subnet));
        }
        let inside = |key, address: Option<IpAddr>, default| match address {
            Some(address) if !subnet.contains(&address) => Err(RangeError::Outside {
                key,
                address,
                subnet,
            }),
            given => Ok(given.unwrap_or(default)),
        };
        let second = from_number(number(subnet.network()) + 1, subnet);
        let end = match subnet {
            IpNet::V4(_) => from_number(number(subnet.broadcast()) - 1, subnet),
            IpNet::V6(_) => subnet.broadcast(),
        };
        let range = Self {
            subnet,
            first: inside("rangeStart", first, second)?,
            last: inside("rangeEnd", last, end)?,
            gateway: inside("gateway", gateway, second)?,
        };
        if range.first > range.last {
            return Err(RangeError::Backwards {
                first: range.first,
                last: range.last,
            });
        }
        if range.capacity() == 0 {
            return Err(RangeError::Empty(format!("{}-{}", range.first, range.last)));
        }
        Ok(range)
    }

    /// The subnet of the range.
    pub fn subnet(&self) -> IpNet {
        self.subnet
    }

    /// The gateway, which is never leased.
    pub fn gateway(&self) -> IpAddr {
        self.gateway
    }

    /// Whether the address is between `rangeStart` and `rangeEnd`, reserved or not.
    pub fn contains(&self, address: IpAddr) -> bool {
        address.is_ipv4() == self.first.is_ipv4() && (self.first..=self.last).contains(&address)
    }

    /// Whether the address is the subnet's gateway, network or broadcast address.
    pub fn is_reserved(&self, address: IpAddr) -> bool {
        address == self.gateway
            || address == self.subnet.network()
            || (address.is_ipv4() && address == self.subnet.broadcast())
    }

    /// The addresses of the range that can't be leased.
    pub(crate) fn reserved(&self) -> Vec<IpAddr> {
        let mut reserved = vec![self.gateway, self.subnet.network(), self.subnet.broadcast()];
        reserved.retain(|address| self.contains(*address) && self.is_reserved(*address));
        reserved.sort_unstable();
        reserved.dedup();
        reserved
    }

    /// The number of leasable addresses.
    pub fn capacity(&self) -> u128 {
        (number(self.last) - number(self.first)).saturating_add(1) - self.reserved().len() as u128
    }

    pub(crate) fn first(&self) -> IpAddr {
        self.first
    }

    /// The range as offsets from the network address.
    pub(crate) fn offsets(&self) -> std::ops::RangeInclusive<u128> {
        self.offset(self.first)..=self.offset(self.last)
    }

    pub(crate) fn offset(&self, address: IpAddr) -> u128 {
        number(address) - number(self.subnet.network())
    }

    pub(crate) fn address(&self, offset: u128) -> IpAddr {
        from_number(number(self.subnet.network()) + offset, self.subnet)
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.first.is_ipv4() == other.first.is_ipv4()
            && self.first <= other.last
            && other.first <= self.last
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if Self::new(self.subnet, None, None, Some(self.gateway)).as_ref() == Ok(self) {
            return write!(f, "{}", self.subnet);
        }
        write!(f, "{}-{} of {}", self.first, self.last, self.subnet)
    }
}

impl RangeSet {
    /// Builds a set. The ranges must be of one IP family and must not overlap.
    pub fn new(ranges: Vec<Range>) -> Result<Self, RangeError> {
        let Some(first) = ranges.first() else {
            return Err(RangeError::EmptySet);
        };
        let family = |range: &Range| range.subnet.addr().is_ipv4();
        if let Some(other) = ranges.iter().find(|range| family(range) != family(first)) {
            return Err(RangeError::MixedFamilies(
                first.to_string(),
                other.to_string(),
            ));
        }
        refuse_overlap(&ranges)?;
        Ok(Self(ranges))
    }

    /// Refuses overlapping sets: an owner could get one address twice.
    pub fn refuse_overlaps(sets: &[Self]) -> Result<(), RangeError> {
        let all: Vec<Range> = sets.iter().flat_map(|set| set.0.iter().copied()).collect();
        refuse_overlap(&all)
    }

    /// The ranges, in the order of the configuration.
    pub fn ranges(&self) -> &[Range] {
        &self.0
    }

    /// The range that contains the address, reserved or not.
    pub fn range_of(&self, address: IpAddr) -> Option<&Range> {
        self.0.iter().find(|range| range.contains(address))
    }
}

impl fmt::Display for RangeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranges: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&ranges.join(", "))
    }
}

fn refuse_overlap(ranges: &[Range]) -> Result<(), RangeError> {
    for a in ranges {
        let leases_gateway =
            |b: &&Range| a.subnet == b.subnet && a.contains(b.gateway) && !a.is_reserved(b.gateway);
        if let Some(b) = ranges.iter().find(leases_gateway) {
            return Err(RangeError::LeasedGateway {
                range: a.to_string(),
                gateway: b.gateway,
            });
        }
    }
    for (index, a) in ranges.iter().enumerate() {
        if let Some(b) = ranges[index + 1..].iter().find(|b| a.overlaps(b)) {
            return Err(RangeError::Overlap(a.to_string(), b.to_string()));
        }
    }
    Ok(())
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    }
}

fn from_number(number: u128, like: IpNet) -> IpAddr {
    match like {
        IpNet::V4(_) => {
            let bits = u32::try_from(number).expect("stays inside an IPv4 subnet");
            Ipv4Addr::from(bits).into()
        }
        IpNet::V6(_) => Ipv6Addr::from(number).into(),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn net(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    fn ip(text: &str) -> Option<IpAddr> {
        (!text.is_empty()).then(|| text.parse().unwrap())
    }

    #[rstest]
    #[case("10.1.0.0/24", "", "", "", 253, "10.1.0.1")]
    #[case("10.1.0.0/30", "", "", "", 1, "10.1.0.1")]
    #[case("10.1.0.0/24", "10.1.0.10", "10.1.0.19", "", 10, "10.1.0.1")]
    #[case("10.1.0.0/24", "10.1.0.10", "10.1.0.19", "10.1.0.12", 9, "10.1.0.12")]
    #[case("10.1.0.0/24", "10.1.0.0", "10.1.0.255", "", 253, "10.1.0.1")]
    #[case("fd00::/126", "", "", "", 2, "fd00::1")]
    #[case("fd00::/64", "fd00::10", "fd00::1f", "fd00::1", 16, "fd00::1")]
    fn missing_values_default_as_in_host_local(
        #[case] subnet: &str,
        #[case] first: &str,
        #[case] last: &str,
        #[case] gateway: &str,
        #[case] capacity: u128,
        #[case] expected_gateway: &str,
    ) {
        let range = Range::new(net(subnet), ip(first), ip(last), ip(gateway)).unwrap();
        assert_eq!(range.capacity(), capacity);
        assert_eq!(range.gateway(), ip(expected_gateway).unwrap());
        let leasable = range.offsets().map(|offset| range.address(offset));
        assert_eq!(
            leasable.filter(|a| !range.is_reserved(*a)).count() as u128,
            capacity
        );
    }

    #[rstest]
    #[case("10.1.0.1/24", "", "", "", "10.1.0.0/24")]
    #[case("10.1.0.0/31", "", "", "", "10.1.0.0/31")]
    #[case("fd00::/127", "", "", "", "fd00::/127")]
    #[case("10.1.0.0/24", "10.2.0.1", "", "", "rangeStart 10.2.0.1")]
    #[case("10.1.0.0/24", "", "fd00::1", "", "rangeEnd fd00::1")]
    #[case("10.1.0.0/24", "", "", "10.2.0.1", "gateway 10.2.0.1")]
    #[case("10.1.0.0/24", "10.1.0.9", "10.1.0.8", "", "10.1.0.9")]
    #[case("10.1.0.0/24", "10.1.0.1", "10.1.0.1", "", "no address")]
    fn an_invalid_range_is_refused_with_its_values(
        #[case] subnet: &str,
        #[case] first: &str,
        #[case] last: &str,
        #[case] gateway: &str,
        #[case] part: &str,
    ) {
        let error = Range::new(net(subnet), ip(first), ip(last), ip(gateway)).unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
    }

    fn range(subnet: &str, first: &str, last: &str) -> Range {
        Range::new(net(subnet), ip(first), ip(last), None).unwrap()
    }

    #[test]
    fn overlapping_and_mixed_family_sets_are_refused() {
        let (a, b) = (
            range("10.1.0.0/24", "", ""),
            range("10.1.0.0/24", "10.1.0.9", "10.1.0.9"),
        );
        assert!(matches!(
            RangeSet::new(vec![a, b]),
            Err(RangeError::Overlap(..))
        ));
        let six = range("fd00::/64", "", "");
        assert!(matches!(
            RangeSet::new(vec![a, six]),
            Err(RangeError::MixedFamilies(..))
        ));
        assert!(matches!(RangeSet::new(vec![]), Err(RangeError::EmptySet)));
        let sets = [
            RangeSet::new(vec![a]).unwrap(),
            RangeSet::new(vec![b]).unwrap(),
        ];
        assert!(RangeSet::refuse_overlaps(&sets).is_err());
        let sets = [
            RangeSet::new(vec![a]).unwrap(),
            RangeSet::new(vec![six]).unwrap(),
        ];
        assert!(RangeSet::refuse_overlaps(&sets).is_ok());
    }

    #[test]
    fn a_range_that_contains_the_gateway_of_another_is_refused() {
        let low = Range::new(
            net("10.1.0.0/24"),
            ip("10.1.0.2"),
            ip("10.1.0.9"),
            ip("10.1.0.50"),
        );
        let high = range("10.1.0.0/24", "10.1.0.40", "10.1.0.60");
        let error = RangeSet::new(vec![low.unwrap(), high]).unwrap_err();
        assert!(error.to_string().contains("10.1.0.50"), "{error}");
    }

    #[test]
    fn the_capacity_of_all_ipv6_does_not_overflow() {
        assert_eq!(range("::/0", "", "").capacity(), u128::MAX - 1);
    }
}
