//! The result of an ADD, in one form for every version of the protocol.
//!
//! [`NetResult`] is shaped like version 1.1.0, which says the most. Older forms are read into it
//! and written from it; keys that nobody here knows are carried along.

mod legacy;

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::Version;
use crate::keys::shown;

/// What an ADD made: interfaces, their addresses, routes and DNS settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NetResult {
    /// Every interface made, those on the host too.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "null_is_default"
    )]
    pub interfaces: Vec<Interface>,
    /// The addresses of these interfaces.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "null_is_default"
    )]
    pub ips: Vec<IpConfig>,
    /// The routes inside the container.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "null_is_default"
    )]
    pub routes: Vec<Route>,
    /// Where the container looks names up.
    #[serde(
        default,
        skip_serializing_if = "Dns::is_empty",
        deserialize_with = "null_is_default"
    )]
    pub dns: Dns,
    /// Keys that this crate doesn't know.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// An interface that an ADD made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its hardware address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// Its MTU (since 1.1.0).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// The namespace that it is in; absent or empty on the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    /// A socket that stands for the interface (since 1.1.0).
    #[serde(
        default,
        rename = "socketPath",
        skip_serializing_if = "Option::is_none"
    )]
    pub socket_path: Option<String>,
    /// The PCI device that it is (since 1.1.0).
    #[serde(default, rename = "pciID", skip_serializing_if = "Option::is_none")]
    pub pci_id: Option<String>,
    /// Keys that this crate doesn't know.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl Interface {
    /// Whether it lives in a container and not on the host.
    pub fn is_sandboxed(&self) -> bool {
        self.sandbox
            .as_deref()
            .is_some_and(|sandbox| !sandbox.is_empty())
    }
}

/// An address of an interface.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IpConfig {
    /// Index into [`NetResult::interfaces`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<usize>,
    /// The address with the length of its subnet's prefix.
    pub address: IpNet,
    /// The subnet's gateway.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "empty_is_none"
    )]
    pub gateway: Option<IpAddr>,
    /// Keys that this crate doesn't know.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// A route inside the container.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Route {
    /// Where it leads.
    pub dst: IpNet,
    /// The next hop; absent: the gateway of the address.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "empty_is_none"
    )]
    pub gw: Option<IpAddr>,
    /// Path MTU (since 1.1.0).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// Advertised segment size (since 1.1.0).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advmss: Option<u32>,
    /// Metric (since 1.1.0).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    /// Routing table (since 1.1.0).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<u32>,
    /// Scope (since 1.1.0).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<u32>,
    /// Keys that this crate doesn't know.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl Route {
    /// A route to `dst` that says nothing else.
    pub fn to(dst: IpNet) -> Self {
        Self {
            dst,
            gw: None,
            mtu: None,
            advmss: None,
            priority: None,
            table: None,
            scope: None,
            extra: Map::new(),
        }
    }
}

/// Where a container looks names up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dns {
    /// Servers to ask, the preferred one first.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "null_is_default"
    )]
    pub nameservers: Vec<String>,
    /// The container's own domain.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub domain: String,
    /// Domains to try for short names.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "null_is_default"
    )]
    pub search: Vec<String>,
    /// Options for the resolver.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "null_is_default"
    )]
    pub options: Vec<String>,
}

impl Dns {
    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A result that can't be understood.
#[derive(Debug, thiserror::Error)]
pub enum ResultError {
    /// It isn't an object.
    #[error("the result is not a JSON object: {0}")]
    NotAnObject(String),
    /// Its version is unknown.
    #[error("the result's {0}")]
    Version(crate::version::UnknownVersion),
    /// Its version is no text.
    #[error("the result's cniVersion is not text")]
    VersionNotText,
    /// A key has an impossible value.
    #[error("the result has a wrong value")]
    Value(#[from] serde_json::Error),
}

impl NetResult {
    /// Reads a result that says its own version.
    ///
    /// One that doesn't is taken to be of version `unstated`: plugins that forget the key answer
    /// in the version that they were asked in.
    pub fn from_json(document: Value, unstated: Version) -> Result<Self, ResultError> {
        let Value::Object(mut object) = document else {
            return Err(ResultError::NotAnObject(shown(&document)));
        };
        let version = match object.remove("cniVersion") {
            None | Some(Value::Null) => unstated,
            Some(Value::String(text)) if text.is_empty() => unstated,
            Some(Value::String(text)) => text.parse().map_err(ResultError::Version)?,
            Some(_) => return Err(ResultError::VersionNotText),
        };
        if version <= Version::V0_2_0 {
            return legacy::read(object);
        }
        let mut result: Self = serde_json::from_value(Value::Object(object))?;
        for ip in &mut result.ips {
            // Told by the address itself; 0.3.0 to 0.4.0 say it twice.
            ip.extra.remove("version");
        }
        Ok(result)
    }

    /// The result in the form of `version`, with its `cniVersion`.
    ///
    /// What that version can't express is left out.
    pub fn to_json(&self, version: Version) -> Value {
        let mut object = if version <= Version::V0_2_0 {
            legacy::write(self)
        } else {
            self.write_current(version)
        };
        object.insert("cniVersion".to_owned(), version.as_str().into());
        Value::Object(object)
    }

    fn write_current(&self, version: Version) -> Map<String, Value> {
        let mut object = to_object(self);
        if version < Version::V1_1_0 {
            strip(&mut object, "interfaces", &["mtu", "socketPath", "pciID"]);
            strip(
                &mut object,
                "routes",
                &["mtu", "advmss", "priority", "table", "scope"],
            );
        }
        if version < Version::V1_0_0 {
            for (ip, written) in self.ips.iter().zip(entries(&mut object, "ips")) {
                let family = if ip.address.addr().is_ipv4() {
                    "4"
                } else {
                    "6"
                };
                written.insert("version".to_owned(), family.into());
            }
        }
        object
    }
}

fn to_object<T: Serialize>(value: &T) -> Map<String, Value> {
    match serde_json::to_value(value) {
        Ok(Value::Object(object)) => object,
        // Structs with string keys always become objects.
        _ => Map::new(),
    }
}

fn entries<'a>(
    object: &'a mut Map<String, Value>,
    list: &str,
) -> impl Iterator<Item = &'a mut Map<String, Value>> {
    object
        .get_mut(list)
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
        .filter_map(Value::as_object_mut)
}

fn strip(object: &mut Map<String, Value>, list: &str, keys: &[&str]) {
    for entry in entries(object, list) {
        for key in keys {
            entry.remove(*key);
        }
    }
}

/// Go writes an absent address as an empty string.
fn empty_is_none<'de, D: Deserializer<'de>>(input: D) -> Result<Option<IpAddr>, D::Error> {
    match Option::<String>::deserialize(input)?.as_deref() {
        None | Some("") => Ok(None),
        Some(text) => text
            .parse()
            .map(Some)
            .map_err(|_| serde::de::Error::custom(format!("{text:?} is not an IP address"))),
    }
}

/// Go writes an absent list as `null`.
fn null_is_default<'de, D, T>(input: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(input)?.unwrap_or_default())
}

#[cfg(test)]
mod tests;
