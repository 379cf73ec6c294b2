//! Which addresses a lease gets: those that are asked for, and others by strategy.

use std::fs;
use std::net::IpAddr;

use super::{Session, list};
use crate::bitmap::Bitmap;
use crate::range::{Range, RangeSet};
use crate::store::address_file::{self, Holder};
use crate::store::newest::Newest;
use crate::store::used::{self, Map};
use crate::store::{LeaseRequest, StoreError, io_error};
use crate::strategy::{Used, count_leased};

/// What a lease is to be, and what of the index must be kept up with it.
pub(super) struct Choice {
    /// One address per set, with the range that it is from.
    pub(super) leases: Vec<(IpAddr, Range)>,
    /// The newest lease of each set so far.
    pub(super) newest: Vec<Newest>,
    /// The maps that the addresses are from, and all that were made.
    pub(super) maps: Vec<Map>,
}

impl Choice {
    pub(super) fn addresses(&self) -> Vec<IpAddr> {
        self.leases.iter().map(|(address, _)| *address).collect()
    }
}

impl Session {
    /// One address per set.
    pub(super) fn choose(&mut self, request: &LeaseRequest<'_>) -> Result<Choice, StoreError> {
        let mut asked = request.requested.to_vec();
        let mut choice = Choice {
            leases: Vec::new(),
            newest: Vec::new(),
            maps: Vec::new(),
        };
        for (number, set) in request.sets.iter().enumerate() {
            let newest = Newest::of_set(&self.dir, number);
            let position = asked
                .iter()
                .position(|address| set.range_of(*address).is_some());
            let lease = if let Some(position) = position {
                self.check_requested(asked.remove(position), set)?
            } else {
                let (lease, maps) = self.choose_free(newest.address, set, request)?;
                let is_needed = |map: &Map| map.is_made() || map.has(lease.0);
                choice.maps.extend(maps.into_iter().filter(is_needed));
                lease
            };
            choice.leases.push(lease);
            choice.newest.push(newest);
        }
        match asked.first() {
            None => Ok(choice),
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
            let subnet = range.subnet().to_string();
            return Err(StoreError::Reserved { address, subnet });
        }
        match self.holder(address)? {
            Holder::Nobody | Holder::TornFile => Ok((address, *range)),
            Holder::Owner(owner) => Err(StoreError::Taken {
                address,
                owner: owner.to_string(),
            }),
            Holder::Foreign => {
                let path = address_file::path(&self.dir, address);
                let owner = format!("nobody: {} is in its place", path.display());
                Err(StoreError::Taken { address, owner })
            }
        }
    }

    /// A free address, and the maps that say so.
    fn choose_free(
        &mut self,
        last: Option<IpAddr>,
        set: &RangeSet,
        request: &LeaseRequest<'_>,
    ) -> Result<((IpAddr, Range), Vec<Map>), StoreError> {
        // Before somebody is sent away: does the directory say the same as the maps?
        for map_of in [used::load, used::rebuild] {
            let maps = set
                .ranges()
                .iter()
                .map(|range| map_of(&self.dir, used::window(range.subnet(), range.first())))
                .collect::<Result<Vec<_>, _>>()
                .map_err(io_error("read the index of", &self.dir))?;
            if let Some(found) = self.choose_with(&maps, set, request, last) {
                return Ok((found, maps));
            }
        }
        let usage = self.usage(set)?;
        Err(StoreError::Exhausted {
            set: set.to_string(),
            leased: usage.leased,
            capacity: usage.capacity,
            dead: self.count_dead(set, request)?,
        })
    }

    fn choose_with(
        &self,
        maps: &[Map],
        set: &RangeSet,
        request: &LeaseRequest<'_>,
        last: Option<IpAddr>,
    ) -> Option<(IpAddr, Range)> {
        let is_leased = |address| self.has_file(address);
        let ranges = set.ranges().iter().zip(maps);
        let used: Vec<Used<'_>> = ranges
            .map(|(range, map)| known(range, map.bits(), &is_leased))
            .collect();
        let (index, address) = request.strategy.choose(set, &used, last, &random_below)?;
        Some((address, set.ranges()[index]))
    }

    pub(super) fn leased_in(&self, range: &Range) -> Result<u128, StoreError> {
        let map = used::load(&self.dir, used::window(range.subnet(), range.first()))
            .map_err(io_error("read the index of", &self.dir))?;
        let is_leased = |address| self.has_file(address);
        if let Some(count) = count_leased(range, known(range, map.bits(), &is_leased)) {
            return Ok(count);
        }
        let is_counted = |a: &&IpAddr| range.contains(**a) && !range.is_reserved(**a);
        Ok(self.addresses()?.iter().filter(is_counted).count() as u128)
    }

    /// What the caller knows about owners that no longer run.
    fn count_dead(
        &mut self,
        set: &RangeSet,
        request: &LeaseRequest<'_>,
    ) -> Result<String, StoreError> {
        let Some(is_live) = request.is_live else {
            return Ok("; GC releases those of containers that no longer run".to_owned());
        };
        let dead = self
            .leases()?
            .iter()
            .filter(|lease| !is_live(&lease.owner))
            .flat_map(|lease| &lease.addresses)
            .filter(|address| set.range_of(**address).is_some())
            .count();
        Ok(format!(
            ", {dead} by containers that no longer run; GC releases those"
        ))
    }

    /// Whether the address' name is taken, by a lease or by anything else.
    fn has_file(&self, address: IpAddr) -> bool {
        fs::symlink_metadata(address_file::path(&self.dir, address)).is_ok()
    }
}

fn known<'a>(range: &Range, map: &'a Bitmap, is_leased: &'a dyn Fn(IpAddr) -> bool) -> Used<'a> {
    let window = used::window(range.subnet(), range.first());
    Used {
        map,
        map_offset: range.offset(window.network()),
        is_leased,
    }
}

/// A number below `limit`, each as likely as the other.
fn random_below(limit: u128) -> u128 {
    let mut bytes = [0; 16];
    // If the kernel gives none, the lowest free address is as good as any.
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    // 128 random bits against at most 2^64 addresses: the bias can't be seen.
    u128::from_ne_bytes(bytes) % limit.max(1)
}
