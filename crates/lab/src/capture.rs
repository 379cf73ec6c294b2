//! Captures the frames of a link.

use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::sys::socket::{LinkAddr, recvfrom};
use rustix::net::sockopt::{self, Timeout};

use crate::frames::{Direction, Frame};
use crate::netns::Netns;
use crate::raw_link::packet_socket;

/// veth passes segments that hardware would have split.
const MAX_FRAME_BYTES: usize = 1 << 17;
const QUEUE_BYTES: usize = 8 << 20;
/// How long after its deadline a capture still reads queued frames.
const BACKLOG: Duration = Duration::from_secs(1);
/// How many frames an error shows.
const MAX_SHOWN: usize = 20;

/// All frames that pass a link in both directions.
///
/// The kernel shows ingress frames before netfilter drops them, and egress frames after it. To see
/// whether a packet was forwarded, capture where it would leave.
#[derive(Debug)]
pub struct Capture {
    socket: OwnedFd,
    link: String,
    index: usize,
}

impl Capture {
    /// Frames are queued from now on.
    pub fn start(place: &impl Netns, link: &str) -> Result<Self> {
        let (socket, address) = packet_socket(place, link)?;
        sockopt::set_socket_recv_buffer_size_force(&socket, QUEUE_BYTES)
            .context("set the receive buffer")?;
        Ok(Self {
            socket,
            link: link.to_owned(),
            index: address.ifindex(),
        })
    }

    /// Waits for a frame that is `wanted`. The error shows the frames that came instead.
    pub fn first(&mut self, deadline: Duration, wanted: impl Fn(&Frame) -> bool) -> Result<Frame> {
        let mut frames = self.until(deadline, wanted)?;
        frames.pop().context("the last frame is the wanted one")
    }

    /// All frames up to and including the first for which `is_last` holds.
    ///
    /// To prove that a frame is dropped: send it, then send a frame that is not, and check all frames that
    /// came before that one.
    pub fn until(
        &mut self,
        deadline: Duration,
        is_last: impl Fn(&Frame) -> bool,
    ) -> Result<Vec<Frame>> {
        let end = Instant::now() + deadline;
        let mut frames = Vec::new();
        while let Some(frame) = self.next(end)? {
            let found = is_last(&frame);
            frames.push(frame);
            if found {
                return Ok(frames);
            }
        }
        let (link, count) = (&self.link, frames.len());
        frames.truncate(MAX_SHOWN);
        bail!("no such frame on {link} within {deadline:?}, but {count} others: {frames:#?}")
    }

    /// The `wanted` frames of a period. It always takes that long: prefer [`until`](Self::until).
    pub fn within(
        &mut self,
        wait: Duration,
        wanted: impl Fn(&Frame) -> bool,
    ) -> Result<Vec<Frame>> {
        let end = Instant::now() + wait;
        let mut frames = Vec::new();
        while let Some(frame) = self.next(end)? {
            if wanted(&frame) {
                frames.push(frame);
            }
        }
        Ok(frames)
    }

    /// The next frame until `end`, or one that was queued by then.
    fn next(&mut self, end: Instant) -> Result<Option<Frame>> {
        // libc::PACKET_OUTGOING
        const OUTGOING: u8 = 4;
        let mut buffer = vec![0; MAX_FRAME_BYTES];
        loop {
            let now = Instant::now();
            if now > end + BACKLOG {
                return Ok(None);
            }
            // Zero would mean for ever.
            let left = end.saturating_duration_since(now);
            let left = left.max(Duration::from_millis(1));
            sockopt::set_socket_timeout(&self.socket, Timeout::Recv, Some(left))
                .context("set a time limit")?;
            let (length, address) = match recvfrom::<LinkAddr>(self.socket.as_raw_fd(), &mut buffer)
            {
                Ok(received) => received,
                Err(Errno::EAGAIN) => return Ok(None),
                // A link that went down is reported once; queued frames remain.
                Err(Errno::EINTR | Errno::ENETDOWN) => continue,
                Err(error) => {
                    return Err(error).with_context(|| format!("watch {}", self.link));
                }
            };
            let address = address.context("a frame without the link that it came by")?;
            // From before the socket was bound to its link, it may have others' frames.
            if address.ifindex() != self.index {
                continue;
            }
            let direction = match address.pkttype() {
                OUTGOING => Direction::Out,
                _ => Direction::In,
            };
            return Ok(Some(Frame::new(&buffer[..length], direction)));
        }
    }
}
