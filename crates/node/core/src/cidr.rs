//! Relations between prefixes.

use ipnet::IpNet;

/// Whether two prefixes share an address.
pub fn overlap(one: &IpNet, other: &IpNet) -> bool {
    one.contains(other) || other.contains(one)
}
