//! Lease stores of a given size, written as host-local writes them.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// All stores are of one network.
pub(super) const NETWORK: &str = "bench";

const SUBNET: &str = "10.64.0.0/15";
const BASE: u32 = u32::from_be_bytes([10, 64, 0, 0]);
/// Behind the network and the gateway.
const FIRST: u32 = 2;
/// Every so manieth address of the leased stretch is free.
const HOLE_EVERY: u32 = 100;

/// How much of the range is leased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// The range is a /15.
    Ample,
    /// The range ends where the leases do: 99 % are leased.
    Scarce,
}

/// The ranges of a configuration over a store of `count` leases.
pub(super) fn ranges(count: u32, room: Room) -> Value {
    match room {
        Room::Ample => json!([[{ "subnet": SUBNET }]]),
        Room::Scarce => json!([[{
            "subnet": SUBNET,
            "rangeStart": address(0),
            // One past the last, so that it isn't quite full even when it is small.
            "rangeEnd": next(address(count.max(1) - 1)),
        }]]),
    }
}

/// Writes `count` leases below `data_dir`.
#[expect(
    clippy::disallowed_methods,
    reason = "nobody looks at a store before all of it is written"
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

/// As long as containerd's, and in no order.
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
