//! Connection tracking entries (flows).
//!
//! Constants: `include/uapi/linux/netfilter/nfnetlink_conntrack.h`.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use rustix::io::Errno;

use crate::netlink::{AF_INET, AF_INET6, Batch, Message, Writer, attribute, family_of, ip_of};
use crate::{NetError, Socket};

/// `NFNL_SUBSYS_CTNETLINK`
const SUBSYSTEM: u16 = 1;
const IPCTNL_MSG_CT_GET: u16 = SUBSYSTEM << 8 | 1;
const IPCTNL_MSG_CT_DELETE: u16 = SUBSYSTEM << 8 | 2;
const CTA_TUPLE_ORIG: u16 = 1;
const CTA_ID: u16 = 12;
const CTA_ZONE: u16 = 18;
const CTA_FILTER: u16 = 25;
const CTA_TUPLE_IP: u16 = 1;
const CTA_TUPLE_PROTO: u16 = 2;
const CTA_IP_V4_DST: u16 = 2;
const CTA_IP_V6_DST: u16 = 4;
const CTA_PROTO_NUM: u16 = 1;
const CTA_PROTO_DST_PORT: u16 = 3;
const CTA_FILTER_ORIG_FLAGS: u16 = 1;
const CTA_FILTER_REPLY_FLAGS: u16 = 2;
/// Parts of a tuple to compare,
/// <https://elixir.bootlin.com/linux/v6.12/source/net/netfilter/nf_internals.h>
const CTA_FILTER_F_CTA_PROTO_NUM: u32 = 1 << 3;
const CTA_FILTER_F_CTA_PROTO_DST_PORT: u32 = 1 << 5;
const IPPROTO_UDP: u8 = 17;
/// `struct nfgenmsg`
const HEADER_LEN: usize = 4;
/// The replies to so many fit into the receive buffer of the socket.
const DELETIONS_PER_BATCH: usize = 64;

/// Deletes the UDP flows whose first packet went to one of these destinations; returns how many there
/// were.
pub fn delete_udp(socket: &Socket, destinations: &BTreeSet<SocketAddr>) -> Result<usize, NetError> {
    let mut deleted = 0;
    for family in [AF_INET, AF_INET6] {
        let mut of_family = destinations
            .iter()
            .filter(|to| family_of(to.ip()) == family);
        let Some(first) = of_family.next() else {
            continue;
        };
        let only_port = of_family
            .all(|to| to.port() == first.port())
            .then_some(first.port());
        let flows = flows(socket, family, only_port, destinations)?;
        for some in flows.chunks(DELETIONS_PER_BATCH) {
            let mut batch = Batch::new();
            for flow in some {
                flow.delete_in(family, &mut batch);
            }
            socket.send(batch)?;
        }
        deleted += flows.len();
    }
    Ok(deleted)
}

/// What identifies a flow.
#[derive(Debug, PartialEq, Eq)]
struct Flow {
    to: SocketAddr,
    /// As the kernel wrote it.
    original: Vec<u8>,
    zone: Option<Vec<u8>>,
    /// Differs from that of a later flow with the same addresses.
    id: Option<Vec<u8>>,
}

impl Flow {
    fn read(message: &Message<'_>) -> Option<Self> {
        let attrs = message.payload.get(HEADER_LEN..)?;
        let original = attribute(attrs, CTA_TUPLE_ORIG)?;
        let protocol = attribute(original, CTA_TUPLE_PROTO)?;
        if attribute(protocol, CTA_PROTO_NUM)? != [IPPROTO_UDP] {
            return None;
        }
        let addresses = attribute(original, CTA_TUPLE_IP)?;
        let address =
            attribute(addresses, CTA_IP_V4_DST).or_else(|| attribute(addresses, CTA_IP_V6_DST))?;
        let port = attribute(protocol, CTA_PROTO_DST_PORT)?.try_into().ok()?;
        Some(Self {
            to: SocketAddr::new(ip_of(address)?, u16::from_be_bytes(port)),
            original: original.to_vec(),
            zone: attribute(attrs, CTA_ZONE).map(<[u8]>::to_vec),
            id: attribute(attrs, CTA_ID).map(<[u8]>::to_vec),
        })
    }

    /// Deletes it, if it still exists.
    fn delete_in(&self, family: u8, batch: &mut Batch) {
        let attempt = format!("delete a UDP flow to {}", self.to);
        // Without the tuple, the kernel would delete all flows.
        batch.add(IPCTNL_MSG_CT_DELETE, 0, attempt, |message| {
            message.fixed(&[family, 0, 0, 0]);
            message.nest(CTA_TUPLE_ORIG, |tuple| tuple.fixed(&self.original));
            if let Some(zone) = &self.zone {
                message.attribute(CTA_ZONE, zone);
            }
            if let Some(id) = &self.id {
                message.attribute(CTA_ID, id);
            }
        });
        batch.tolerating(&[Errno::NOENT]);
    }
}

/// The UDP flows of this family to one of these destinations.
fn flows(
    socket: &Socket,
    family: u8,
    only_port: Option<u16>,
    wanted: &BTreeSet<SocketAddr>,
) -> Result<Vec<Flow>, NetError> {
    socket.dump(
        IPCTNL_MSG_CT_GET,
        "list UDP flows",
        |message| {
            message.fixed(&[family, 0, 0, 0]);
            write_filter(message, only_port);
        },
        |message| Flow::read(message).filter(|flow| wanted.contains(&flow.to)),
    )
}

/// Lists only UDP flows, of one port if it is known. Linux before 5.8 ignores the filter and lists all.
fn write_filter(message: &mut Writer<'_>, only_port: Option<u16>) {
    let mut flags = CTA_FILTER_F_CTA_PROTO_NUM;
    message.nest(CTA_TUPLE_ORIG, |tuple| {
        tuple.nest(CTA_TUPLE_PROTO, |protocol| {
            protocol.u8(CTA_PROTO_NUM, IPPROTO_UDP);
            if let Some(port) = only_port {
                flags |= CTA_FILTER_F_CTA_PROTO_DST_PORT;
                protocol.u16_be(CTA_PROTO_DST_PORT, port);
            }
        });
    });
    message.nest(CTA_FILTER, |filter| {
        filter.u32(CTA_FILTER_ORIG_FLAGS, flags);
        filter.u32(CTA_FILTER_REPLY_FLAGS, 0);
    });
}
