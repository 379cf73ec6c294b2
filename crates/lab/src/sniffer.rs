//! Watching a whole switch for what must never be on its wires.
//!
//! A frame that is not looked at proves nothing, so what the kernel had to drop is counted, too, and
//! an account with anything dropped counts as a failure. So does one of no frames at all.

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

use crate::frames::{Direction, EtherType, Ethernet, Frame, Mac, Protocol};
use crate::netns::Netns;
use crate::node::Node;
use crate::raw_link::RawLink;
use crate::wait::eventually;

/// Room for what comes while the watching thread does not get to run.
const QUEUE_BYTES: usize = 256 << 20;
/// All that is read of a frame: Ethernet, IPv6 and ports.
const HEAD_BYTES: usize = 96;
/// What members of a mesh have as addresses, which go by the mesh only.
const TAILNET: [IpNet; 2] = [
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(100, 64, 0, 0), 10)),
    IpNet::V6(Ipv6Net::new_assert(
        Ipv6Addr::new(0xfd7a, 0x115c, 0xa1e0, 0, 0, 0, 0, 0),
        48,
    )),
];
/// When a tailscaled starts, it sends itself a packet from here whose time is over: a kernel that
/// forwards says so, by whatever route there is at that moment.
const PROBED: IpAddr = IpAddr::V4(Ipv4Addr::new(100, 100, 100, 100));
/// How many frames of a kind are kept to be shown.
const KEPT: usize = 20;
/// `ETH_P_802_EX1`: for experiments. What comes before this is what was asked for.
const MARK: EtherType = EtherType(0x88b5);
const PATIENCE: Duration = Duration::from_secs(30);

/// One that sees every frame on all links of a switch, those plugged in later as well.
#[derive(Debug)]
pub struct Sniffer {
    watching: Option<JoinHandle<Result<Account>>>,
    /// Gets the mark that ends it.
    loopback: RawLink,
}

/// What a [`Sniffer`] saw.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Account {
    /// How many frames came in by any link.
    pub frames: u64,
    /// How many of them the kernel did not show for want of room.
    pub dropped: u32,
    /// The first frames with the address of a pod or a member of the mesh in their outer IP header. ARP has no such header.
    pub clear: Vec<Frame>,
    /// Pairs of source and destination where the destination is not of the lab.
    pub strays: BTreeSet<(IpAddr, IpAddr)>,
}

impl Sniffer {
    /// Begins to watch. `pods` are the prefixes whose addresses must only be seen by those who can
    /// decrypt, beside those of the mesh's members.
    pub fn start(switch: &Node, pods: &[IpNet]) -> Result<Self> {
        let open = || -> io::Result<OwnedFd> {
            // Bound to no link: it gets the frames of all.
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
            .with_context(|| format!("watch the links of {}", switch.name()))?;
        let pods = pods.to_vec();
        Ok(Self {
            watching: Some(thread::spawn(move || watch(&socket, &pods))),
            loopback: RawLink::open(switch, "lo")?,
        })
    }

    /// Ends it and tells what it saw until now.
    pub fn end(mut self) -> Result<Account> {
        let watching = self.watching.take().context("it ends but once")?;
        // A full queue drops the mark as it drops other frames, hence again and again.
        eventually(PATIENCE, "the sniffer has read all", || {
            let sent = self.mark();
            (sent.is_err() || watching.is_finished()).then_some(sent)
        })??;
        watching
            .join()
            .map_err(|_| anyhow!("the sniffer panicked"))?
    }

    fn mark(&self) -> Result<()> {
        let mark = Ethernet::new(Mac::UNSPECIFIED, Mac::UNSPECIFIED).frame(MARK, &[0; 46]);
        self.loopback.send(&mark)
    }
}

impl Drop for Sniffer {
    fn drop(&mut self) {
        // Ends the thread, whose socket holds the namespace. Nobody waits for what it saw.
        let _ = self.mark();
    }
}

impl Account {
    /// Fails if anything of a pod, or for a member, was to be seen, or if something may have been missed.
    pub fn check_nothing_in_clear(&self) -> Result<()> {
        self.check_complete()?;
        if !self.clear.is_empty() {
            bail!(
                "packets of pods or for members crossed the underlay in clear: {:#?}",
                self.clear
            );
        }
        Ok(())
    }

    /// Fails if anybody tried to talk to somebody outside the lab.
    pub fn check_no_strays(&self) -> Result<()> {
        self.check_complete()?;
        if !self.strays.is_empty() {
            bail!("packets to strangers: {:?}", self.strays);
        }
        Ok(())
    }

    fn check_complete(&self) -> Result<()> {
        match (self.frames, self.dropped) {
            (0, _) => bail!("not one frame was seen"),
            (_, 0) => Ok(()),
            (frames, dropped) => bail!("of {frames} frames, {dropped} were not looked at"),
        }
    }

    fn note(&mut self, frame: Frame, pods: &[IpNet]) {
        let (Some(source), Some(destination)) = (frame.ip_source(), frame.ip_destination()) else {
            return;
        };
        if is_answer_to_probe(&frame) {
            return;
        }
        let is_hidden = |address: IpAddr| {
            let mut hidden = pods.iter().chain(&TAILNET);
            hidden.any(|prefix| prefix.contains(&address))
        };
        if (is_hidden(source) || is_hidden(destination)) && self.clear.len() < KEPT {
            self.clear.push(frame);
        }
        if !is_of_lab(destination) && self.strays.len() < KEPT {
            self.strays.insert((source, destination));
        }
    }
}

fn is_answer_to_probe(frame: &Frame) -> bool {
    const TIME_EXCEEDED: u8 = 11;
    frame.ip_destination() == Some(PROBED)
        && frame.protocol() == Some(Protocol::ICMP)
        && frame.icmp_type() == Some(TIME_EXCEEDED)
}

/// Whether an address is one of the underlay's, or of those that mean all on a link.
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

fn watch(socket: &OwnedFd, pods: &[IpNet]) -> Result<Account> {
    // libc::PACKET_OUTGOING
    const OUTGOING: u8 = 4;
    // LOOPBACK_IFINDEX: every namespace's first link.
    const LOOPBACK: usize = 1;
    let mut account = Account::default();
    let mut room = cmsg_space!(u32);
    let mut head = [0; HEAD_BYTES];
    loop {
        let mut parts = [IoSliceMut::new(&mut head)];
        let flags = MsgFlags::empty();
        let received = recvmsg::<LinkAddr>(socket.as_raw_fd(), &mut parts, Some(&mut room), flags);
        let message = match received {
            Err(Errno::EINTR) => continue,
            received => received.context("watch a switch")?,
        };
        // How many were lost before this one, since the beginning.
        let lost = |message| match message {
            ControlMessageOwned::RxqOvfl(lost) => Some(lost),
            _ => None,
        };
        let lost = message.cmsgs().ok().and_then(|mut all| all.find_map(lost));
        account.dropped = lost.unwrap_or(account.dropped);
        let address = message
            .address
            .context("a frame without the link that it came by")?;
        let length = message.bytes;
        let frame = Frame::new(&head[..length], Direction::In);
        if address.ifindex() == LOOPBACK {
            if frame.ether_type() == Some(MARK) {
                return Ok(account);
            }
        } else if address.pkttype() != OUTGOING {
            // What goes out by one link came in by another.
            account.frames += 1;
            account.note(frame, pods);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::Ipv4;

    #[test]
    fn an_account_that_misses_something_proves_nothing() {
        let whole = Account {
            frames: 2,
            ..Account::default()
        };
        whole.check_nothing_in_clear().unwrap();
        whole.check_no_strays().unwrap();
        let blind = Account {
            dropped: 1,
            ..whole
        };
        for account in [blind, Account::default()] {
            account.check_nothing_in_clear().unwrap_err();
            account.check_no_strays().unwrap_err();
        }
    }

    #[test]
    fn what_is_for_a_member_of_the_mesh_is_in_clear_but_for_the_answer_to_a_probe() {
        let underlay = Ipv4Addr::new(10, 99, 0, 1);
        let message = |to: [u8; 4], kind: u8| {
            let message = [[kind, 0, 0, 0], [0; 4]].concat();
            let packet = Ipv4::new(underlay, to.into()).packet(Protocol::ICMP, &message);
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
            let mut account = Account::default();
            account.note(Frame::new(message(to, kind), Direction::In), &[]);
            assert_eq!(!account.clear.is_empty(), is_clear, "{to:?} {kind}");
        }
    }

    #[test]
    fn those_on_the_underlay_and_all_on_a_link_are_no_strangers() {
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
