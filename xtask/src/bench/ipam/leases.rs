//! Lease stores of a given size, in host-local's format.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

pub(super) const NETWORK: &str = "bench";

const SUBNET: &str = "10.64.0.0/15";
const BASE: u32 = u32::from_be_bytes([10, 64, 0, 0]);
/// After the network address and the gateway.
const FIRST: u32 = 2;
/// Every hundredth address is free.
const HOLE_EVERY: u32 = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Range {
    /// A /15.
    Large,
    /// It ends where the leases do: 99 % are leased.
    NearlyFull,
}

/// The ranges of a configuration over a store of `count` leases.
pub(super) fn ranges(count: u32, range: Range) -> Value {
    match range {
        Range::Large => json!([[{ "subnet": SUBNET }]]),
        Range::NearlyFull => json!([[{
            "subnet": SUBNET,
            "rangeStart": address(0),
            // One address after the last, so that a small range has a free one.
            "rangeEnd": next(address(count.max(1) - 1)),
        }]]),
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "nothing reads the store before it is complete"
)]
pub(super) fn write(data_dir: &Path, count: u32) -> Result<()> {
    let dir = data_dir.join(NETWORK);
    let failed = || format!("write leases to {}", dir.display());
    fs::create_dir_all(&dir).with_context(failed)?;
    for nth in 0..count {
        let text = format!("{}\r\neth0", container(nth));
        fs::write(dir.join(address(nth).to_string()), text).with_context(failed)?;
    }
    if let Some(last) = count.checked_sub(1) {
        let text = address(last).to_string();
        fs::write(dir.join("last_reserved_ip.0"), text).with_context(failed)?;
    }
    Ok(())
}

fn address(nth: u32) -> Ipv4Addr {
    Ipv4Addr::from(BASE + FIRST + nth + nth / (HOLE_EVERY - 1))
}

fn next(address: Ipv4Addr) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(address) + 1)
}

/// As long as containerd's ids, and unordered.
fn container(nth: u32) -> String {
    let scattered = u64::from(nth).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    format!("{scattered:016x}{nth:048x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ninety_nine_of_a_hundred_addresses_are_leased() {
        let addresses: Vec<u32> = (0..10_000).map(|nth| address(nth).into()).collect();
        assert!(addresses.is_sorted_by(|a, b| a < b));
        let stretch = addresses[9_999] - addresses[0] + 1;
        assert_eq!((stretch, address(0)), (10_101, Ipv4Addr::new(10, 64, 0, 2)));
    }
}
