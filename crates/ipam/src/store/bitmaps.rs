//! The index's bitmap files, one per subnet.
//!
//! Bitmaps never overlap: creating one removes those that overlap with it. So an address is in at
//! most one bitmap.

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

/// Fits several directory entries, at least one of the longest name.
const ENTRIES_BYTES: usize = 2048;

/// The part of a subnet that has a bitmap: all of it, or the block around `first` of a huge one.
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

pub(super) struct SubnetBitmap {
    window: IpNet,
    /// Has no file if it was rebuilt from the directory.
    bits: Bitmap,
}

impl SubnetBitmap {
    pub(super) fn bits(&self) -> &Bitmap {
        &self.bits
    }

    pub(super) fn is_rebuilt(&self) -> bool {
        self.bits.file().is_none()
    }

    pub(super) fn contains(&self, address: IpAddr) -> bool {
        self.window.contains(&address)
    }

    fn mark_leased(&mut self, address: IpAddr) -> io::Result<()> {
        let bit = offset(self.window, address);
        self.bits.set_used(bit);
        let (index, byte) = self.bits.byte_of(bit);
        match self.bits.file() {
            Some(file) => file.write_all_at(&[byte], index as u64),
            None => Ok(()),
        }
    }
}

/// Opens the bitmap of a window, or rebuilds it.
pub(super) fn load(dir: &Path, window: IpNet) -> io::Result<SubnetBitmap> {
    match file::open(&path(dir, window), OFlags::RDWR | OFlags::NOFOLLOW) {
        Ok(file) => Ok(SubnetBitmap {
            window,
            bits: Bitmap::of_file(file, bits(window)),
        }),
        // Missing or foreign.
        Err(_) => rebuild(dir, window),
    }
}

/// Builds the bitmap of a window from the names in the directory.
pub(super) fn rebuild(dir: &Path, window: IpNet) -> io::Result<SubnetBitmap> {
    let mut map = Bitmap::free(bits(window));
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        let address = name.to_str().and_then(|name| name.parse::<IpAddr>().ok());
        if let Some(address) = address.filter(|address| window.contains(address)) {
            map.set_used(offset(window, address));
        }
    }
    // If the file can't be written, every call rebuilds it: slow but correct.
    let _ =
        remove_overlapping(dir, window).and_then(|()| replace(&path(dir, window), &map.to_bytes()));
    Ok(SubnetBitmap { window, bits: map })
}

fn remove_overlapping(dir: &Path, window: IpNet) -> io::Result<()> {
    let overlaps = |other: &IpNet| other.contains(&window) || window.contains(other);
    list(dir)?
        .iter()
        .filter(|(_, other)| *other != window && overlaps(other))
        .try_for_each(|(path, _)| remove(path))
}

/// Marks addresses as leased, in the bitmaps they were picked from where possible.
pub(super) fn mark_leased(
    dir: &Path,
    loaded: &mut [SubnetBitmap],
    leased: &[IpAddr],
) -> io::Result<()> {
    // A rebuilt bitmap may have replaced one that was loaded before.
    if loaded.iter().any(SubnetBitmap::is_rebuilt) {
        return mark(dir, leased, Bit::Used);
    }
    let mut elsewhere = Vec::new();
    for address in leased {
        match loaded.iter_mut().find(|map| map.contains(*address)) {
            Some(map) => map.mark_leased(*address)?,
            None => elsewhere.push(*address),
        }
    }
    if elsewhere.is_empty() {
        return Ok(());
    }
    mark(dir, &elsewhere, Bit::Used)
}

/// Updates every bitmap that contains one of the addresses.
pub(super) fn mark(dir: &Path, addresses: &[IpAddr], state: Bit) -> io::Result<()> {
    for (path, subnet) in list(dir)? {
        for address in addresses.iter().filter(|address| subnet.contains(*address)) {
            match set_bit(&path, offset(subnet, *address), state) {
                // Too short, so not ours. It is rebuilt when needed.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => remove(&path)?,
                outcome => outcome?,
            }
        }
    }
    Ok(())
}

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

/// Removes all bitmaps; they are rebuilt when needed.
pub(super) fn remove_all(dir: &Path) -> io::Result<()> {
    for (path, _) in list(dir)? {
        // A directory, for example: not ours.
        let _ = remove(&path);
    }
    Ok(())
}

/// Every bitmap file with its window.
pub(super) fn list(dir: &Path) -> io::Result<Vec<(PathBuf, IpNet)>> {
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
