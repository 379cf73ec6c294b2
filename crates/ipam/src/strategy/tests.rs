use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::strategy::AllocationStrategy;

fn set(ranges: &[(&str, &str, &str)]) -> RangeSet {
    let parse = |text: &str| text.parse().ok();
    let ranges = ranges
        .iter()
        .map(|(subnet, first, last)| {
            Range::new(subnet.parse().unwrap(), parse(first), parse(last), None).unwrap()
        })
        .collect();
    RangeSet::new(ranges).unwrap()
}

/// Picks an address with one bitmap per range.
fn pick(
    strategy: AllocationStrategy,
    set: &RangeSet,
    leased: &BTreeSet<IpAddr>,
    last: Option<IpAddr>,
    draw: u128,
) -> Option<IpAddr> {
    let is_leased = |address: IpAddr| leased.contains(&address);
    // One bitmap of the whole subnet, and one of a window, as in huge subnets.
    let mut given = [0..64_u128, 2..10].map(|window| {
        let maps: Vec<Bitmap> = set
            .ranges()
            .iter()
            .map(|range| {
                let size = usize::try_from(window.end - window.start).unwrap();
                let mut map = Bitmap::free(size);
                for address in leased.iter().filter(|a| range.subnet().contains(*a)) {
                    let offset = range.offset(*address);
                    if window.contains(&offset) {
                        map.set_used(usize::try_from(offset - window.start).unwrap());
                    }
                }
                map
            })
            .collect();
        let used: Vec<Occupancy<'_>> = maps
            .iter()
            .map(|map| Occupancy {
                map,
                map_offset: window.start,
                is_leased: &is_leased,
            })
            .collect();
        strategy.pick(set, &used, last, &|below| draw % below)
    });
    if strategy != AllocationStrategy::Random {
        assert_eq!(given[0], given[1], "the window must not matter");
    }
    given[0].take().map(|(index, address)| {
        assert!(set.ranges()[index].contains(address));
        address
    })
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn sequential_continues_after_the_last_reserved_address_and_wraps() {
    let set = set(&[("10.0.0.0/29", "", "")]);
    let mut leased = BTreeSet::new();
    let mut last = None;
    for expected in 2..=6 {
        let given = pick(AllocationStrategy::Sequential, &set, &leased, last, 0).unwrap();
        assert_eq!(given, ip(&format!("10.0.0.{expected}")));
        leased.insert(given);
        last = Some(given);
    }
    assert_eq!(
        pick(AllocationStrategy::Sequential, &set, &leased, last, 0),
        None
    );
    leased.remove(&ip("10.0.0.6"));
    leased.remove(&ip("10.0.0.3"));
    assert_eq!(
        pick(AllocationStrategy::Sequential, &set, &leased, last, 0),
        Some(ip("10.0.0.3"))
    );
    leased.insert(ip("10.0.0.3"));
    assert_eq!(
        pick(AllocationStrategy::Sequential, &set, &leased, last, 0),
        Some(ip("10.0.0.6"))
    );
}

#[test]
fn sequential_continues_in_the_next_range() {
    let set = set(&[
        ("10.0.0.0/26", "10.0.0.8", "10.0.0.9"),
        ("10.9.0.0/26", "10.9.0.4", "10.9.0.4"),
    ]);
    let mut given = Vec::new();
    let mut leased = BTreeSet::new();
    for _ in 0..3 {
        let next = pick(
            AllocationStrategy::Sequential,
            &set,
            &leased,
            given.last().copied(),
            0,
        )
        .unwrap();
        given.push(next);
        leased.insert(next);
    }
    assert_eq!(given, [ip("10.0.0.8"), ip("10.0.0.9"), ip("10.9.0.4")]);
    leased.remove(&given[0]);
    assert_eq!(
        pick(
            AllocationStrategy::Sequential,
            &set,
            &leased,
            Some(given[2]),
            0
        ),
        Some(given[0])
    );
}

#[test]
fn dense_pack_picks_the_lowest_address() {
    let set = set(&[("10.0.0.0/26", "", "")]);
    let leased = [ip("10.0.0.2"), ip("10.0.0.4")].into();
    let last = Some(ip("10.0.0.60"));
    assert_eq!(
        pick(AllocationStrategy::DensePack, &set, &leased, last, 0),
        Some(ip("10.0.0.3"))
    );
}

#[test]
fn random_picks_every_free_address_and_no_other() {
    let set = set(&[("10.0.0.0/28", "", ""), ("10.1.0.0/29", "", "")]);
    let leased: BTreeSet<IpAddr> = [ip("10.0.0.5"), ip("10.1.0.2")].into();
    let free = 13 + 5 - 2;
    let given: BTreeSet<IpAddr> = (0..free)
        .filter_map(|n| pick(AllocationStrategy::Random, &set, &leased, None, n))
        .collect();
    assert_eq!(given.len() as u128, free, "each draw picks another address");
    assert!(given.is_disjoint(&leased));
}

#[test]
fn strategies_are_parsed_from_their_configuration_names() {
    assert_eq!(
        "dense-pack".parse::<AllocationStrategy>().unwrap(),
        AllocationStrategy::DensePack
    );
    let error = "densest"
        .parse::<AllocationStrategy>()
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("densest") && error.contains("dense-pack"),
        "{error}"
    );
}

proptest! {
    #[test]
    fn an_address_is_picked_if_and_only_if_one_is_free(
        leased in prop::collection::btree_set(0..16_u8, 0..16),
        last in prop::option::of(0..16_u8),
        draw in any::<u128>(),
    ) {
        let set = set(&[("10.0.0.0/28", "10.0.0.1", "10.0.0.13")]);
        let leased: BTreeSet<IpAddr> =
            leased.into_iter().map(|n| ip(&format!("10.0.0.{n}"))).collect();
        let last = last.map(|n| ip(&format!("10.0.0.{n}")));
        let free = (2..=13).map(|n| ip(&format!("10.0.0.{n}"))).filter(|a| !leased.contains(a)).count();
        for strategy in [AllocationStrategy::Sequential, AllocationStrategy::Random, AllocationStrategy::DensePack] {
            let given = pick(strategy, &set, &leased, last, draw);
            prop_assert_eq!(given.is_some(), free > 0);
            if let Some(address) = given {
                prop_assert!(!leased.contains(&address));
                prop_assert!(!set.ranges()[0].is_reserved(address));
            }
        }
    }
}
