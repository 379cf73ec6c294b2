//! The form of versions 0.1.0 and 0.2.0: at most one address per family, routes under it.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    Dns, IpConfig, NetResult, ResultError, Route, empty_is_none, null_is_default, to_object,
};

#[derive(Default, Serialize, Deserialize)]
struct Legacy {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ip4: Option<Family>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ip6: Option<Family>,
    #[serde(
        default,
        skip_serializing_if = "Dns::is_empty",
        deserialize_with = "null_is_default"
    )]
    dns: Dns,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

#[derive(Serialize, Deserialize)]
struct Family {
    ip: IpNet,
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "empty_is_none"
    )]
    gateway: Option<IpAddr>,
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "null_is_default"
    )]
    routes: Vec<LegacyRoute>,
}

#[derive(Serialize, Deserialize)]
struct LegacyRoute {
    dst: IpNet,
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "empty_is_none"
    )]
    gw: Option<IpAddr>,
}

pub(super) fn read(object: Map<String, Value>) -> Result<NetResult, ResultError> {
    let legacy: Legacy = serde_json::from_value(Value::Object(object))?;
    let mut result = NetResult {
        dns: legacy.dns,
        extra: legacy.extra,
        ..NetResult::default()
    };
    for family in [legacy.ip4, legacy.ip6].into_iter().flatten() {
        result.ips.push(IpConfig {
            interface: None,
            address: family.ip,
            gateway: family.gateway,
            extra: Map::new(),
        });
        result
            .routes
            .extend(family.routes.into_iter().map(|route| Route {
                gw: route.gw,
                ..Route::to(route.dst)
            }));
    }
    Ok(result)
}

pub(super) fn write(result: &NetResult) -> Map<String, Value> {
    let family = |is_wanted: fn(&IpAddr) -> bool| {
        let first = result.ips.iter().find(|ip| is_wanted(&ip.address.addr()))?;
        let routes = result
            .routes
            .iter()
            .filter(|route| is_wanted(&route.dst.addr()));
        Some(Family {
            ip: first.address,
            gateway: first.gateway,
            routes: routes
                .map(|route| LegacyRoute {
                    dst: route.dst,
                    gw: route.gw,
                })
                .collect(),
        })
    };
    to_object(&Legacy {
        ip4: family(IpAddr::is_ipv4),
        ip6: family(IpAddr::is_ipv6),
        dns: result.dns.clone(),
        extra: result.extra.clone(),
    })
}
