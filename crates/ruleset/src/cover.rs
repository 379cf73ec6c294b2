//! What has to change in a set of intervals for it to cover more.

use net::nft::Interval;

/// Intervals to take out and to put in, in one go.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) remove: Vec<Interval>,
    pub(crate) add: Vec<Interval>,
}

impl Plan {
    pub(crate) fn is_empty(&self) -> bool {
        self.add.is_empty()
    }
}

/// The least change after which `present`, whose intervals don't overlap, covers `wanted` as well,
/// and still has no overlaps: the kernel refuses them. All are of one family.
pub(crate) fn plan(present: &[Interval], wanted: &[Interval]) -> Plan {
    let mut present = present.to_vec();
    present.sort_unstable();
    let missing: Vec<Interval> = wanted
        .iter()
        .filter(|interval| !is_covered(interval, &present))
        .copied()
        .collect();
    let remove: Vec<Interval> = present
        .into_iter()
        .filter(|interval| missing.iter().any(|missing| missing.overlaps(interval)))
        .collect();
    let add = merged([missing, remove.clone()].concat());
    Plan { remove, add }
}

/// Whether every address of `wanted` is in one of the intervals, which are in order.
fn is_covered(wanted: &Interval, present: &[Interval]) -> bool {
    let mut first_open = wanted.first;
    for interval in present {
        if interval.first <= first_open && first_open <= interval.last {
            match interval.next() {
                Some(after) if after <= wanted.last => first_open = after,
                _ => return true,
            }
        }
    }
    false
}

/// The same addresses in intervals that don't overlap, in order.
pub(crate) fn merged(mut intervals: Vec<Interval>) -> Vec<Interval> {
    intervals.sort_unstable();
    let mut merged: Vec<Interval> = Vec::new();
    for interval in intervals {
        match merged.last_mut() {
            Some(before) if before.overlaps(&interval) => {
                before.last = before.last.max(interval.last);
            }
            _ => merged.push(interval),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use ipnet::IpNet;

    use super::*;

    /// A network, or `first-last`.
    fn interval(text: &str) -> Interval {
        match text.split_once('-') {
            Some((first, last)) => Interval {
                first: first.parse().unwrap(),
                last: last.parse().unwrap(),
            },
            None => text.parse::<IpNet>().unwrap().into(),
        }
    }

    fn intervals(texts: &[&str]) -> Vec<Interval> {
        texts.iter().map(|text| interval(text)).collect()
    }

    #[test]
    fn plans_are_the_least_that_covers() {
        // present, wanted, remove, add
        type Case = [&'static [&'static str]; 4];
        let cases: [Case; 18] = [
            // nothing there, nothing wanted
            [&[], &[], &[], &[]],
            [&["10.0.0.0/8"], &[], &[], &[]],
            // from nothing
            [&[], &["10.0.0.0/8"], &[], &["10.0.0.0/8"]],
            [&[], &["0.0.0.0/0"], &[], &["0.0.0.0/0"]],
            [&[], &["fd00::/48"], &[], &["fd00::/48"]],
            // equal, inside
            [&["10.0.0.0/8"], &["10.0.0.0/8"], &[], &[]],
            [&["10.0.0.0/8"], &["10.1.0.0/16", "10.2.0.0/16"], &[], &[]],
            [&["0.0.0.0/0"], &["255.255.255.255/32"], &[], &[]],
            [&["::/0"], &["fd00::/48"], &[], &[]],
            // around
            [
                &["10.1.0.0/16"],
                &["10.0.0.0/8"],
                &["10.1.0.0/16"],
                &["10.0.0.0/8"],
            ],
            [
                &["10.1.0.0/16", "10.3.0.0/16", "11.0.0.0/8"],
                &["10.0.0.0/8"],
                &["10.1.0.0/16", "10.3.0.0/16"],
                &["10.0.0.0/8"],
            ],
            [
                &["10.0.0.0/8", "fe00::/9"],
                &["::/0"],
                &["fe00::/9"],
                &["::/0"],
            ],
            // beside each other: two that together cover what is wanted are enough
            [&["10.0.0.0/24"], &["10.0.1.0/24"], &[], &["10.0.1.0/24"]],
            [&["10.0.1.0/24", "10.0.0.0/24"], &["10.0.0.0/23"], &[], &[]],
            [
                &["10.0.0.0/24", "10.0.2.0/24"],
                &["10.0.0.0/22"],
                &["10.0.0.0/24", "10.0.2.0/24"],
                &["10.0.0.0/22"],
            ],
            // wanted ones that overlap
            [
                &[],
                &["10.1.0.0/16", "10.0.0.0/8", "10.0.0.0/8"],
                &[],
                &["10.0.0.0/8"],
            ],
            // an interval of somebody's that is no network, and sticks out
            [
                &["10.0.0.200-10.0.1.5"],
                &["10.0.1.0/24"],
                &["10.0.0.200-10.0.1.5"],
                &["10.0.0.200-10.0.1.255"],
            ],
            [
                &["10.0.0.200-10.0.1.5", "255.0.0.0/8"],
                &["10.0.0.0/24", "10.0.1.0/24", "255.255.0.0/16"],
                &["10.0.0.200-10.0.1.5"],
                &["10.0.0.0-10.0.1.255"],
            ],
        ];
        for [present, wanted, remove, add] in cases {
            let expected = Plan {
                remove: intervals(remove),
                add: intervals(add),
            };
            assert_eq!(
                plan(&intervals(present), &intervals(wanted)),
                expected,
                "{present:?} {wanted:?}"
            );
        }
    }

    /// Every address of a tiny part of the space, checked one by one, for a few thousand plans.
    #[test]
    fn plans_cover_both_and_nothing_else_and_do_not_overlap() {
        const SIZE: u8 = 32;
        let mut seed: u32 = 1;
        let mut random = |below: u8| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let [high, ..] = seed.to_be_bytes();
            high % below
        };
        // At the very end of the space, where an interval has no end.
        let address = |number: u8| Ipv4Addr::new(255, 255, 255, 255 - SIZE + 1 + number).into();
        let holds = |intervals: &[Interval], number| {
            let address = address(number);
            intervals
                .iter()
                .any(|one| one.first <= address && address <= one.last)
        };
        for _ in 0..5000 {
            let mut some = |count: u8| -> Vec<Interval> {
                (0..random(count))
                    .map(|_| {
                        let (a, b) = (random(SIZE), random(SIZE));
                        Interval {
                            first: address(a.min(b)),
                            last: address(a.max(b)),
                        }
                    })
                    .collect()
            };
            let (present, wanted) = (merged(some(6)), some(4));
            let Plan { remove, add } = plan(&present, &wanted);
            assert!(remove.iter().all(|one| present.contains(one)));
            let mut after = present.clone();
            after.retain(|one| !remove.contains(one));
            after.extend(&add);
            for number in 0..SIZE {
                let expected = holds(&present, number) || holds(&wanted, number);
                assert_eq!(holds(&after, number), expected, "{present:?} {wanted:?}");
            }
            assert_eq!(
                merged(after.clone()).len(),
                after.len(),
                "{present:?} {wanted:?}"
            );
            assert!(plan(&after, &wanted).is_empty(), "{present:?} {wanted:?}");
        }
    }
}
