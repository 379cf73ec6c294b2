//! The bitmaps of the index on disk, one per subnet.

use std::fs::{self, OpenOptions};
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use ipnet::IpNet;

use super::address_file;
use super::record::{index_dir, remove, replace};
use crate::bitmap::Bitmap;

const PREFIX: &str = "used.";

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

/// The map of a window, read or else made of the directory's names.
pub(super) fn load(dir: &Path, window: IpNet) -> io::Result<Bitmap> {
    match address_file::read(&path(dir, window)) {
        Ok(bytes) if bytes.len() == bits(window).div_ceil(8) => Ok(Bitmap::from_bytes(bytes)),
        // None, or none of ours.
        _ => rebuild(dir, window),
    }
}

/// The map of a window as the directory has it now.
pub(super) fn rebuild(dir: &Path, subnet: IpNet) -> io::Result<Bitmap> {
    let mut map = Bitmap::free(bits(subnet));
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        let address = name.to_str().and_then(|name| name.parse::<IpAddr>().ok());
        if let Some(address) = address.filter(|address| subnet.contains(address)) {
            map.set_used(offset(subnet, address));
        }
    }
    // Without a file it is made anew each time, which is slow and right.
    let _ = replace(&path(dir, subnet), map.as_bytes());
    Ok(map)
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
    let file = OpenOptions::new().read(true).write(true).open(path)?;
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

fn maps(dir: &Path) -> io::Result<Vec<(PathBuf, IpNet)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(index_dir(dir))? {
        let entry = entry?;
        let name = entry.file_name();
        let subnet = name
            .to_str()
            .and_then(|name| name.strip_prefix(PREFIX))
            .and_then(|subnet| subnet.replace('-', "/").parse().ok());
        if let Some(subnet) = subnet {
            found.push((entry.path(), subnet));
        }
    }
    Ok(found)
}
