//! A bitmap of the leased addresses of a subnet.

use std::cell::OnceCell;
use std::fs::File;
use std::ops::{Range, RangeInclusive};
use std::os::unix::fs::FileExt;

/// Read size. Most searches end in the block they start in.
const BLOCK_BYTES: usize = 2048;

/// One bit per address, by offset from the network address.
#[derive(Debug)]
pub(crate) struct Bitmap {
    bytes: usize,
    /// Read on first use.
    blocks: Vec<OnceCell<Vec<u8>>>,
    /// `None` if the bitmap was built in memory.
    file: Option<File>,
}

impl Bitmap {
    /// Limits a bitmap to 1,048,576 addresses in 128 KiB.
    pub(crate) const MAX_HOST_BITS: u8 = 20;

    pub(crate) fn free(bits: usize) -> Self {
        Self::new(bits, None)
    }

    /// A bitmap in a file. Bits beyond the end of the file count as used.
    pub(crate) fn of_file(file: File, bits: usize) -> Self {
        Self::new(bits, Some(file))
    }

    fn new(bits: usize, file: Option<File>) -> Self {
        let bytes = bits.div_ceil(8);
        Self {
            bytes,
            blocks: vec![OnceCell::new(); bytes.div_ceil(BLOCK_BYTES)],
            file,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes * 8
    }

    pub(crate) fn file(&self) -> Option<&File> {
        self.file.as_ref()
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        self.slices(0..self.bytes).flatten().copied().collect()
    }

    /// Index and value of the byte that contains a bit.
    pub(crate) fn byte_of(&self, bit: usize) -> (usize, u8) {
        (bit / 8, self.byte(bit / 8))
    }

    pub(crate) fn is_used(&self, bit: usize) -> bool {
        self.byte(bit / 8) & (1 << (bit % 8)) != 0
    }

    pub(crate) fn set_used(&mut self, bit: usize) {
        let (block, offset) = (bit / 8 / BLOCK_BYTES, bit / 8 % BLOCK_BYTES);
        let mut bytes = self.take_block(block);
        bytes[offset] |= 1 << (bit % 8);
        self.blocks[block] = OnceCell::from(bytes);
    }

    fn take_block(&mut self, nth: usize) -> Vec<u8> {
        match self.blocks[nth].take() {
            Some(bytes) => bytes,
            None => self.read_block(nth),
        }
    }

    fn read_block(&self, nth: usize) -> Vec<u8> {
        let start = nth * BLOCK_BYTES;
        let mut bytes = vec![0; BLOCK_BYTES.min(self.bytes - start)];
        let read = match &self.file {
            None => Ok(()),
            Some(file) => file.read_exact_at(&mut bytes, start as u64),
        };
        if read.is_err() {
            bytes.fill(u8::MAX);
        }
        bytes
    }

    fn block(&self, nth: usize) -> &[u8] {
        self.blocks[nth].get_or_init(|| self.read_block(nth))
    }

    fn byte(&self, index: usize) -> u8 {
        self.block(index / BLOCK_BYTES)[index % BLOCK_BYTES]
    }

    /// The bytes of a range, block by block.
    fn slices(&self, range: Range<usize>) -> impl Iterator<Item = &[u8]> {
        let blocks = range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES);
        blocks.map(move |nth| {
            let start = nth * BLOCK_BYTES;
            let end = (range.end - start).min(BLOCK_BYTES);
            &self.block(nth)[range.start.saturating_sub(start)..end]
        })
    }

    pub(crate) fn first_free(&self, span: RangeInclusive<usize>) -> Option<usize> {
        let (mut bit, last) = span.into_inner();
        while bit <= last {
            if bit.is_multiple_of(8) && self.byte(bit / 8) == u8::MAX {
                bit += 8;
            } else if self.is_used(bit) {
                bit += 1;
            } else {
                return Some(bit);
            }
        }
        None
    }

    pub(crate) fn count_used(&self, span: RangeInclusive<usize>) -> usize {
        let (first, last) = span.into_inner();
        if first > last {
            return 0;
        }
        let (head, tail) = (first / 8, last / 8);
        let from_head = u8::MAX << (first % 8);
        let to_tail = u8::MAX >> (7 - last % 8);
        if head == tail {
            return (self.byte(head) & from_head & to_tail).count_ones() as usize;
        }
        let middle: u32 = self
            .slices(head + 1..tail)
            .flatten()
            .map(|byte| byte.count_ones())
            .sum();
        (self.byte(head) & from_head).count_ones() as usize
            + middle as usize
            + (self.byte(tail) & to_tail).count_ones() as usize
    }

    /// The `nth` free bit of a span, counted from 0.
    pub(crate) fn nth_free(&self, span: RangeInclusive<usize>, nth: usize) -> Option<usize> {
        let (mut bit, last) = span.into_inner();
        let mut left = nth;
        while bit <= last {
            // Skip whole bytes.
            if bit.is_multiple_of(8) && bit + 7 <= last {
                let free = self.byte(bit / 8).count_zeros() as usize;
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
    use std::io::Write;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn searches_agree_with_a_linear_scan(
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

    #[test]
    fn bits_beyond_the_end_of_the_file_are_used() {
        let bits = 3 * BLOCK_BYTES * 8;
        let mut bytes = vec![0; 2 * BLOCK_BYTES];
        bytes[BLOCK_BYTES] = 1;
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        let mut map = Bitmap::of_file(file, bits);
        assert_eq!(
            map.first_free(BLOCK_BYTES * 8..=bits - 1),
            Some(BLOCK_BYTES * 8 + 1)
        );
        assert_eq!(map.first_free(2 * BLOCK_BYTES * 8..=bits - 1), None);
        map.set_used(BLOCK_BYTES * 8 + 1);
        map.set_used(7);
        bytes[BLOCK_BYTES] = 3;
        bytes[0] = 1 << 7;
        bytes.resize(3 * BLOCK_BYTES, u8::MAX);
        assert_eq!(map.to_bytes(), bytes);
        assert_eq!(map.count_used(0..=bits - 1), 3 + BLOCK_BYTES * 8);
    }

    #[test]
    fn a_search_reads_only_the_blocks_it_needs() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(128 * 1024).unwrap();
        let map = Bitmap::of_file(file, 1 << Bitmap::MAX_HOST_BITS);
        assert_eq!(map.first_free(700_000..=900_000), Some(700_000));
        let read = map.blocks.iter().filter(|block| block.get().is_some());
        assert_eq!(read.count(), 1);
    }
}
