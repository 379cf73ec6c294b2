//! The addresses of noted allocations that are still in use.
//!
//! Whatever is freed is looked up here, so a look must be quick and take no lock. An address has
//! eight places where it can be, all in one cache line; nothing moves, so somebody who looks
//! misses nothing while others come and go. Changes are made under the book's lock.

use std::sync::atomic::{AtomicUsize, Ordering};

const PLACES_PER_SET: usize = 8;
const SETS: usize = 1 << SET_BITS;
const SET_BITS: u32 = 10;

/// How many there can be, if they are spread evenly.
pub(crate) const PLACES: usize = SETS * PLACES_PER_SET;

/// One cache line.
#[repr(align(64))]
struct Set([AtomicUsize; PLACES_PER_SET]);

/// Zero is nobody's address.
const FREE: usize = 0;

pub(crate) struct Live([Set; SETS]);

impl Live {
    #[expect(
        clippy::large_stack_arrays,
        reason = "the only one is a static; tests have room"
    )]
    pub(crate) const fn new() -> Self {
        Self([const { Set([const { AtomicUsize::new(FREE) }; PLACES_PER_SET]) }; SETS])
    }

    /// The place of an address that is noted.
    ///
    /// Relaxed is enough: an address is noted before whoever frees it can know it.
    #[inline]
    pub(crate) fn find(&self, address: usize) -> Option<usize> {
        let set = set_of(address);
        let places = &self.0.get(set)?.0;
        let found = places
            .iter()
            .position(|place| place.load(Ordering::Relaxed) == address)?;
        Some(set * PLACES_PER_SET + found)
    }

    /// Notes an address, if there is a place for it. One that is there already keeps its place:
    /// that it was freed has escaped us.
    pub(crate) fn insert(&self, address: usize) -> Option<usize> {
        let set = set_of(address);
        let is_free = |place: &AtomicUsize| place.load(Ordering::Relaxed) == FREE;
        let place = match self.find(address) {
            Some(place) => place,
            None => set * PLACES_PER_SET + self.0.get(set)?.0.iter().position(is_free)?,
        };
        self.at(place)?.store(address, Ordering::Relaxed);
        Some(place)
    }

    pub(crate) fn remove(&self, place: usize) {
        if let Some(place) = self.at(place) {
            place.store(FREE, Ordering::Relaxed);
        }
    }

    /// All places that are taken.
    pub(crate) fn taken(&self) -> impl Iterator<Item = usize> {
        let places = self.0.iter().flat_map(|set| &set.0).enumerate();
        places
            .filter(|(_, place)| place.load(Ordering::Relaxed) != FREE)
            .map(|(index, _)| index)
    }

    pub(crate) fn clear(&self) {
        self.taken().for_each(|place| self.remove(place));
    }

    fn at(&self, place: usize) -> Option<&AtomicUsize> {
        let set = self.0.get(place / PLACES_PER_SET)?;
        set.0.get(place % PLACES_PER_SET)
    }
}

/// Multiplies by the golden ratio, which spreads neighbours; the low bits of addresses are alike.
fn set_of(address: usize) -> usize {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    let spread = (address as u64 >> 4).wrapping_mul(GOLDEN) >> (u64::BITS - SET_BITS);
    usize::try_from(spread).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_spread_and_no_place_is_given_twice() {
        static LIVE: Live = Live::new();
        let addresses = (1..=PLACES / 2).map(|number| 0x7f00_1000_0000 + number * 48);
        let mut places: Vec<_> = addresses
            .clone()
            .filter_map(|address| LIVE.insert(address))
            .collect();
        assert!(places.len() > PLACES * 9 / 20, "{} kept", places.len());
        assert_eq!(LIVE.taken().count(), places.len());
        places.sort_unstable();
        places.dedup();
        assert_eq!(LIVE.taken().collect::<Vec<_>>(), places);
        LIVE.clear();
        assert_eq!(LIVE.taken().count(), 0);
        assert!(
            addresses
                .into_iter()
                .all(|address| LIVE.find(address).is_none())
        );
    }

    #[test]
    fn a_full_set_takes_no_more() {
        static LIVE: Live = Live::new();
        let alike: Vec<_> = (1..)
            .map(|number| number * 16)
            .filter(|address| set_of(*address) == 5)
            .take(PLACES_PER_SET + 1)
            .collect();
        let (last, fitting) = alike.split_last().unwrap_or((&0, &[]));
        assert!(
            fitting
                .iter()
                .all(|address| LIVE.insert(*address).is_some())
        );
        assert_eq!(LIVE.insert(*last), None);
        LIVE.remove(LIVE.find(fitting[3]).unwrap_or_default());
        assert_eq!(LIVE.insert(*last), Some(5 * PLACES_PER_SET + 3));
    }
}
