//! Allocation strategies: which free address an owner gets. Pure functions.

use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::bitmap::Bitmap;
use crate::range::{Range, RangeSet};

/// How to pick a free address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AllocationStrategy {
    /// The next one after the last reserved address, so that released addresses rest longest.
    #[default]
    Sequential,
    /// A random one, uniformly distributed.
    Random,
    /// The lowest one.
    DensePack,
}

/// The configured strategy does not exist.
#[derive(Debug, thiserror::Error)]
#[error("unknown allocation_strategy {0:?}: use sequential, random or dense-pack")]
pub struct UnknownStrategy(String);

impl FromStr for AllocationStrategy {
    type Err = UnknownStrategy;

    fn from_str(text: &str) -> Result<Self, UnknownStrategy> {
        [Self::Sequential, Self::Random, Self::DensePack]
            .into_iter()
            .find(|strategy| strategy.name() == text)
            .ok_or_else(|| UnknownStrategy(text.to_owned()))
    }
}

impl fmt::Display for AllocationStrategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What is leased in a range.
#[derive(Clone, Copy)]
pub(crate) struct Occupancy<'a> {
    /// Covers the whole subnet, or one window of a subnet larger than [`Bitmap::MAX_HOST_BITS`].
    pub(crate) map: &'a Bitmap,
    /// Offset of the bitmap's first address in the subnet.
    pub(crate) map_offset: u128,
    /// Whether an address outside the bitmap is leased.
    pub(crate) is_leased: &'a dyn Fn(IpAddr) -> bool,
}

impl Occupancy<'_> {
    /// The part of the offsets `first..=last` that the bitmap covers, as bits.
    fn bits(&self, first: u128, last: u128) -> Option<RangeInclusive<usize>> {
        let end = self.map_offset + self.map.len() as u128 - 1;
        let bit = |offset: u128| usize::try_from(offset - self.map_offset).ok();
        let (first, last) = (first.max(self.map_offset), last.min(end));
        (first <= last)
            .then(|| Some(bit(first)?..=bit(last)?))
            .flatten()
    }

    /// The bits of a range, if the bitmap covers all of it.
    fn whole(&self, range: &Range) -> Option<RangeInclusive<usize>> {
        let (first, last) = range.offsets().into_inner();
        let bits = self.bits(first, last)?;
        (bits.clone().count() as u128 == last - first + 1).then_some(bits)
    }

    fn bit(&self, range: &Range, address: IpAddr) -> usize {
        usize::try_from(range.offset(address) - self.map_offset).unwrap_or(usize::MAX)
    }
}

impl AllocationStrategy {
    fn name(self) -> &'static str {
        match self {
            Self::Sequential => "sequential",
            Self::Random => "random",
            Self::DensePack => "dense-pack",
        }
    }

    /// Picks a free address of the set and returns it with the index of its range.
    ///
    /// `used` has one entry per range, `last` is the last reserved address, and `draw(n)` returns a
    /// random number below `n`.
    pub(crate) fn pick(
        self,
        set: &RangeSet,
        used: &[Occupancy<'_>],
        last: Option<IpAddr>,
        draw: &dyn Fn(u128) -> u128,
    ) -> Option<(usize, IpAddr)> {
        let start = match self {
            Self::Sequential => last.and_then(|last| position_of(set, last)),
            Self::DensePack => None,
            Self::Random => Some(random_start(set, used, draw)?),
        };
        search_order(set, start)
            .into_iter()
            .find_map(|(index, first, last)| {
                let address = first_free(&set.ranges()[index], used[index], first, last)?;
                Some((index, address))
            })
    }
}

/// The index of the range that contains an address, and the offset in it.
fn position_of(set: &RangeSet, address: IpAddr) -> Option<(usize, u128)> {
    let index = set
        .ranges()
        .iter()
        .position(|range| range.contains(address))?;
    Some((index, set.ranges()[index].offset(address)))
}

/// Spans (range index, first, last) in search order: after `start`, wrapping around up to it.
fn search_order(set: &RangeSet, start: Option<(usize, u128)>) -> Vec<(usize, u128, u128)> {
    let whole = |index: usize| {
        let (first, last) = set.ranges()[index].offsets().into_inner();
        (index, first, last)
    };
    let count = set.ranges().len();
    let Some((start, offset)) = start else {
        return (0..count).map(whole).collect();
    };
    let (_, first, last) = whole(start);
    let mut spans = vec![(start, offset.saturating_add(1), last)];
    spans.extend((1..count).map(|step| whole((start + step) % count)));
    spans.push((start, first, offset));
    spans
}

fn first_free(range: &Range, used: Occupancy<'_>, first: u128, last: u128) -> Option<IpAddr> {
    let mut offset = first;
    while offset <= last {
        let address = match used.bits(offset, last) {
            Some(bits) if used.map_offset + *bits.start() as u128 == offset => {
                let end = used.map_offset + *bits.end() as u128;
                let Some(bit) = used.map.first_free(bits) else {
                    offset = end + 1;
                    continue;
                };
                offset = used.map_offset + bit as u128;
                Some(range.address(offset))
            }
            _ => Some(range.address(offset)).filter(|address| !(used.is_leased)(*address)),
        };
        if let Some(address) = address.filter(|address| !range.is_reserved(*address)) {
            return Some(address);
        }
        offset = offset.checked_add(1)?;
    }
    None
}

/// The position just before a random free address.
fn random_start(
    set: &RangeSet,
    used: &[Occupancy<'_>],
    draw: &dyn Fn(u128) -> u128,
) -> Option<(usize, u128)> {
    let ranges = || set.ranges().iter().zip(used);
    let free = ranges().map(|(range, used)| match FreeBits::of(range, *used) {
        Some(free) => free.len() as u128,
        // Leases are too few to matter in a range this large.
        None => range.capacity(),
    });
    let free: Vec<u128> = free.collect();
    let total = free
        .iter()
        .fold(0_u128, |sum, free| sum.saturating_add(*free));
    if total == 0 {
        return None;
    }
    let mut nth = draw(total);
    for (index, (range, used)) in ranges().enumerate() {
        if nth < free[index] {
            let offset = match FreeBits::of(range, *used) {
                Some(free) => used.map_offset + free.nth(usize::try_from(nth).ok()?)? as u128,
                None => *range.offsets().start() + nth,
            };
            // `search_order` starts after this offset. Offset 0 is reserved, so it is never free.
            return Some((index, offset.saturating_sub(1)));
        }
        nth -= free[index];
    }
    None
}

/// The free bits of a range, without reserved addresses.
struct FreeBits<'a> {
    map: &'a Bitmap,
    span: RangeInclusive<usize>,
    reserved: Vec<usize>,
}

impl<'a> FreeBits<'a> {
    /// `None` if the bitmap does not cover the whole range.
    fn of(range: &Range, used: Occupancy<'a>) -> Option<Self> {
        let span = used.whole(range)?;
        let mut reserved: Vec<usize> = range
            .reserved()
            .into_iter()
            .map(|address| used.bit(range, address))
            .filter(|bit| !used.map.is_used(*bit))
            .collect();
        reserved.sort_unstable();
        Some(Self {
            map: used.map,
            span,
            reserved,
        })
    }

    fn len(&self) -> usize {
        let all = self.span.clone().count();
        all - self.map.count_used(self.span.clone()) - self.reserved.len()
    }

    fn nth(&self, nth: usize) -> Option<usize> {
        // Each reserved bit at or before the result shifts it by one.
        let mut rank = nth;
        for reserved in &self.reserved {
            let found = self.map.nth_free(self.span.clone(), rank)?;
            if *reserved <= found {
                rank += 1;
            }
        }
        self.map.nth_free(self.span.clone(), rank)
    }
}

/// Number of leased addresses of a range; `None` if the bitmap does not cover all of it.
pub(crate) fn count_leased(range: &Range, used: Occupancy<'_>) -> Option<u128> {
    let free = FreeBits::of(range, used)?;
    Some(range.capacity() - free.len() as u128)
}

#[cfg(test)]
mod tests;
