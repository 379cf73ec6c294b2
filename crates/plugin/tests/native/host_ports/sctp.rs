//! SCTP, by frames made by hand: few kernels have its sockets, all can lead it to a pod.

use std::time::Duration;

use lab::frames::{Ethernet, Frame, IpNumber, Ipv4};
use lab::{Capture, RawLink};

use super::{Site, UPLINK, mapping, publishing};
use crate::networks::{ip, ipv4};

const SCTP: IpNumber = IpNumber(132);

/// CRC-32C, which SCTP has for a checksum: RFC 9260, appendix A.
fn checksum(bytes: &[u8]) -> u32 {
    let mut sum = u32::MAX;
    for &byte in bytes {
        sum ^= u32::from(byte);
        for _ in 0..8 {
            let polynomial = if sum & 1 == 1 { 0x82f6_3b78 } else { 0 };
            sum = (sum >> 1) ^ polynomial;
        }
    }
    !sum
}

/// The first packet of an association: RFC 9260, section 3.3.2.
fn init(source: u16, destination: u16) -> Vec<u8> {
    let mut packet = [source.to_be_bytes(), destination.to_be_bytes()].concat();
    // No tag yet, no checksum yet; INIT of 20 bytes; its tag, window, streams, first number.
    packet.extend([0; 8]);
    packet.extend([1, 0, 0, 20]);
    packet.extend([0, 0, 0, 7, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1]);
    let sum = checksum(&packet).to_le_bytes();
    packet[8..12].copy_from_slice(&sum);
    packet
}

#[test]
fn an_sctp_port_leads_to_the_pod() {
    let site = Site::new();
    let conf = publishing(ipv4(), &[mapping("sctp", 3868, 868)]);
    let (pod, result) = site.plugin.attached("server", &conf);
    let mut seen = Capture::start(&pod, "eth0").unwrap();
    let link = RawLink::open(&site.neighbour, UPLINK).unwrap();
    let to = RawLink::open(&site.plugin.node, UPLINK).unwrap().mac();
    let packet =
        Ipv4::new([192, 0, 2, 2].into(), [192, 0, 2, 1].into()).packet(SCTP, &init(40000, 3868));
    link.send(&Ethernet::new(link.mac(), to).ipv4(&packet))
        .unwrap();
    let is_sctp = |frame: &Frame| frame.protocol() == Some(SCTP);
    let frame = seen.first(Duration::from_secs(5), is_sctp).unwrap();
    let destination = frame.ip_destination().unwrap();
    assert_eq!(destination.to_string(), ip(&result, 0));
    // As made by the client, but for the port; the node has put the checksum right.
    assert_eq!(frame.ip_payload().unwrap()[..32], init(40000, 868));
}
