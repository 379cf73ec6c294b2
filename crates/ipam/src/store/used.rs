//! The bitmaps of the index on disk, one per subnet.
//!
//! No two of them have an address in common: whoever makes a map removes those that overlap with
//! it. So whoever has read the map of an address knows that it is the only one.

use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use rustix::fs::{OFlags, RawDir};

use super::file;
use super::record::{index_dir, remove, replace};
use crate::bitmap::Bitmap;

const PREFIX: &str = "used.";

/// Room for a few entries of a directory, and for one of the longest name.
const ENTRIES_BYTES: usize = 2048;

/// The part of a subnet that has a map: all of it, or of a huge one the block that `first` is in.
pub(super) fn window(subnet: IpNet, first: IpAddr) -> IpNet {
    let longest = subnet.max_prefix_len() - Bitmap::MAX_HOST_BITS;
    let block = IpNet::new(first, subnet.prefix_len().max(longest)).unwrap_or(subnet);
    block.trunc()
}

fn bits(window: IpNet) -> usize {
    1 << (window.max_prefix_len() - window.prefix_len()).min(Bitmap::MAX_HOST_BITS)
}

fn path(dir: &Path, subnet: IpNet) -> PathBuf {
    index_dir(dir).join(format!(
        "{PREFIX}{}-{}",
        subnet.network(),
        subnet.prefix_len()
    ))
}

fn offset(subnet: IpNet, address: IpAddr) -> usize {
    let distance = match (subnet.network(), address) {
        (IpAddr::V4(base), IpAddr::V4(address)) => u128::from(u32::from(address) - u32::from(base)),
        (IpAddr::V6(base), IpAddr::V6(address)) => u128::from(address) - u128::from(base),
        _ => 0,
    };
    usize::try_from(distance).unwrap_or_default()
}

/// The map of a window.
pub(super) struct Map {
    window: IpNet,
    /// With no file if it was made of the directory's names.
    bits: Bitmap,
}

impl Map {
    pub(super) fn bits(&self) -> &Bitmap {
        &self.bits
    }

    pub(super) fn is_made(&self) -> bool {
        self.bits.file().is_none()
    }

    pub(super) fn has(&self, address: IpAddr) -> bool {
        self.window.contains(&address)
    }

    fn note_lease(&mut self, address: IpAddr) -> io::Result<()> {
        let bit = offset(self.window, address);
        self.bits.set_used(bit);
        let (index, byte) = self.bits.byte_of(bit);
        match self.bits.file() {
            Some(file) => file.write_all_at(&[byte], index as u64),
            None => Ok(()),
        }
    }
}

/// The map of a window, from its file or else made of the directory's names.
pub(super) fn load(dir: &Path, window: IpNet) -> io::Result<Map> {
    match file::open(&path(dir, window), OFlags::RDWR | OFlags::NOFOLLOW) {
        Ok(file) => Ok(Map {
            window,
            bits: Bitmap::of_file(file, bits(window)),
        }),
        // None, or none of ours.
        Err(_) => rebuild(dir, window),
    }
}

/// The map of a window as the directory has it now.
pub(super) fn rebuild(dir: &Path, window: IpNet) -> io::Result<Map> {
    let mut map = Bitmap::free(bits(window));
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        let address = name.to_str().and_then(|name| name.parse::<IpAddr>().ok());
        if let Some(address) = address.filter(|address| window.contains(address)) {
            map.set_used(offset(window, address));
        }
    }
    // Without a file it is made anew each time, which is slow and right.
    let _ =
        remove_overlapping(dir, window).and_then(|()| replace(&path(dir, window), &map.to_bytes()));
    Ok(Map { window, bits: map })
}

fn remove_overlapping(dir: &Path, window: IpNet) -> io::Result<()> {
    let overlaps = |other: &IpNet| other.contains(&window) || window.contains(other);
    maps(dir)?
        .iter()
        .filter(|(_, other)| *other != window && overlaps(other))
        .try_for_each(|(path, _)| remove(path))
}

/// Notes leases in the maps that they were chosen by, and if need be in others.
pub(super) fn note_leases(dir: &Path, known: &mut [Map], leased: &[IpAddr]) -> io::Result<()> {
    // What was made has taken the place of others, maybe of those that were read before.
    if known.iter().any(Map::is_made) {
        return note(dir, leased, Bit::Used);
    }
    let mut elsewhere = Vec::new();
    for address in leased {
        match known.iter_mut().find(|map| map.has(*address)) {
            Some(map) => map.note_lease(*address)?,
            None => elsewhere.push(*address),
        }
    }
    if elsewhere.is_empty() {
        return Ok(());
    }
    note(dir, &elsewhere, Bit::Used)
}

/// Notes a lease or a release in every map that has the address.
pub(super) fn note(dir: &Path, addresses: &[IpAddr], state: Bit) -> io::Result<()> {
    for (path, subnet) in maps(dir)? {
        for address in addresses.iter().filter(|address| subnet.contains(*address)) {
            match set_bit(&path, offset(subnet, *address), state) {
                // Not a map of ours. One is made anew when it is needed.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => remove(&path)?,
                outcome => outcome?,
            }
        }
    }
    Ok(())
}

/// Whether an address is leased.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Bit {
    Used,
    Free,
}

fn set_bit(path: &Path, bit: usize, state: Bit) -> io::Result<()> {
    let file = file::open(path, OFlags::RDWR | OFlags::NOFOLLOW)?;
    let mut byte = [0];
    file.read_exact_at(&mut byte, (bit / 8) as u64)?;
    let mask = 1 << (bit % 8);
    let [old] = byte;
    let new = if state == Bit::Used {
        old | mask
    } else {
        old & !mask
    };
    file.write_all_at(&[new], (bit / 8) as u64)
}

/// Forgets all maps; they are made anew when they are needed.
pub(super) fn forget(dir: &Path) -> io::Result<()> {
    for (path, _) in maps(dir)? {
        // What can't be removed is no map of ours.
        let _ = remove(&path);
    }
    Ok(())
}

/// Every map with its path.
pub(super) fn maps(dir: &Path) -> io::Result<Vec<(PathBuf, IpNet)>> {
    let index = index_dir(dir);
    let listed = file::open(&index, OFlags::RDONLY | OFlags::DIRECTORY)?;
    let mut buffer = [MaybeUninit::uninit(); ENTRIES_BYTES];
    let mut entries = RawDir::new(&listed, &mut buffer);
    let mut found = Vec::new();
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name().to_str().unwrap_or_default();
        let subnet = name
            .strip_prefix(PREFIX)
            .and_then(|subnet| subnet.replace('-', "/").parse().ok());
        if let Some(subnet) = subnet {
            found.push((index.join(name), subnet));
        }
    }
    Ok(found)
}
