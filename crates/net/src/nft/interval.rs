//! Address ranges. A set with the flag `interval` holds each as two elements: the first address, and
//! the one after the last with the flag interval end.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use super::Element;
use crate::netlink::{ip_of, octets};

/// All addresses from `first` to `last`, of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Interval {
    /// The lowest address.
    pub first: IpAddr,
    /// The highest address.
    pub last: IpAddr,
}

impl From<IpNet> for Interval {
    fn from(network: IpNet) -> Self {
        Self {
            first: network.network(),
            last: network.broadcast(),
        }
    }
}

impl Interval {
    /// The elements that represent it. At the end of the address space there is no end element.
    pub fn elements(&self) -> Vec<Element> {
        let start = Element::member(octets(self.first));
        let end = self.next().map(|next| Element {
            ends_interval: true,
            ..Element::member(octets(next))
        });
        std::iter::once(start).chain(end).collect()
    }

    /// The intervals that these elements represent, in order.
    pub fn of_elements(elements: &[Element]) -> Vec<Self> {
        let mut borders: Vec<(IpAddr, Border)> = elements
            .iter()
            .filter_map(|element| Some((ip_of(&element.key)?, Border::of(element))))
            .collect();
        // The kernel lists them in any order. Where two intervals touch, the end sorts first.
        borders.sort_unstable();
        let mut found = Vec::with_capacity(borders.len() / 2);
        let mut open: Option<IpAddr> = None;
        for (address, border) in borders {
            match border {
                Border::Start => open = open.or(Some(address)),
                // `nft` adds an end without a start at the lowest address.
                Border::End => {
                    if let (Some(first), Some(last)) = (open.take(), previous(address)) {
                        found.push(Self { first, last });
                    }
                }
            }
        }
        found.extend(open.map(|first| Self {
            first,
            last: highest_like(first),
        }));
        found
    }

    /// The address after the last one; `None` at the end of the address space.
    pub fn next(&self) -> Option<IpAddr> {
        next(self.last)
    }

    /// Whether they share an address.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Border {
    End,
    Start,
}

impl Border {
    fn of(element: &Element) -> Self {
        if element.ends_interval {
            Self::End
        } else {
            Self::Start
        }
    }
}

fn next(address: IpAddr) -> Option<IpAddr> {
    match address {
        IpAddr::V4(address) => Some(Ipv4Addr::from(u32::from(address).checked_add(1)?).into()),
        IpAddr::V6(address) => Some(Ipv6Addr::from(u128::from(address).checked_add(1)?).into()),
    }
}

fn previous(address: IpAddr) -> Option<IpAddr> {
    match address {
        IpAddr::V4(address) => Some(Ipv4Addr::from(u32::from(address).checked_sub(1)?).into()),
        IpAddr::V6(address) => Some(Ipv6Addr::from(u128::from(address).checked_sub(1)?).into()),
    }
}

fn highest_like(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => Ipv4Addr::BROADCAST.into(),
        IpAddr::V6(_) => Ipv6Addr::from(u128::MAX).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn intervals(networks: &[&str]) -> Vec<Interval> {
        let parse = |text: &&str| Interval::from(text.parse::<IpNet>().unwrap());
        networks.iter().map(parse).collect()
    }

    #[test]
    fn intervals_round_trip_as_elements_in_any_order() {
        for networks in [
            &["10.0.0.0/8"][..],
            &["0.0.0.0/0"],
            &["::/0"],
            &["0.0.0.0/1", "128.0.0.0/1"],
            &["10.0.0.0/24", "10.0.1.0/24", "10.0.3.0/24"],
            &["255.255.255.255/32"],
            &["fd00::/64", "fd00:0:0:1::/64", "ff00::/8"],
        ] {
            let wanted = intervals(networks);
            let mut elements: Vec<Element> = wanted.iter().flat_map(Interval::elements).collect();
            assert_eq!(Interval::of_elements(&elements), wanted);
            elements.reverse();
            assert_eq!(Interval::of_elements(&elements), wanted);
            // `nft` adds this element.
            let zero = octets(wanted[0].first).len();
            elements.push(Element {
                ends_interval: true,
                ..Element::member(vec![0; zero])
            });
            assert_eq!(Interval::of_elements(&elements), wanted);
        }
    }

    #[test]
    fn only_intervals_up_to_the_end_of_the_address_space_have_no_end_element() {
        let lengths = |network| intervals(&[network])[0].elements().len();
        assert_eq!(lengths("10.0.0.0/8"), 2);
        assert_eq!(lengths("255.0.0.0/8"), 1);
        assert_eq!(lengths("0.0.0.0/0"), 1);
        assert_eq!(lengths("ff00::/8"), 1);
    }

    #[test]
    fn intervals_that_touch_do_not_overlap() {
        let found = intervals(&["10.0.0.0/24", "10.0.1.0/24", "10.0.0.0/16", "::/0"]);
        assert!(!found[0].overlaps(&found[1]));
        assert!(found[0].overlaps(&found[2]) && found[2].overlaps(&found[0]));
        assert!(found[0].overlaps(&found[0]));
        assert!(!found[0].overlaps(&found[3]), "different families");
    }
}
