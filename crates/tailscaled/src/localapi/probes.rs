//! Pings through the tailnet, and tailscaled's metrics.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::LocalApi;
use super::error::{Error, clean};
use super::lenient::LenientObject;
use super::transport::Call;

/// <https://pkg.go.dev/tailscale.com/tailcfg#PingType>
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PingType {
    /// Between two tailscaleds without WireGuard. Finds the direct path.
    Disco,
    /// Between two tailscaleds through WireGuard.
    Tsmp,
    /// Through WireGuard to the peer's kernel.
    Icmp,
}

impl PingType {
    fn name(self) -> &'static str {
        match self {
            Self::Disco => "disco",
            Self::Tsmp => "TSMP",
            Self::Icmp => "ICMP",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct PingResult {
    /// The address of the peer that answered.
    pub node_address: Option<IpAddr>,
    pub node_name: String,
    pub latency: Duration,
    /// The peer's endpoint if the path is direct. Only with [`PingType::Disco`].
    pub endpoint: Option<SocketAddr>,
    /// The DERP region if the path is relayed. Only with [`PingType::Disco`].
    pub derp_region: Option<String>,
}

impl LocalApi {
    /// Pings a peer, or an address behind it.
    pub async fn ping(&self, address: IpAddr, ping: PingType) -> Result<PingResult, Error> {
        let call = Call::post(format!("ping?ip={address}&type={}", ping.name()));
        let value = self.json(call).await?;
        let result = LenientObject::of(&value);
        if let Some(text) = result.non_empty_text("Err") {
            let text = clean(&text);
            return Err(Error::Ping { address, text });
        }
        let seconds: f64 = result.typed("LatencySeconds").unwrap_or_default();
        Ok(PingResult {
            node_address: result.parsed("NodeIP"),
            node_name: result.text("NodeName"),
            latency: Duration::try_from_secs_f64(seconds).unwrap_or_default(),
            endpoint: result.parsed("Endpoint"),
            derp_region: result.non_empty_text("DERPRegionCode"),
        })
    }

    /// tailscaled's user metrics in Prometheus text format.
    pub async fn user_metrics(&self) -> Result<String, Error> {
        let body = self.transport.call(Call::get("usermetrics")).await?;
        Ok(String::from_utf8_lossy(&body).into_owned())
    }
}
