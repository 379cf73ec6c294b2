//! Small questions: is it there, who is that, is the host set up well?

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use hyper::StatusCode;
use serde_json::Value;

use super::LocalApi;
use super::error::{Error, clean};
use super::lenient::Fields;
use super::transport::Call;

/// How far a ping goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PingKind {
    /// From tailscaled to tailscaled, below WireGuard: finds the direct way.
    Disco,
    /// From tailscaled to tailscaled, through WireGuard.
    Tsmp,
    /// To the other host's own kernel, through WireGuard.
    Icmp,
}

impl PingKind {
    fn name(self) -> &'static str {
        match self {
            Self::Disco => "disco",
            Self::Tsmp => "TSMP",
            Self::Icmp => "ICMP",
        }
    }
}

/// An answer to a ping.
#[derive(Clone, Debug, PartialEq)]
pub struct Pong {
    /// The member that it came from.
    pub node_address: Option<IpAddr>,
    /// Its name.
    pub node_name: String,
    /// How long it took.
    pub latency: Duration,
    /// Where it came from, unless by a relay. Only [`PingKind::Disco`] tells.
    pub direct: Option<SocketAddr>,
    /// The relay that it came by. Only [`PingKind::Disco`] tells.
    pub relay: Option<String>,
}

/// Who has an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WhoIs {
    /// The member's lasting id.
    pub id: String,
    /// Its number at the server.
    pub node_id: u64,
    /// Its public key.
    pub key: String,
    /// Its name, with a dot at its end.
    pub name: String,
    /// Its addresses, without their lengths.
    pub addresses: Vec<IpAddr>,
    /// Its tags.
    pub tags: Vec<String>,
    /// Who owns it.
    pub user: String,
}

/// A relay that members fall back on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relay {
    /// Its number.
    pub id: u64,
    /// Its short name.
    pub code: String,
    /// Hosts that offer it.
    pub hosts: Vec<String>,
}

impl LocalApi {
    /// Pings an address of a member, or one behind it, for at most the usual time of a call.
    pub async fn ping(&self, address: IpAddr, kind: PingKind) -> Result<Pong, Error> {
        let call = Call::post(format!("ping?ip={address}&type={}", kind.name()));
        let value = self.json(call).await?;
        let pong = Fields::of(&value);
        if let Some(text) = pong.some_text("Err") {
            let text = clean(&text);
            return Err(Error::NoPong { address, text });
        }
        let seconds: f64 = pong.typed("LatencySeconds").unwrap_or_default();
        Ok(Pong {
            node_address: pong.parsed("NodeIP"),
            node_name: pong.text("NodeName"),
            latency: Duration::try_from_secs_f64(seconds).unwrap_or_default(),
            direct: pong.parsed("Endpoint"),
            relay: pong.some_text("DERPRegionCode"),
        })
    }

    /// Which member has this address in the mesh. Addresses behind members are nobody's.
    pub async fn whois(&self, address: IpAddr) -> Result<Option<WhoIs>, Error> {
        let call = Call::get(format!("whois?addr={address}"));
        let name = call.name();
        let (status, body) = self.transport.ask(call).await?;
        if status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        if !status.is_success() {
            return Err(Error::answered(&name, status, &body));
        }
        let value: Value = serde_json::from_slice(&body)
            .map_err(|source| Error::Strange { call: name, source })?;
        let node = Fields::of(&value).within("Node");
        let networks = node.networks("Addresses");
        Ok(Some(WhoIs {
            id: node.text("StableID"),
            node_id: node.number("ID"),
            key: node.text("Key"),
            name: node.text("Name"),
            addresses: networks.iter().map(ipnet::IpNet::addr).collect(),
            tags: node.texts("Tags"),
            user: Fields::of(&value).within("UserProfile").text("LoginName"),
        }))
    }

    /// The relays that the server offers.
    pub async fn relays(&self) -> Result<Vec<Relay>, Error> {
        let value = self.json(Call::get("derpmap")).await?;
        let regions = Fields::of(&value).value("Regions");
        let regions = regions.and_then(Value::as_object).into_iter().flatten();
        let relay = |(_, region): (&String, &Value)| {
            let region = Fields::of(region);
            let nodes = region.list("Nodes").iter();
            Relay {
                id: region.number("RegionID"),
                code: region.text("RegionCode"),
                hosts: nodes
                    .map(|node| Fields::of(node).text("HostName"))
                    .collect(),
            }
        };
        Ok(regions.map(relay).collect())
    }

    /// tailscaled's own counters, as Prometheus reads them.
    pub async fn metrics(&self) -> Result<String, Error> {
        self.text(Call::get("metrics")).await
    }

    /// The counters that tailscaled has for its users, as Prometheus reads them.
    pub async fn user_metrics(&self) -> Result<String, Error> {
        self.text(Call::get("usermetrics")).await
    }

    /// What tailscaled finds wrong with this host's forwarding.
    pub async fn check_ip_forwarding(&self) -> Result<Option<String>, Error> {
        self.warning(Call::get("check-ip-forwarding")).await
    }

    /// Lets the link of the default route forward UDP in larger pieces; says what is in the way.
    pub async fn set_udp_gro_forwarding(&self) -> Result<Option<String>, Error> {
        self.warning(Call::post("set-udp-gro-forwarding")).await
    }

    async fn warning(&self, call: Call) -> Result<Option<String>, Error> {
        let value = self.json(call).await?;
        let warning = Fields::of(&value).some_text("Warning");
        Ok(warning.map(|text| clean(&text)))
    }

    async fn text(&self, call: Call) -> Result<String, Error> {
        let body = self.transport.call(call).await?;
        Ok(String::from_utf8_lossy(&body).into_owned())
    }
}
