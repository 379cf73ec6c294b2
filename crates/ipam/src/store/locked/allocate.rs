//! Allocates addresses: requested ones, and others by strategy.

use std::fs;
use std::net::IpAddr;

use super::{LockedStore, list};
use crate::bitmap::Bitmap;
use crate::range::{Range, RangeSet};
use crate::store::address_file::{self, AddressHolder};
use crate::store::bitmaps::{self, SubnetBitmap};
use crate::store::last_reserved::LastReserved;
use crate::store::{LeaseRequest, StoreError, io_error};
use crate::strategy::{Occupancy, count_leased};

/// Addresses for a lease, and the index files to update when it is committed.
pub(super) struct Allocation {
    /// One address per set, with its range.
    pub(super) leases: Vec<(IpAddr, Range)>,
    /// One per set.
    pub(super) last_reserved: Vec<LastReserved>,
    /// The bitmaps of the addresses, and all that were rebuilt.
    pub(super) maps: Vec<SubnetBitmap>,
}

impl Allocation {
    pub(super) fn addresses(&self) -> Vec<IpAddr> {
        self.leases.iter().map(|(address, _)| *address).collect()
    }
}

impl LockedStore {
    /// Picks one address per set.
    pub(super) fn allocate(
        &mut self,
        request: &LeaseRequest<'_>,
    ) -> Result<Allocation, StoreError> {
        let mut requested = request.requested.to_vec();
        let mut allocation = Allocation {
            leases: Vec::new(),
            last_reserved: Vec::new(),
            maps: Vec::new(),
        };
        for (number, set) in request.sets.iter().enumerate() {
            let last_reserved = LastReserved::of_set(&self.dir, number);
            let position = requested
                .iter()
                .position(|address| set.range_of(*address).is_some());
            let lease = if let Some(position) = position {
                self.check_requested(requested.remove(position), set)?
            } else {
                let (lease, maps) = self.allocate_free(last_reserved.address, set, request)?;
                let is_needed = |map: &SubnetBitmap| map.is_rebuilt() || map.contains(lease.0);
                allocation.maps.extend(maps.into_iter().filter(is_needed));
                lease
            };
            allocation.leases.push(lease);
            allocation.last_reserved.push(last_reserved);
        }
        match requested.first() {
            None => Ok(allocation),
            Some(address) => Err(StoreError::Outside {
                address: *address,
                sets: list(request.sets),
            }),
        }
    }

    fn check_requested(
        &self,
        address: IpAddr,
        set: &RangeSet,
    ) -> Result<(IpAddr, Range), StoreError> {
        let Some(range) = set.range_of(address) else {
            return Err(StoreError::Outside {
                address,
                sets: set.to_string(),
            });
        };
        if range.is_reserved(address) {
            let subnet = range.subnet();
            return Err(StoreError::Reserved { address, subnet });
        }
        match self.holder_of(address)? {
            AddressHolder::Free | AddressHolder::TornFile => Ok((address, *range)),
            AddressHolder::LeaseOwner(owner) => Err(StoreError::Taken {
                address,
                owner: owner.to_string(),
            }),
            AddressHolder::Foreign => Err(StoreError::Occupied {
                address,
                path: address_file::path(&self.dir, address),
            }),
        }
    }

    /// Picks a free address, and returns the bitmaps it was picked from.
    fn allocate_free(
        &mut self,
        last: Option<IpAddr>,
        set: &RangeSet,
        request: &LeaseRequest<'_>,
    ) -> Result<((IpAddr, Range), Vec<SubnetBitmap>), StoreError> {
        // Before reporting exhaustion, rebuild the bitmaps from the directory.
        for map_of in [bitmaps::load, bitmaps::rebuild] {
            let maps = set
                .ranges()
                .iter()
                .map(|range| map_of(&self.dir, bitmaps::window(range.subnet(), range.first())))
                .collect::<Result<Vec<_>, _>>()
                .map_err(io_error("read the index of", &self.dir))?;
            if let Some(found) = self.pick_free(&maps, set, request, last) {
                return Ok((found, maps));
            }
        }
        let usage = self.usage(set)?;
        Err(StoreError::Exhausted {
            set: set.to_string(),
            leased: usage.leased,
            capacity: usage.capacity,
        })
    }

    fn pick_free(
        &self,
        maps: &[SubnetBitmap],
        set: &RangeSet,
        request: &LeaseRequest<'_>,
        last: Option<IpAddr>,
    ) -> Option<(IpAddr, Range)> {
        let is_leased = |address| self.has_file(address);
        let ranges = set.ranges().iter().zip(maps);
        let used: Vec<Occupancy<'_>> = ranges
            .map(|(range, map)| occupancy(range, map.bits(), &is_leased))
            .collect();
        let (index, address) = request.strategy.pick(set, &used, last, &random_below)?;
        Some((address, set.ranges()[index]))
    }

    pub(super) fn leased_in(&self, range: &Range) -> Result<u128, StoreError> {
        let map = bitmaps::load(&self.dir, bitmaps::window(range.subnet(), range.first()))
            .map_err(io_error("read the index of", &self.dir))?;
        let is_leased = |address| self.has_file(address);
        if let Some(count) = count_leased(range, occupancy(range, map.bits(), &is_leased)) {
            return Ok(count);
        }
        let is_counted = |a: &&IpAddr| range.contains(**a) && !range.is_reserved(**a);
        Ok(self.addresses()?.iter().filter(is_counted).count() as u128)
    }

    /// Whether a lease or any other file occupies the address.
    fn has_file(&self, address: IpAddr) -> bool {
        fs::symlink_metadata(address_file::path(&self.dir, address)).is_ok()
    }
}

fn occupancy<'a>(
    range: &Range,
    map: &'a Bitmap,
    is_leased: &'a dyn Fn(IpAddr) -> bool,
) -> Occupancy<'a> {
    let window = bitmaps::window(range.subnet(), range.first());
    Occupancy {
        map,
        map_offset: range.offset(window.network()),
        is_leased,
    }
}

/// A uniformly distributed number below `limit`.
fn random_below(limit: u128) -> u128 {
    let mut bytes = [0; 16];
    // Without random bytes this is 0, which is a valid choice too.
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    // The modulo bias of 128 bits is negligible.
    u128::from_ne_bytes(bytes) % limit.max(1)
}
