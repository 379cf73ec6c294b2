//! What lies in packets of both families: checksums, UDP and TCP.

/// The protocol in a packet.
///
/// <https://www.iana.org/assignments/protocol-numbers>
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Protocol(pub u8);

impl Protocol {
    /// `IPPROTO_ICMP`
    pub const ICMP: Self = Self(1);
    /// `IPPROTO_TCP`
    pub const TCP: Self = Self(6);
    /// `IPPROTO_UDP`
    pub const UDP: Self = Self(17);
    /// `IPPROTO_ICMPV6`
    pub const ICMPV6: Self = Self(58);
}

/// The internet checksum over all parts, each but the last of even length.
///
/// <https://www.rfc-editor.org/rfc/rfc1071>
pub(super) fn checksum(parts: &[&[u8]]) -> [u8; 2] {
    let mut sum: u64 = 0;
    for word in parts.iter().flat_map(|part| part.chunks(2)) {
        let low = word.get(1).copied().unwrap_or_default();
        sum += u64::from(u16::from_be_bytes([word[0], low]));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let [.., high, low] = sum.to_be_bytes();
    [!high, !low]
}

/// A UDP datagram with its checksum still zero.
pub(super) fn udp(source: u16, destination: u16, payload: &[u8]) -> Vec<u8> {
    let length = length16(payload.len() + 8);
    let ports = [source.to_be_bytes(), destination.to_be_bytes()].concat();
    [&ports[..], &length, &[0, 0], payload].concat()
}

/// The first segment of a TCP connection, with its checksum still zero.
pub(super) fn tcp_syn(source: u16, destination: u16) -> Vec<u8> {
    const SYN: u8 = 2;
    const HEADER_WORDS: u8 = 5;
    let mut bytes = [source.to_be_bytes(), destination.to_be_bytes()].concat();
    bytes.extend(1u32.to_be_bytes()); // sequence
    bytes.extend(0u32.to_be_bytes()); // acknowledgement
    bytes.extend([HEADER_WORDS << 4, SYN]);
    bytes.extend(u16::MAX.to_be_bytes()); // window
    bytes.extend([0; 4]); // checksum, urgent pointer
    bytes
}

/// Puts the checksum of `segment` in its place, with the packet's pseudo header in front.
pub(super) fn seal(protocol: Protocol, pseudo: &[u8], segment: &mut [u8]) {
    let place = match protocol {
        Protocol::TCP => 16,
        Protocol::UDP => 6,
        Protocol::ICMP | Protocol::ICMPV6 => 2,
        Protocol(other) => unreachable!("protocol {other} is not made here"),
    };
    let mut sum = checksum(&[pseudo, segment]);
    // Zero means "none" in UDP: https://www.rfc-editor.org/rfc/rfc768
    if protocol == Protocol::UDP && sum == [0, 0] {
        sum = [0xff, 0xff];
    }
    segment[place..place + 2].copy_from_slice(&sum);
}

/// A length as headers have it.
///
/// # Panics
///
/// If it is too long for a packet.
pub(super) fn length16(bytes: usize) -> [u8; 2] {
    u16::try_from(bytes)
        .expect("a packet has at most 65535 bytes")
        .to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_the_rfc() {
        // The example of RFC 1071, section 3.
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(checksum(&[&bytes]), (!0xddf2u16).to_be_bytes());
    }

    #[test]
    fn an_odd_byte_at_the_end_is_a_high_one() {
        assert_eq!(checksum(&[&[0, 1], &[2]]), (!0x0201u16).to_be_bytes());
    }

    #[test]
    fn what_is_sealed_sums_up_to_zero() {
        let mut segment = udp(1, 2, b"odd");
        seal(Protocol::UDP, &[1, 2, 3, 4], &mut segment);
        assert_eq!(checksum(&[&[1, 2, 3, 4], &segment]), [0, 0]);
    }
}
