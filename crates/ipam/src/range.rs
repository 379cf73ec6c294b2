//! Ranges of addresses that leases are taken from.
//!
//! Pure arithmetic: an address is a number, a range a span of numbers in a subnet.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// A span of a subnet whose addresses may be leased, but for those that are reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    subnet: IpNet,
    first: IpAddr,
    last: IpAddr,
    gateway: IpAddr,
}

/// Ranges that stand in for each other: an owner gets one address from all of them together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeSet(Vec<Range>);

/// A range that can't be.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RangeError {
    /// The subnet isn't written by its network address.
    #[error("subnet {subnet} has host bits set: its network address is {network}")]
    HostBits {
        /// As given.
        subnet: IpNet,
        /// As it should be.
        network: IpNet,
    },
    /// No room for a pod beside the gateway.
    #[error("subnet {0} is too small: the smallest is a /30, for IPv6 a /126")]
    TooSmall(IpNet),
    /// An address isn't where it must be.
    #[error("{key} {address} is not inside subnet {subnet}")]
    Outside {
        /// `gateway`, `rangeStart` or `rangeEnd`.
        key: &'static str,
        /// The address.
        address: IpAddr,
        /// The subnet.
        subnet: IpNet,
    },
    /// The range ends before it begins.
    #[error("rangeStart {first} is after rangeEnd {last}")]
    Backwards {
        /// Where it begins.
        first: IpAddr,
        /// Where it ends.
        last: IpAddr,
    },
    /// A range without a single address to lease.
    #[error("range {0} has no address to lease beside the gateway")]
    Empty(String),
    /// A set without ranges.
    #[error("a range set is empty")]
    EmptySet,
    /// A set of both families.
    #[error("ranges {0} and {1} are of different IP families: make them two sets")]
    MixedFamilies(String, String),
    /// A range would lease the gateway of another one.
    #[error("range {range} has {gateway}, which is the gateway of another range")]
    LeasedGateway {
        /// The range.
        range: String,
        /// The gateway.
        gateway: IpAddr,
    },
    /// Two ranges share addresses.
    #[error("ranges {0} and {1} overlap")]
    Overlap(String, String),
}

impl Range {
    /// A range of `subnet`; what isn't given is derived as host-local does.
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

    /// The subnet that the range is a part of.
    pub fn subnet(&self) -> IpNet {
        self.subnet
    }

    /// The subnet's gateway; never leased.
    pub fn gateway(&self) -> IpAddr {
        self.gateway
    }

    /// Whether the address is in the span, be it reserved or not.
    pub fn contains(&self, address: IpAddr) -> bool {
        address.is_ipv4() == self.first.is_ipv4() && (self.first..=self.last).contains(&address)
    }

    /// Whether the address belongs to the subnet itself: gateway, network, broadcast.
    pub fn is_reserved(&self, address: IpAddr) -> bool {
        address == self.gateway
            || address == self.subnet.network()
            || (address.is_ipv4() && address == self.subnet.broadcast())
    }

    /// The addresses of the span that can't be leased.
    pub(crate) fn reserved(&self) -> Vec<IpAddr> {
        let mut reserved = vec![self.gateway, self.subnet.network(), self.subnet.broadcast()];
        reserved.retain(|address| self.contains(*address) && self.is_reserved(*address));
        reserved.sort_unstable();
        reserved.dedup();
        reserved
    }

    /// How many addresses can be leased.
    pub fn capacity(&self) -> u128 {
        (number(self.last) - number(self.first)).saturating_add(1) - self.reserved().len() as u128
    }

    /// The first address of the span.
    pub(crate) fn first(&self) -> IpAddr {
        self.first
    }

    /// The span as offsets from the subnet's network address.
    pub(crate) fn offsets(&self) -> std::ops::RangeInclusive<u128> {
        self.offset(self.first)..=self.offset(self.last)
    }

    /// The address' distance from the subnet's network address.
    pub(crate) fn offset(&self, address: IpAddr) -> u128 {
        number(address) - number(self.subnet.network())
    }

    /// The address at a distance from the subnet's network address.
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
    /// A set of ranges of one family that share no address.
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

    /// Refuses sets that share an address: an owner could get it twice.
    pub fn refuse_overlaps(sets: &[Self]) -> Result<(), RangeError> {
        let all: Vec<Range> = sets.iter().flat_map(|set| set.0.iter().copied()).collect();
        refuse_overlap(&all)
    }

    /// The ranges.
    pub fn ranges(&self) -> &[Range] {
        &self.0
    }

    /// The range that has the address, reserved or not.
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

/// The address of this number, in the family of `like`.
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
    fn ranges_are_completed_and_counted(
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
    fn impossible_ranges_are_refused_by_value(
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
    fn overlapping_and_mixed_sets_are_refused() {
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
    fn a_gateway_of_the_subnet_is_leased_by_none_of_its_ranges() {
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
    fn the_whole_of_ipv6_can_be_counted() {
        assert_eq!(range("::/0", "", "").capacity(), u128::MAX - 1);
    }
}
