//! Which of the free addresses an owner gets. Pure: what is leased is passed in.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::bitmap::Bitmap;
use crate::range::{Range, RangeSet};

/// How to choose among free addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// The next after the last lease, so that a freed address rests as long as possible.
    #[default]
    Sequential,
    /// Any, each as likely as the other.
    Random,
    /// The lowest.
    DensePack,
}

/// A strategy that doesn't exist.
#[derive(Debug, thiserror::Error)]
#[error("allocation_strategy {0:?} is none of sequential, random and dense-pack")]
pub struct UnknownStrategy(String);

impl FromStr for Strategy {
    type Err = UnknownStrategy;

    fn from_str(text: &str) -> Result<Self, UnknownStrategy> {
        match text {
            "sequential" => Ok(Self::Sequential),
            "random" => Ok(Self::Random),
            "dense-pack" => Ok(Self::DensePack),
            other => Err(UnknownStrategy(other.to_owned())),
        }
    }
}

/// What is known about the leases in a range.
#[derive(Clone, Copy)]
pub(crate) struct Used<'a> {
    /// Everything about a part of the subnet, which is all of it unless it is huge.
    pub(crate) map: &'a Bitmap,
    /// How far the map's first address is from the subnet's.
    pub(crate) map_offset: u128,
    /// Whether an address outside of the map is leased.
    pub(crate) is_leased: &'a dyn Fn(IpAddr) -> bool,
}

impl Used<'_> {
    /// The part of these offsets that the map has, as bits.
    fn bits(&self, first: u128, last: u128) -> Option<RangeInclusive<usize>> {
        let end = self.map_offset + self.map.len() as u128 - 1;
        let bit = |offset: u128| usize::try_from(offset - self.map_offset).ok();
        let (first, last) = (first.max(self.map_offset), last.min(end));
        (first <= last)
            .then(|| Some(bit(first)?..=bit(last)?))
            .flatten()
    }

    /// The bits of a range that is in the map as a whole.
    fn whole(&self, range: &Range) -> Option<RangeInclusive<usize>> {
        let (first, last) = range.offsets().into_inner();
        let bits = self.bits(first, last)?;
        (bits.clone().count() as u128 == last - first + 1).then_some(bits)
    }

    fn bit(&self, range: &Range, address: IpAddr) -> usize {
        usize::try_from(range.offset(address) - self.map_offset).unwrap_or(usize::MAX)
    }
}

impl Strategy {
    /// A free address of the set, and the index of the range that it is from.
    ///
    /// `used` has an entry per range, `last` is the newest lease, and `draw` gives a number below
    /// the one it gets.
    pub(crate) fn choose(
        self,
        set: &RangeSet,
        used: &[Used<'_>],
        last: Option<IpAddr>,
        draw: &dyn Fn(u128) -> u128,
    ) -> Option<(usize, IpAddr)> {
        let start = match self {
            Self::Sequential => last.and_then(|last| place_of(set, last)),
            Self::DensePack => None,
            Self::Random => Some(random_place(set, used, draw)?),
        };
        around(set, start)
            .into_iter()
            .find_map(|(index, first, last)| {
                let address = first_free(&set.ranges()[index], used[index], first, last)?;
                Some((index, address))
            })
    }
}

/// The range that has an address, and where in it.
fn place_of(set: &RangeSet, address: IpAddr) -> Option<(usize, u128)> {
    let index = set
        .ranges()
        .iter()
        .position(|range| range.contains(address))?;
    Some((index, set.ranges()[index].offset(address)))
}

/// The set from behind a place on, once around and up to it; without one, from the beginning.
fn around(set: &RangeSet, start: Option<(usize, u128)>) -> Vec<(usize, u128, u128)> {
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

/// The first free address from offset `first` to `last`.
fn first_free(range: &Range, used: Used<'_>, first: u128, last: u128) -> Option<IpAddr> {
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

/// A place just before a free address, each of them as likely as the other.
fn random_place(
    set: &RangeSet,
    used: &[Used<'_>],
    draw: &dyn Fn(u128) -> u128,
) -> Option<(usize, u128)> {
    let ranges = || set.ranges().iter().zip(used);
    let free = ranges().map(|(range, used)| match FreeBits::of(range, *used) {
        Some(free) => free.len() as u128,
        // So large that what is leased of it doesn't count.
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
            // `around` begins behind the place. The very first address is never free: it is reserved.
            return Some((index, offset.saturating_sub(1)));
        }
        nth -= free[index];
    }
    None
}

/// The free bits of a range that aren't reserved.
struct FreeBits<'a> {
    map: &'a Bitmap,
    span: RangeInclusive<usize>,
    reserved: Vec<usize>,
}

impl<'a> FreeBits<'a> {
    /// `None` if the range isn't in the map as a whole.
    fn of(range: &Range, used: Used<'a>) -> Option<Self> {
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
        // Each reserved bit at or before the one that is meant moves it one further.
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

/// How many addresses of a range are leased; `None` if the map doesn't have all of it.
pub(crate) fn count_leased(range: &Range, used: Used<'_>) -> Option<u128> {
    let free = FreeBits::of(range, used)?;
    Some(range.capacity() - free.len() as u128)
}

#[cfg(test)]
mod tests;
