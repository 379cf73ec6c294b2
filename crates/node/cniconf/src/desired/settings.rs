//! Settings that the plugins would refuse: better refused here, once, than at every pod's start.

use std::path::Path;

use cni::{IfName, PluginType};

use super::super::error::CniConfError;
use super::addresses::Addresses;
use node_config::{Config, Mode};

/// RFC 8200: what every link must carry.
const LEAST_IPV6_MTU_BYTES: u32 = 1280;

pub(super) fn check(config: &Config, addresses: &Addresses) -> Result<(), CniConfError> {
    let mtu = config.network.mtu;
    if addresses.has_ipv6() && mtu < LEAST_IPV6_MTU_BYTES {
        let trouble = format!("is too small for IPv6: it must be {LEAST_IPV6_MTU_BYTES} or more");
        return Err(CniConfError::setting("network.mtu", mtu, trouble));
    }
    if let Some(dir) = &config.ipam.data_dir {
        absolute("ipam.dataDir", dir)?;
    }
    if let Some(kind) = &config.ipam.kind
        && (PluginType::new("ipam.type", kind).is_err() || kind == "headcni")
    {
        let trouble = "is no plugin that gives addresses, such as \"headcni-ipam\"";
        return Err(CniConfError::setting("ipam.type", kind, trouble));
    }
    match config.cni.mode {
        Mode::Native => check_native(config),
        Mode::Bridge => {
            let name = &config.cni.bridge.name;
            IfName::new(name).map(drop).map_err(|_| {
                let trouble = "is no name for a link: at most 15 letters, digits, '-', '_' and '.'";
                CniConfError::setting("cni.bridge.name", name, trouble)
            })
        }
    }
}

fn check_native(config: &Config) -> Result<(), CniConfError> {
    absolute("tailscale.socket", &config.tailscale.socket)?;
    if let Some(path) = &config.cni.log_file {
        absolute("cni.logFile", path)?;
        if path.starts_with("/dev") || path.starts_with("/proc") {
            let trouble = "is no place for a log: the plugin refuses /dev and /proc";
            return Err(CniConfError::setting(
                "cni.logFile",
                path.display(),
                trouble,
            ));
        }
    }
    match &config.headscale.url {
        // Without the value: a URL is a place where people put passwords.
        Some(url) if !url.is_empty() && !is_server(url) => Err(CniConfError::setting(
            "headscale.url",
            "",
            "must be like https://headscale.example.org, without a user name",
        )),
        _ => Ok(()),
    }
}

fn absolute(key: &'static str, path: &Path) -> Result<(), CniConfError> {
    if path.is_absolute() {
        return Ok(());
    }
    Err(CniConfError::setting(
        key,
        path.display(),
        "must be an absolute path",
    ))
}

/// Whether it is a URL of a server as the plugin takes it.
fn is_server(url: &str) -> bool {
    let Some((scheme, rest)) = url.split_once("://") else {
        return false;
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let (host, port) = match authority.strip_prefix('[') {
        Some(literal) => match literal.split_once(']') {
            Some((host, port)) if host.parse::<std::net::Ipv6Addr>().is_ok() => (host, port),
            _ => return false,
        },
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    let is_of_a_name = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
    let is_of_a_host = |c: char| is_of_a_name(c) || (authority.starts_with('[') && c == ':');
    let is_port = |port: &str| port.is_empty() || port.parse::<u16>().is_ok_and(|port| port > 0);
    ["http", "https"].contains(&scheme.to_ascii_lowercase().as_str())
        && !url.contains(|c: char| c.is_whitespace() || c.is_control())
        && !host.is_empty()
        && host.chars().all(is_of_a_host)
        && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port))
        && !port.contains('+')
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("https://hs.example.org", true)]
    #[case("HTTP://10.99.0.1:8080/path?x#y", true)]
    #[case("https://[fd00::1]:8443", true)]
    #[case("https://head_scale-1.example.com:", true)]
    #[case("hs.example.org", false)]
    #[case("ftp://hs.example.org", false)]
    #[case("https://", false)]
    #[case("https://:443", false)]
    #[case("https://a b", false)]
    #[case("https://a:0", false)]
    #[case("https://a:+1", false)]
    #[case("https://a:65536", false)]
    #[case("https://me:hunter2@hs.example", false)]
    #[case("https://fd00::1", false)]
    #[case("https://[hs]", false)]
    fn a_url_names_a_server_and_no_secret(#[case] url: &str, #[case] is_one: bool) {
        assert_eq!(is_server(url), is_one);
    }
}
