//! The bitmap files agree with the directory, whichever range an address was leased from.

use rstest::rstest;

use super::*;

/// Two addresses of a subnet, `first` and the one after it.
fn pair(subnet: &str, first: u8) -> Range {
    let address = |last: u8| Some(ip(&format!("10.1.0.{last}")));
    let gateway = Some(ip("10.1.0.1"));
    Range::new(
        subnet.parse().unwrap(),
        address(first),
        address(first + 1),
        gateway,
    )
    .unwrap()
}

/// Asserts that each bitmap file equals a rebuilt one, and returns their number.
#[track_caller]
fn assert_valid(directory: &TempDir) -> usize {
    let net = directory.path().join("net");
    let maps = crate::store::bitmaps::list(&net).unwrap();
    for (path, window) in &maps {
        let bytes = fs::read(path).unwrap();
        let fresh = crate::store::bitmaps::rebuild(&net, *window).unwrap();
        assert_eq!(bytes, fresh.bits().to_bytes(), "{window}");
    }
    maps.len()
}

#[rstest]
#[case::one_range(vec![vec![pair("10.1.0.0/24", 2)]], 1)]
#[case::two_ranges_of_one_subnet(
    vec![vec![pair("10.1.0.0/24", 2), pair("10.1.0.0/24", 4)]], 1)]
#[case::two_sets_of_one_subnet(
    vec![vec![pair("10.1.0.0/24", 2)], vec![pair("10.1.0.0/24", 4)]], 1)]
#[case::two_ranges_of_subnets_that_overlap(
    vec![vec![pair("10.1.0.0/24", 2), pair("10.1.0.0/16", 4)]], 1)]
#[case::two_sets_of_subnets_that_overlap(
    vec![vec![pair("10.1.0.0/24", 2)], vec![pair("10.1.0.0/16", 4)]], 1)]
#[case::a_huge_subnet_and_a_part_of_it(
    vec![vec![pair("10.0.0.0/8", 2)], vec![pair("10.1.0.0/24", 4)]], 1)]
fn a_lease_is_marked_in_its_bitmap(#[case] sets: Vec<Vec<Range>>, #[case] expected: usize) {
    let directory = TempDir::new().unwrap();
    let sets: Vec<RangeSet> = sets
        .into_iter()
        .map(|ranges| RangeSet::new(ranges).unwrap())
        .collect();
    let store = store(&directory);
    for container in ["a", "b"] {
        lease(&mut store.open().unwrap(), container, &sets, &[]).unwrap();
        assert_eq!(assert_valid(&directory), expected);
    }
    for container in ["b", "a"] {
        store.open().unwrap().release(&owner(container)).unwrap();
        assert_eq!(assert_valid(&directory), expected);
    }
}

#[test]
fn a_requested_address_is_marked_in_its_bitmap() {
    let directory = TempDir::new().unwrap();
    let sets = [set("10.1.0.0/24"), set("fd00::/64")];
    let store = store(&directory);
    lease(&mut store.open().unwrap(), "a", &sets, &[]).unwrap();
    let requested = [ip("10.1.0.9")];
    lease(&mut store.open().unwrap(), "b", &sets, &requested).unwrap();
    assert_eq!(assert_valid(&directory), 2);
}

#[test]
fn a_new_bitmap_replaces_those_that_overlap_with_it() {
    let directory = TempDir::new().unwrap();
    let store = store(&directory);
    let lease_from = |subnet: &str, container: &str| {
        let given = lease(&mut store.open().unwrap(), container, &[set(subnet)], &[]);
        assert_valid(&directory);
        given.unwrap()
    };
    // The subnet of a network is changed, and changed back.
    lease_from("10.1.0.0/24", "a");
    lease_from("10.2.0.0/24", "b");
    assert_eq!(lease_from("10.1.0.0/16", "c"), [ip("10.1.0.3")]);
    assert_eq!(lease_from("10.1.0.0/24", "d"), [ip("10.1.0.4")]);
    let net = directory.path().join("net");
    let mut windows: Vec<String> = crate::store::bitmaps::list(&net)
        .unwrap()
        .iter()
        .map(|(_, window)| window.to_string())
        .collect();
    windows.sort();
    assert_eq!(windows, ["10.1.0.0/24", "10.2.0.0/24"]);
}
