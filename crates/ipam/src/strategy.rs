//! Which of the free addresses an owner gets. Pure: what is leased is passed in.

use std::net::IpAddr;
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
pub(crate) enum Used<'a> {
    /// Everything.
    Map(&'a Bitmap),
    /// Nothing but the question whether one address is leased: the range is too large for more.
    Ask(&'a dyn Fn(IpAddr) -> bool),
}

impl Strategy {
    /// A free address of the set, and the range that it is from.
    ///
    /// `used` tells what is leased in the range of this index, `last` is the newest lease, and
    /// `draw` gives a number below the one it gets.
    pub(crate) fn choose<'a>(
        self,
        set: &RangeSet,
        used: &dyn Fn(usize) -> Used<'a>,
        last: Option<IpAddr>,
        draw: &dyn Fn(u128) -> u128,
    ) -> Option<(usize, IpAddr)> {
        match self {
            Self::Sequential => sequential(set, used, last),
            Self::DensePack => sequential(set, used, None),
            Self::Random => random(set, used, draw),
        }
    }
}

/// Goes through the set from behind `last` on, once around.
fn sequential<'a>(
    set: &RangeSet,
    used: &dyn Fn(usize) -> Used<'a>,
    last: Option<IpAddr>,
) -> Option<(usize, IpAddr)> {
    let ranges = set.ranges();
    let after = last.and_then(|last| {
        let index = ranges.iter().position(|range| range.contains(last))?;
        Some((index, ranges[index].offset(last)))
    });
    let Some((start, offset)) = after else {
        return (0..ranges.len()).find_map(|index| {
            let range = &ranges[index];
            first_free(
                range,
                &used(index),
                *range.offsets().start(),
                *range.offsets().end(),
            )
            .map(|address| (index, address))
        });
    };
    let range = &ranges[start];
    let behind = first_free(range, &used(start), offset + 1, *range.offsets().end());
    if let Some(address) = behind {
        return Some((start, address));
    }
    let others = (1..ranges.len()).map(|step| (start + step) % ranges.len());
    let elsewhere = others.into_iter().find_map(|index| {
        let range = &ranges[index];
        first_free(
            range,
            &used(index),
            *range.offsets().start(),
            *range.offsets().end(),
        )
        .map(|address| (index, address))
    });
    elsewhere.or_else(|| {
        first_free(range, &used(start), *range.offsets().start(), offset)
            .map(|address| (start, address))
    })
}

/// The first free address from offset `first` to `last`.
fn first_free(range: &Range, used: &Used<'_>, first: u128, last: u128) -> Option<IpAddr> {
    match used {
        Used::Map(map) => {
            let (mut first, last) = (bit(first), bit(last));
            while first <= last {
                let found = map.first_free(first..=last)?;
                let address = range.address(found as u128);
                if !range.is_reserved(address) {
                    return Some(address);
                }
                first = found + 1;
            }
            None
        }
        Used::Ask(is_used) => {
            let mut offset = first;
            while offset <= last {
                let address = range.address(offset);
                if !range.is_reserved(address) && !is_used(address) {
                    return Some(address);
                }
                offset = offset.checked_add(1)?;
            }
            None
        }
    }
}

fn random<'a>(
    set: &RangeSet,
    used: &dyn Fn(usize) -> Used<'a>,
    draw: &dyn Fn(u128) -> u128,
) -> Option<(usize, IpAddr)> {
    let free: Vec<u128> = set
        .ranges()
        .iter()
        .enumerate()
        .map(|(index, range)| match used(index) {
            Used::Map(map) => free_bits(range, map).len() as u128,
            // So large that what is leased of it doesn't count.
            Used::Ask(_) => range.capacity(),
        })
        .collect();
    let total = free
        .iter()
        .fold(0_u128, |sum, free| sum.saturating_add(*free));
    if total == 0 {
        return None;
    }
    let mut nth = draw(total);
    let index = free.iter().position(|free| {
        let is_here = nth < *free;
        if !is_here {
            nth -= free;
        }
        is_here
    })?;
    let range = &set.ranges()[index];
    let address = match used(index) {
        Used::Map(map) => range.address(free_bits(range, map).nth(usize::try_from(nth).ok()?)?),
        Used::Ask(_) => {
            // A handful of draws at the most, because nearly all of it is free.
            let offset = *range.offsets().start() + nth;
            first_free(range, &used(index), offset, *range.offsets().end())
                .or_else(|| first_free(range, &used(index), *range.offsets().start(), offset))?
        }
    };
    Some((index, address))
}

/// The free bits of a range that aren't reserved.
struct FreeBits<'a> {
    map: &'a Bitmap,
    span: std::ops::RangeInclusive<usize>,
    reserved: Vec<usize>,
}

fn free_bits<'a>(range: &Range, map: &'a Bitmap) -> FreeBits<'a> {
    let span = bit(*range.offsets().start())..=bit(*range.offsets().end());
    let subnet = range.subnet();
    let mut reserved: Vec<usize> = [range.gateway(), subnet.network(), subnet.broadcast()]
        .into_iter()
        .filter(|address| range.contains(*address) && range.is_reserved(*address))
        .map(|address| bit(range.offset(address)))
        .filter(|bit| !map.is_used(*bit))
        .collect();
    reserved.sort_unstable();
    reserved.dedup();
    FreeBits {
        map,
        span,
        reserved,
    }
}

impl FreeBits<'_> {
    fn len(&self) -> usize {
        let all = self.span.clone().count();
        all - self.map.count_used(self.span.clone()) - self.reserved.len()
    }

    fn nth(&self, nth: usize) -> Option<u128> {
        // Each reserved bit at or before the one that is meant moves it one further.
        let mut rank = nth;
        for reserved in &self.reserved {
            let found = self.map.nth_free(self.span.clone(), rank)?;
            if *reserved <= found {
                rank += 1;
            }
        }
        self.map
            .nth_free(self.span.clone(), rank)
            .map(|bit| bit as u128)
    }
}

fn bit(offset: u128) -> usize {
    usize::try_from(offset).expect("ranges with a map have at most 2^20 addresses")
}

/// How many addresses of a range are leased, of those that can be.
pub(crate) fn count_leased(range: &Range, map: &Bitmap) -> usize {
    let span = bit(*range.offsets().start())..=bit(*range.offsets().end());
    let subnet = range.subnet();
    let mut reserved = vec![range.gateway(), subnet.network(), subnet.broadcast()];
    reserved.sort_unstable();
    reserved.dedup();
    let counted = reserved.into_iter().filter(|address| {
        range.contains(*address)
            && range.is_reserved(*address)
            && map.is_used(bit(range.offset(*address)))
    });
    map.count_used(span) - counted.count()
}

#[cfg(test)]
mod tests;
