//! Which addresses of a subnet are leased, a bit each.

use std::ops::RangeInclusive;

/// A subnet's leased addresses by their distance from the network address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bitmap(Vec<u8>);

impl Bitmap {
    /// The largest one: 1,048,576 addresses in 128 KiB.
    pub(crate) const MAX_HOST_BITS: u8 = 20;

    /// A map of `bits` free addresses.
    pub(crate) fn free(bits: usize) -> Self {
        Self(vec![0; bits.div_ceil(8)])
    }

    pub(crate) fn from_bytes(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// How many addresses it has.
    pub(crate) fn len(&self) -> usize {
        self.0.len() * 8
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn is_used(&self, bit: usize) -> bool {
        self.0[bit / 8] & (1 << (bit % 8)) != 0
    }

    pub(crate) fn set_used(&mut self, bit: usize) {
        self.0[bit / 8] |= 1 << (bit % 8);
    }

    /// The first free bit of a span.
    pub(crate) fn first_free(&self, span: RangeInclusive<usize>) -> Option<usize> {
        let (mut bit, last) = span.into_inner();
        while bit <= last {
            if bit.is_multiple_of(8) && self.0[bit / 8] == u8::MAX {
                bit += 8;
            } else if self.is_used(bit) {
                bit += 1;
            } else {
                return Some(bit);
            }
        }
        None
    }

    /// How many bits of a span are used.
    pub(crate) fn count_used(&self, span: RangeInclusive<usize>) -> usize {
        let (first, last) = span.into_inner();
        if first > last {
            return 0;
        }
        let byte = |index: usize| self.0[index];
        let (head, tail) = (first / 8, last / 8);
        let from_head = u8::MAX << (first % 8);
        let to_tail = u8::MAX >> (7 - last % 8);
        if head == tail {
            return (byte(head) & from_head & to_tail).count_ones() as usize;
        }
        let middle: u32 = self.0[head + 1..tail]
            .iter()
            .map(|byte| byte.count_ones())
            .sum();
        (byte(head) & from_head).count_ones() as usize
            + middle as usize
            + (byte(tail) & to_tail).count_ones() as usize
    }

    /// The `nth` free bit of a span, counted from 0.
    pub(crate) fn nth_free(&self, span: RangeInclusive<usize>, nth: usize) -> Option<usize> {
        let (mut bit, last) = span.into_inner();
        let mut left = nth;
        while bit <= last {
            // Whole bytes at once where that is possible.
            if bit.is_multiple_of(8) && bit + 7 <= last {
                let free = self.0[bit / 8].count_zeros() as usize;
                if left >= free {
                    left -= free;
                    bit += 8;
                    continue;
                }
            }
            if !self.is_used(bit) {
                if left == 0 {
                    return Some(bit);
                }
                left -= 1;
            }
            bit += 1;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn searching_agrees_with_looking_at_every_bit(
            used in prop::collection::vec(any::<bool>(), 1..200),
            ends in (0..200_usize, 0..200_usize),
            nth in 0..200_usize,
        ) {
            let mut map = Bitmap::free(used.len());
            for (bit, _) in used.iter().enumerate().filter(|(_, used)| **used) {
                map.set_used(bit);
            }
            let span = (ends.0 % used.len())..=(ends.1 % used.len());
            let free: Vec<usize> = span.clone().filter(|bit| !used[*bit]).collect();
            prop_assert_eq!(map.first_free(span.clone()), free.first().copied());
            prop_assert_eq!(map.nth_free(span.clone(), nth), free.get(nth).copied());
            prop_assert_eq!(map.count_used(span.clone()), span.clone().count() - free.len());
        }
    }
}
