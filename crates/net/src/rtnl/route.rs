//! Routes.

use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;

use crate::netlink::{
    AF_INET, Batch, Message, Writer, attribute, attributes, family_of, flag, ip_of, octets, u32_of,
};
use crate::{NetError, Socket};

const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;
const RTM_GETROUTE: u16 = 26;

/// `RTA_*` and `RTAX_*`, `include/uapi/linux/rtnetlink.h`.
mod rta {
    pub(super) const DST: u16 = 1;
    pub(super) const OIF: u16 = 4;
    pub(super) const GATEWAY: u16 = 5;
    pub(super) const PRIORITY: u16 = 6;
    pub(super) const PREFSRC: u16 = 7;
    pub(super) const METRICS: u16 = 8;
    pub(super) const TABLE: u16 = 15;
    pub(super) const EXPIRES: u16 = 23;
    pub(super) const METRIC_MTU: u16 = 2;
    pub(super) const METRIC_ADVMSS: u16 = 8;
}

/// The protocol number of our routes and rules, which `ip route` shows. No other program has it:
/// `include/uapi/linux/rtnetlink.h`.
pub const PROTO_HEADCNI: u8 = 104;
/// `RTPROT_RA`: routes from router advertisements.
pub const PROTO_RA: u8 = 9;
/// `RT_TABLE_MAIN`
pub const TABLE_MAIN: u32 = 254;
const RT_SCOPE_UNIVERSE: u8 = 0;
const RT_SCOPE_LINK: u8 = 253;
const RTN_UNICAST: u8 = 1;
const RTN_LOCAL: u8 = 2;
const RTN_UNREACHABLE: u8 = 7;
const TABLE_LOCAL: u32 = 255;
/// The gateway needs no route of its own.
const RTNH_F_ONLINK: u32 = 4;
/// A cached entry, not a route.
const RTM_F_CLONED: u32 = 0x200;

const EARLY_METRIC: u32 = 5;
const EARLY_SECONDS: u32 = 60;

/// What a route does with packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteKind {
    /// Forward by a link, to a next hop if there is one.
    Via {
        /// Interface index.
        link: u32,
        /// Next hop.
        gateway: Option<IpAddr>,
    },
    /// Deliver to this machine.
    Local {
        /// Index of the interface that has the address.
        link: u32,
    },
    /// Reject with ICMP unreachable.
    Unreachable,
}

impl RouteKind {
    fn link(self) -> Option<u32> {
        match self {
            Self::Via { link, .. } | Self::Local { link } => Some(link),
            Self::Unreachable => None,
        }
    }

    fn gateway(self) -> Option<IpAddr> {
        match self {
            Self::Via { gateway, .. } => gateway,
            Self::Local { .. } | Self::Unreachable => None,
        }
    }
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Destination.
    pub dst: IpNet,
    /// What it does with packets.
    pub kind: RouteKind,
    /// Routing table.
    pub table: u32,
    /// `RTPROT_*`, or a number of one's own.
    pub protocol: u8,
    /// Smaller is better. `None`: the kernel's default.
    pub metric: Option<u32>,
    /// Preferred source address; must be an address of this machine.
    pub source: Option<IpAddr>,
    /// `RT_SCOPE_*`. `None`: universe with a gateway, link without.
    pub scope: Option<u8>,
    /// Path MTU, in bytes.
    pub mtu: Option<u32>,
    /// TCP segment size to announce, in bytes.
    pub advmss: Option<u32>,
    /// Lifetime in seconds; IPv6 only.
    pub expires: Option<u32>,
}

impl Route {
    /// A route in table `main`, without options.
    pub fn new(dst: IpNet, kind: RouteKind, protocol: u8) -> Self {
        Self {
            dst,
            kind,
            table: TABLE_MAIN,
            protocol,
            metric: None,
            source: None,
            scope: None,
            mtu: None,
            advmss: None,
            expires: None,
        }
    }

    /// Makes a new IPv6 address of a link usable at once.
    ///
    /// The kernel adds the local route later, even without duplicate address detection. This one
    /// expires, and has the worse metric until then.
    pub fn early_local(address: Ipv6Addr, link: u32, protocol: u8) -> Self {
        let dst = IpAddr::from(address).into();
        Self {
            table: TABLE_LOCAL,
            metric: Some(EARLY_METRIC),
            expires: Some(EARLY_SECONDS),
            ..Self::new(dst, RouteKind::Local { link }, protocol)
        }
    }

    /// Adds the route; `EEXIST` if there is one with the same destination, table and metric.
    pub fn add_to(&self, batch: &mut Batch) {
        let attempt = format!("add route to {}", self.dst);
        let flags = flag::CREATE | flag::EXCL;
        batch.add(RTM_NEWROUTE, flags, attempt, |message| self.write(message));
    }

    /// Adds the route, or replaces the one with the same destination, table and metric.
    pub fn replace_in(&self, batch: &mut Batch) {
        let attempt = format!("replace route to {}", self.dst);
        let flags = flag::CREATE | flag::REPLACE;
        batch.add(RTM_NEWROUTE, flags, attempt, |message| self.write(message));
    }

    /// Adds the route next to others with the same destination.
    pub fn append_in(&self, batch: &mut Batch) {
        let attempt = format!("append route to {}", self.dst);
        let flags = flag::CREATE | flag::APPEND;
        batch.add(RTM_NEWROUTE, flags, attempt, |message| self.write(message));
    }

    /// Removes the route with the same destination, table, kind, protocol and, if given, metric;
    /// `ESRCH` if there is none.
    pub fn remove_in(&self, batch: &mut Batch) {
        let attempt = format!("remove route to {}", self.dst);
        batch.add(RTM_DELROUTE, 0, attempt, |message| self.write(message));
    }

    /// `struct rtmsg` and attributes.
    fn write(&self, message: &mut Writer<'_>) {
        let gateway = self.kind.gateway();
        let (kind, default_scope) = match self.kind {
            RouteKind::Via { gateway: None, .. } => (RTN_UNICAST, RT_SCOPE_LINK),
            RouteKind::Via { .. } => (RTN_UNICAST, RT_SCOPE_UNIVERSE),
            RouteKind::Local { .. } => (RTN_LOCAL, RT_SCOPE_UNIVERSE),
            RouteKind::Unreachable => (RTN_UNREACHABLE, RT_SCOPE_UNIVERSE),
        };
        let scope = self.scope.unwrap_or(default_scope);
        let flags = if gateway.is_some() { RTNH_F_ONLINK } else { 0 };
        let family = family_of(self.dst.addr());
        let table = u8::try_from(self.table).unwrap_or(0);
        message.fixed(&[
            family,
            self.dst.prefix_len(),
            0,
            0,
            table,
            self.protocol,
            scope,
            kind,
        ]);
        message.fixed(&flags.to_ne_bytes());
        message.attribute(rta::DST, &octets(self.dst.network()));
        if let Some(link) = self.kind.link() {
            message.u32(rta::OIF, link);
        }
        if let Some(gateway) = gateway {
            message.attribute(rta::GATEWAY, &octets(gateway));
        }
        if let Some(metric) = self.metric {
            message.u32(rta::PRIORITY, metric);
        }
        if let Some(source) = self.source {
            message.attribute(rta::PREFSRC, &octets(source));
        }
        message.u32(rta::TABLE, self.table);
        if let Some(seconds) = self.expires {
            message.u32(rta::EXPIRES, seconds);
        }
        if self.mtu.is_some() || self.advmss.is_some() {
            message.nest(rta::METRICS, |metrics| {
                if let Some(mtu) = self.mtu {
                    metrics.u32(rta::METRIC_MTU, mtu);
                }
                if let Some(advmss) = self.advmss {
                    metrics.u32(rta::METRIC_ADVMSS, advmss);
                }
            });
        }
    }
}

/// All routes of all tables with one next hop, local ones and unreachable ones.
pub fn routes(socket: &Socket) -> Result<Vec<Route>, NetError> {
    socket.dump(
        RTM_GETROUTE,
        "list routes",
        |message| message.fixed(&[0; 12]),
        read,
    )
}

fn read(message: &Message<'_>) -> Option<Route> {
    let header = message.payload.get(..12)?;
    let attrs = &message.payload[12..];
    if u32_of(&header[8..])? & RTM_F_CLONED != 0 {
        return None;
    }
    let zero: IpAddr = match header[0] {
        AF_INET => [0; 4].into(),
        _ => [0; 16].into(),
    };
    let mut route = Route::new(IpNet::new(zero, 0).ok()?, RouteKind::Unreachable, header[5]);
    route.scope = Some(header[6]);
    route.table = header[4].into();
    let (mut dst, mut link, mut gateway) = (zero, None, None);
    for (kind, payload) in attributes(attrs) {
        match kind {
            rta::DST => dst = ip_of(payload)?,
            rta::OIF => link = u32_of(payload),
            rta::GATEWAY => gateway = ip_of(payload),
            rta::PRIORITY => route.metric = u32_of(payload),
            rta::PREFSRC => route.source = ip_of(payload),
            rta::TABLE => route.table = u32_of(payload)?,
            rta::METRICS => {
                route.mtu = attribute(payload, rta::METRIC_MTU).and_then(u32_of);
                route.advmss = attribute(payload, rta::METRIC_ADVMSS).and_then(u32_of);
            }
            _ => {}
        }
    }
    route.dst = IpNet::new(dst, header[1]).ok()?;
    route.kind = match header[7] {
        RTN_UNICAST => RouteKind::Via {
            link: link?,
            gateway,
        },
        RTN_LOCAL => RouteKind::Local { link: link? },
        RTN_UNREACHABLE => RouteKind::Unreachable,
        _ => return None,
    };
    Some(route)
}
