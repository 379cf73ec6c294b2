//! Validates keys of headcni that have no effect on an ADD, so that a typing error is noticed.

use std::net::Ipv6Addr;
use std::path::Path;

use cni::{Error, Keys};

const FLAGS: [&str; 4] = [
    "enable_network_policy",
    "guard_pod_cidr",
    "hostport_localhost",
    "status_strict",
];

pub(super) fn check(entry: Keys<'_>) -> Result<(), Error> {
    for key in FLAGS {
        entry.flag(key)?;
    }
    if let Some(url) = entry.text("headscale_url")?.filter(|url| !url.is_empty()) {
        check_url(url).map_err(|reason| {
            // The URL is not shown, because it may hold a password.
            Error::config(format!(
                "{} must be a URL like https://headscale.example.com, but it {reason}",
                entry.name("headscale_url")
            ))
        })?;
    }
    if let Some(socket) = entry.text("tailscale_socket")?
        && !socket.is_empty()
        && !Path::new(socket).is_absolute()
    {
        return Err(entry.wrong("tailscale_socket", "an absolute path"));
    }
    match entry.text("policy_fail_mode")? {
        None | Some("open" | "closed") => Ok(()),
        Some(_) => Err(entry.wrong("policy_fail_mode", "\"open\" or \"closed\"")),
    }
}

/// Checks the URL of a Headscale server.
fn check_url(url: &str) -> Result<(), String> {
    if url.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err("has white space or a control character".to_owned());
    }
    let (scheme, rest) = url.split_once("://").ok_or("has no \"://\"")?;
    if !["http", "https"].contains(&scheme.to_ascii_lowercase().as_str()) {
        return Err(format!(
            "has the scheme {scheme:?}: only http and https are supported"
        ));
    }
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        return Err("has a user name: it must not contain secrets".to_owned());
    }
    let (host, port) = match authority.strip_prefix('[') {
        Some(literal) => {
            let (host, port) = literal.split_once(']').ok_or("has a \"[\" without \"]\"")?;
            host.parse::<Ipv6Addr>()
                .map_err(|_| format!("has the host [{host}], which is not an IPv6 address"))?;
            (host, port)
        }
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    if host.is_empty() {
        return Err("has no host".to_owned());
    }
    let is_name_char = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    if !authority.starts_with('[') && !host.chars().all(is_name_char) {
        return Err(format!("has the host {host:?}, which is not a host name"));
    }
    // A colon without a number means the default port: RFC 3986, 3.2.3.
    let is_port = |port: &str| {
        port.is_empty()
            || (port.bytes().all(|b| b.is_ascii_digit())
                && port.parse::<u16>().is_ok_and(|port| port > 0))
    };
    match port.strip_prefix(':') {
        None if port.is_empty() => Ok(()),
        Some(port) if is_port(port) => Ok(()),
        _ => Err(format!("has the invalid port {port:?}")),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    #[rstest]
    #[case("https://hs.binrc.com")]
    #[case("http://10.99.0.1:8080/")]
    #[case("HTTPS://[fd00::1]:8443/path?x#y")]
    #[case("https://head_scale-1.example.com:")]
    #[case("https://[::1]")]
    fn valid_urls_are_accepted(#[case] url: &str) {
        assert_eq!(check_url(url), Ok(()));
    }

    #[rstest]
    #[case("hs.binrc.com", "://")]
    #[case("ftp://hs.binrc.com", "ftp")]
    #[case("://hs", "scheme")]
    #[case("https://", "no host")]
    #[case("https:///path", "no host")]
    #[case("https://:443", "no host")]
    #[case("https://a b", "white space")]
    #[case("https://a\n", "white space")]
    #[case("https://a:0", "port")]
    #[case("https://a:65536", "port")]
    #[case("https://a:+1", "port")]
    #[case("https://a:b", "port")]
    #[case("https://[fd00::1]8443", "port")]
    #[case("https://[fd00::1", "]")]
    #[case("https://[hs]", "hs")]
    #[case("https://[]", "IPv6")]
    #[case("https://fd00::1", "port")]
    #[case("https://a%20b", "a%20b")]
    fn invalid_urls_are_rejected_with_a_reason(#[case] url: &str, #[case] part: &str) {
        let reason = check_url(url).unwrap_err();
        assert!(reason.contains(part), "{reason}");
    }

    #[rstest]
    #[case(json!({ "headscale_url": "hs.binrc.com" }), "headscale_url")]
    #[case(json!({ "headscale_url": 5 }), "headscale_url")]
    #[case(json!({ "tailscale_socket": "tailscaled.sock" }), "tailscaled.sock")]
    #[case(json!({ "tailscale_socket": ["/x"] }), "tailscale_socket")]
    #[case(json!({ "enable_network_policy": "yes" }), "enable_network_policy")]
    #[case(json!({ "hostport_localhost": 1 }), "hostport_localhost")]
    #[case(json!({ "status_strict": "true" }), "status_strict")]
    #[case(json!({ "guard_pod_cidr": 1 }), "guard_pod_cidr")]
    #[case(json!({ "policy_fail_mode": "shut" }), "shut")]
    #[case(json!({ "policy_fail_mode": false }), "policy_fail_mode")]
    fn invalid_values_are_rejected_with_their_key(#[case] entry: Value, #[case] part: &str) {
        let error = check(Keys::new(entry.as_object().unwrap(), "")).unwrap_err();
        assert_eq!(error.code, cni::code::INVALID_CONFIG);
        assert!(error.msg.contains(part), "{error}");
    }

    #[test]
    fn a_password_in_a_url_is_not_shown() {
        let entry = json!({ "headscale_url": "https://me:hunter2@hs.example" });
        let error = check(Keys::new(entry.as_object().unwrap(), "")).unwrap_err();
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }

    #[test]
    fn an_empty_text_counts_as_absent() {
        let entry = json!({ "headscale_url": "", "tailscale_socket": "", "status_strict": null });
        assert!(check(Keys::new(entry.as_object().unwrap(), "plugins[0]")).is_ok());
    }
}
