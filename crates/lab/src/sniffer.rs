//! Sniffs all cables of a switch for packets that must be encrypted.
//!
//! A frame that the kernel dropped before it was inspected proves nothing, so a report with drops is a
//! failure. So is one without frames.

use std::collections::BTreeSet;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::sockopt::RxqOvfl;
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType,
    recvmsg, setsockopt, socket,
};
use rustix::net::sockopt;

use crate::frames::{Direction, EtherType, Ethernet, Frame, IpNumber, Mac};
use crate::netns::Netns;
use crate::node::Node;
use crate::raw_link::RawLink;
use crate::wait::eventually;

/// For frames that arrive while the thread is not scheduled.
const QUEUE_BYTES: usize = 256 << 20;
/// Enough for Ethernet, IPv6 and ports.
const HEAD_BYTES: usize = 96;
/// Tailnet addresses, which only the mesh carries.
const TAILNET: [IpNet; 2] = [
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(100, 64, 0, 0), 10)),
    IpNet::V6(Ipv6Net::new_assert(
        Ipv6Addr::new(0xfd7a, 0x115c, 0xa1e0, 0, 0, 0, 0, 0),
        48,
    )),
];
/// tailscaled probes a forwarding kernel with a packet from this address whose TTL expires. The kernel
/// answers by any route there is at that moment.
const PROBE_SOURCE: IpAddr = IpAddr::V4(Ipv4Addr::new(100, 100, 100, 100));
/// How many frames of a kind an error shows.
const MAX_SHOWN: usize = 20;
/// `ETH_P_802_EX1`: for experiments. A frame of this type ends the capture.
const END_MARK: EtherType = EtherType(0x88b5);
const TIMEOUT: Duration = Duration::from_secs(30);

/// Sees every frame on all links of a switch, later ones included.
#[derive(Debug)]
pub struct Sniffer {
    thread: Option<JoinHandle<Result<SnifferReport>>>,
    /// Where the end mark is sent.
    loopback: RawLink,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SnifferReport {
    pub frames: u64,
    /// By the kernel, because the queue was full.
    pub dropped: u32,
    /// The first frames whose outer IP header has an address of a pod or of the tailnet.
    pub clear: Vec<Frame>,
    /// Source and destination of packets to addresses outside the lab.
    pub strays: BTreeSet<(IpAddr, IpAddr)>,
}

impl Sniffer {
    /// `pods` are the CIDRs whose addresses must never be seen in clear, in addition to the tailnet's.
    pub fn start(switch: &Node, pods: &[IpNet]) -> Result<Self> {
        let open = || -> io::Result<OwnedFd> {
            // Not bound, so it gets the frames of all links.
            let socket = socket(
                AddressFamily::Packet,
                SockType::Raw,
                SockFlag::SOCK_CLOEXEC,
                SockProtocol::EthAll,
            )?;
            sockopt::set_socket_recv_buffer_size_force(&socket, QUEUE_BYTES)?;
            setsockopt(&socket, RxqOvfl, &1)?;
            Ok(socket)
        };
        let socket = switch
            .enter(open)?
            .with_context(|| format!("sniff the links of {}", switch.name()))?;
        let pods = pods.to_vec();
        Ok(Self {
            thread: Some(thread::spawn(move || sniff(&socket, &pods))),
            loopback: RawLink::open(switch, "lo")?,
        })
    }

    pub fn finish(mut self) -> Result<SnifferReport> {
        let thread = self.thread.take().context("finish is called once")?;
        // A full queue drops the mark as well, so it is sent repeatedly.
        eventually(TIMEOUT, "the sniffer has read all", || {
            let sent = self.send_end_mark();
            (sent.is_err() || thread.is_finished()).then_some(sent)
        })??;
        thread.join().map_err(|_| anyhow!("the sniffer panicked"))?
    }

    fn send_end_mark(&self) -> Result<()> {
        let mark = Ethernet::new(Mac::UNSPECIFIED, Mac::UNSPECIFIED).frame(END_MARK, &[0; 46]);
        self.loopback.send(&mark)
    }
}

impl Drop for Sniffer {
    fn drop(&mut self) {
        // Ends the thread, whose socket holds the netns.
        let _ = self.send_end_mark();
    }
}

impl SnifferReport {
    /// Fails if a packet of a pod or for a tailnet address was in clear, or if frames were missed.
    pub fn check_nothing_in_clear(&self) -> Result<()> {
        self.check_complete()?;
        if !self.clear.is_empty() {
            bail!(
                "packets of pods or for tailnet addresses crossed the underlay in clear: {:#?}",
                self.clear
            );
        }
        Ok(())
    }

    /// Fails if a packet was sent to an address outside the lab, or if frames were missed.
    pub fn check_no_strays(&self) -> Result<()> {
        self.check_complete()?;
        if !self.strays.is_empty() {
            bail!("packets to addresses outside the lab: {:?}", self.strays);
        }
        Ok(())
    }

    fn check_complete(&self) -> Result<()> {
        match (self.frames, self.dropped) {
            (0, _) => bail!("no frame was seen"),
            (_, 0) => Ok(()),
            (frames, dropped) => bail!("of {frames} frames, the kernel dropped {dropped}"),
        }
    }

    fn inspect(&mut self, frame: Frame, pods: &[IpNet]) {
        let (Some(source), Some(destination)) = (frame.ip_source(), frame.ip_destination()) else {
            return;
        };
        if is_answer_to_probe(&frame) {
            return;
        }
        let must_be_encrypted = |address: IpAddr| {
            let mut cidrs = pods.iter().chain(&TAILNET);
            cidrs.any(|prefix| prefix.contains(&address))
        };
        if (must_be_encrypted(source) || must_be_encrypted(destination))
            && self.clear.len() < MAX_SHOWN
        {
            self.clear.push(frame);
        }
        if !is_of_lab(destination) && self.strays.len() < MAX_SHOWN {
            self.strays.insert((source, destination));
        }
    }
}

fn is_answer_to_probe(frame: &Frame) -> bool {
    const TIME_EXCEEDED: u8 = 11;
    frame.ip_destination() == Some(PROBE_SOURCE)
        && frame.protocol() == Some(IpNumber::ICMP)
        && frame.icmp_type() == Some(TIME_EXCEEDED)
}

/// Whether an address is the underlay's, multicast or broadcast.
fn is_of_lab(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let [a, b, ..] = v4.octets();
            [(10, 99), (192, 168)].contains(&(a, b)) || v4.is_multicast() || v4.is_broadcast()
        }
        IpAddr::V6(v6) => {
            v6.segments()[0] == 0xfd99 || v6.is_multicast() || v6.is_unicast_link_local()
        }
    }
}

fn sniff(socket: &OwnedFd, pods: &[IpNet]) -> Result<SnifferReport> {
    // libc::PACKET_OUTGOING
    const OUTGOING: u8 = 4;
    // LOOPBACK_IFINDEX
    const LOOPBACK: usize = 1;
    let mut report = SnifferReport::default();
    let mut room = cmsg_space!(u32);
    let mut head = [0; HEAD_BYTES];
    loop {
        let mut parts = [IoSliceMut::new(&mut head)];
        let flags = MsgFlags::empty();
        let received = recvmsg::<LinkAddr>(socket.as_raw_fd(), &mut parts, Some(&mut room), flags);
        let message = match received {
            Err(Errno::EINTR) => continue,
            received => received.context("receive a frame")?,
        };
        // The number of drops since the socket was opened.
        let lost = |message| match message {
            ControlMessageOwned::RxqOvfl(lost) => Some(lost),
            _ => None,
        };
        let lost = message.cmsgs().ok().and_then(|mut all| all.find_map(lost));
        report.dropped = lost.unwrap_or(report.dropped);
        let address = message.address.context("a frame without its link")?;
        let length = message.bytes;
        let frame = Frame::new(&head[..length], Direction::In);
        if address.ifindex() == LOOPBACK {
            if frame.ether_type() == Some(END_MARK) {
                return Ok(report);
            }
        } else if address.pkttype() != OUTGOING {
            // Every frame that goes out by one link came in by another.
            report.frames += 1;
            report.inspect(frame, pods);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::Ipv4;

    #[test]
    fn a_report_with_drops_or_without_frames_is_a_failure() {
        let complete = SnifferReport {
            frames: 2,
            ..SnifferReport::default()
        };
        complete.check_nothing_in_clear().unwrap();
        complete.check_no_strays().unwrap();
        let with_drops = SnifferReport {
            dropped: 1,
            ..complete
        };
        for report in [with_drops, SnifferReport::default()] {
            report.check_nothing_in_clear().unwrap_err();
            report.check_no_strays().unwrap_err();
        }
    }

    #[test]
    fn packets_to_tailnet_addresses_are_in_clear_except_the_answer_to_a_probe() {
        let underlay = Ipv4Addr::new(10, 99, 0, 1);
        let message = |to: [u8; 4], kind: u8| {
            let message = [[kind, 0, 0, 0], [0; 4]].concat();
            let packet = Ipv4::new(underlay, to.into()).packet(IpNumber::ICMP, &message);
            Ethernet::new(Mac::UNSPECIFIED, Mac::UNSPECIFIED).ipv4(&packet)
        };
        let (resolver, echo, time_exceeded) = ([100, 100, 100, 100], 8, 11);
        for (to, kind, is_clear) in [
            ([10, 99, 0, 2], echo, false),
            ([100, 64, 0, 2], echo, true),
            ([100, 64, 0, 2], time_exceeded, true),
            (resolver, echo, true),
            (resolver, time_exceeded, false),
        ] {
            let mut report = SnifferReport::default();
            report.inspect(Frame::new(message(to, kind), Direction::In), &[]);
            assert_eq!(!report.clear.is_empty(), is_clear, "{to:?} {kind}");
        }
    }

    #[test]
    fn underlay_and_multicast_addresses_are_in_the_lab() {
        let is_of_lab = |address: &str| is_of_lab(address.parse().unwrap());
        for known in [
            "10.99.0.254",
            "192.168.11.2",
            "224.0.0.22",
            "255.255.255.255",
        ] {
            assert!(is_of_lab(known), "{known}");
        }
        for known in ["fd99::c", "fe80::1", "ff02::fb"] {
            assert!(is_of_lab(known), "{known}");
        }
        for strange in [
            "10.98.0.1",
            "100.64.0.1",
            "8.8.8.8",
            "fd98::1",
            "2001:db8::1",
        ] {
            assert!(!is_of_lab(strange), "{strange}");
        }
    }
}
