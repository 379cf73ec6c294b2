//! Random numbers that are the same for the same seed.

use std::time::Duration;

/// A sequence of random numbers: `SplitMix64`, <https://prng.di.unimi.it/splitmix64.c>.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number from 0 to less than `limit`.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }

    /// A time of up to this many microseconds.
    pub(crate) fn micros(&mut self, most: u64) -> Duration {
        Duration::from_micros(self.below(most))
    }

    pub(crate) fn one_of<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        let index = self.below(list.len().try_into().unwrap());
        &list[usize::try_from(index).unwrap()]
    }
}
