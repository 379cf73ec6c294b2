//! Plans the changes after which a set of intervals covers more networks.

use net::nft::Interval;

/// Intervals to remove and to add in one transaction.
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

/// The smallest change after which `present` covers `wanted` as well. Intervals must not overlap: the
/// kernel rejects that. All are of one family.
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

/// Whether the sorted intervals cover every address of `wanted`.
fn is_covered(wanted: &Interval, present: &[Interval]) -> bool {
    let mut first_uncovered = wanted.first;
    for interval in present {
        if interval.first <= first_uncovered && first_uncovered <= interval.last {
            match interval.next() {
                Some(after) if after <= wanted.last => first_uncovered = after,
                _ => return true,
            }
        }
    }
    false
}

/// The same addresses as sorted intervals that do not overlap.
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
    use rstest::rstest;

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

    #[rstest]
    #[case::empty(&[], &[], &[], &[])]
    #[case::none_wanted(&["10.0.0.0/8"], &[], &[], &[])]
    #[case::first(&[], &["10.0.0.0/8"], &[], &["10.0.0.0/8"])]
    #[case::first_of_all_ipv4(&[], &["0.0.0.0/0"], &[], &["0.0.0.0/0"])]
    #[case::first_ipv6(&[], &["fd00::/48"], &[], &["fd00::/48"])]
    #[case::equal(&["10.0.0.0/8"], &["10.0.0.0/8"], &[], &[])]
    #[case::within(&["10.0.0.0/8"], &["10.1.0.0/16", "10.2.0.0/16"], &[], &[])]
    #[case::last_address(&["0.0.0.0/0"], &["255.255.255.255/32"], &[], &[])]
    #[case::within_all_ipv6(&["::/0"], &["fd00::/48"], &[], &[])]
    #[case::around_one(&["10.1.0.0/16"], &["10.0.0.0/8"], &["10.1.0.0/16"], &["10.0.0.0/8"])]
    #[case::around_two(&["10.1.0.0/16", "10.3.0.0/16", "11.0.0.0/8"], &["10.0.0.0/8"],
        &["10.1.0.0/16", "10.3.0.0/16"], &["10.0.0.0/8"])]
    #[case::other_family_stays(&["10.0.0.0/8", "fe00::/9"], &["::/0"], &["fe00::/9"], &["::/0"])]
    #[case::adjacent(&["10.0.0.0/24"], &["10.0.1.0/24"], &[], &["10.0.1.0/24"])]
    #[case::covered_by_two(&["10.0.1.0/24", "10.0.0.0/24"], &["10.0.0.0/23"], &[], &[])]
    #[case::covered_with_a_gap(&["10.0.0.0/24", "10.0.2.0/24"], &["10.0.0.0/22"],
        &["10.0.0.0/24", "10.0.2.0/24"], &["10.0.0.0/22"])]
    #[case::wanted_overlap(&[], &["10.1.0.0/16", "10.0.0.0/8", "10.0.0.0/8"], &[], &["10.0.0.0/8"])]
    #[case::foreign_range(&["10.0.0.200-10.0.1.5"], &["10.0.1.0/24"],
        &["10.0.0.200-10.0.1.5"], &["10.0.0.200-10.0.1.255"])]
    #[case::foreign_range_in_two(&["10.0.0.200-10.0.1.5", "255.0.0.0/8"],
        &["10.0.0.0/24", "10.0.1.0/24", "255.255.0.0/16"],
        &["10.0.0.200-10.0.1.5"], &["10.0.0.0-10.0.1.255"])]
    fn plans_are_minimal(
        #[case] present: &[&str],
        #[case] wanted: &[&str],
        #[case] remove: &[&str],
        #[case] add: &[&str],
    ) {
        let expected = Plan {
            remove: intervals(remove),
            add: intervals(add),
        };
        assert_eq!(plan(&intervals(present), &intervals(wanted)), expected);
    }

    /// Checks every address of a tiny part of the address space for 5,000 random plans.
    #[test]
    fn random_plans_cover_exactly_both_without_overlap() {
        const SIZE: u8 = 32;
        let mut seed: u32 = 1;
        let mut random = |below: u8| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let [high, ..] = seed.to_be_bytes();
            high % below
        };
        // At the end of the address space, where an interval has no end element.
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
