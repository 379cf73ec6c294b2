//! Headscale, tailscaled and MagicDNS.

use std::net::IpAddr;

use cni::IfName;
use http::Uri;

use crate::path::KeyPath;
use crate::problem::Problem;
use crate::schema::{Config, MagicDns, TailscaleMode};

pub(super) fn problems(config: &Config) -> Vec<Problem> {
    let mut problems = Vec::new();
    if let Some(text) = config.headscale.url.as_deref().and_then(bad_url) {
        problems.push(Problem::new("headscale.url", text));
    }
    problems.extend(tailscale(config));
    problems.extend(magic_dns(&config.dns.magic_dns));
    problems
}

fn tailscale(config: &Config) -> Vec<Problem> {
    let tailscale = &config.tailscale;
    let mut problems = Vec::new();
    let mut refuse = |key: &str, text: String| problems.push(Problem::new(key, text));
    let is_ours = matches!(
        tailscale.mode,
        TailscaleMode::Daemon | TailscaleMode::Container
    );
    if is_ours && config.headscale.url.is_none() {
        let text = "tailscaled needs a Headscale server: set headscale.url, or mode to off";
        refuse("tailscale.mode", text.to_owned());
    }
    let interface = &tailscale.interface;
    if IfName::new(interface).is_err() {
        let text = "not an interface name: use up to 15 bytes without \"/\", \":\" and spaces, as in \
                    headcni01";
        refuse("tailscale.interface", text.to_owned());
    } else if interface == "lo" || *interface == config.cni.bridge.name {
        let text = format!("{interface} is another interface: use an unused name");
        refuse("tailscale.interface", text);
    }
    let program = tailscale.program.as_os_str().as_encoded_bytes();
    let is_name = !program.contains(&b'/');
    if program.is_empty() || !(is_name || tailscale.program.is_absolute()) {
        let text = "use an absolute path, or a program name such as tailscaled";
        refuse("tailscale.program", text.to_owned());
    }
    let hostname = tailscale.hostname.as_deref();
    if hostname.is_some_and(|name| name.contains(['.', '_']) || !is_domain(name)) {
        let text = "not a hostname: use up to 63 letters, digits and \"-\", as in node-1";
        refuse("tailscale.hostname", text.to_owned());
    }
    if tailscale.tags.is_empty() {
        let text = "without a tag no peer is recognized as a node: set one, such as tag:k8s-node";
        refuse("tailscale.tags", text.to_owned());
    }
    for (index, tag) in tailscale.tags.iter().enumerate() {
        if !is_tag(tag) {
            let key = KeyPath::from("tailscale.tags");
            let text = "not a tag: use \"tag:\", a letter, then letters, digits and \"-\", as in tag:k8s-node";
            problems.push(Problem::new(key.clone(), text).at(key.item(index)));
        }
    }
    problems
}

/// <https://tailscale.com/kb/1068/tags>.
fn is_tag(tag: &str) -> bool {
    tag.strip_prefix("tag:").is_some_and(|name| {
        let is_inner = |c: char| c.is_ascii_alphanumeric() || c == '-';
        name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(is_inner)
    })
}

fn bad_url(url: &str) -> Option<&'static str> {
    const FORM: &str = "must be a URL such as https://headscale.example.org";
    let scheme = url.split_once("://").map(|(scheme, _)| scheme);
    if !scheme.is_some_and(|scheme| matches!(scheme, "https" | "http")) {
        return Some("must begin with https:// or http://, as in https://headscale.example.org");
    }
    // `Uri` drops a fragment.
    if url.contains(['?', '#']) {
        return Some("has a query or a fragment: remove the part from ? or # on");
    }
    let Ok(uri) = url.parse::<Uri>() else {
        return Some(FORM);
    };
    match uri.authority() {
        Some(authority) if authority.as_str().contains('@') => {
            Some("has a user name: remove it, and put the key in a file or an environment variable")
        }
        Some(authority) if !authority.host().is_empty() => {
            // `Uri` accepts an invalid port.
            let port = authority.as_str().strip_prefix(authority.host());
            let is_valid =
                port.is_some_and(|port| port.is_empty() || authority.port_u16() > Some(0));
            if is_valid { None } else { Some(FORM) }
        }
        _ => Some(FORM),
    }
}

fn magic_dns(magic_dns: &MagicDns) -> Vec<Problem> {
    const DOMAIN: &str = "not a domain: use letters, digits and \"-\", separated by dots, as in \
                          tailnet.example.org";
    let key = KeyPath::from("dns.magicDNS");
    let mut problems = Vec::new();
    let base = magic_dns.base_domain.iter();
    let base = base.map(|domain| (key.key("baseDomain"), key.key("baseDomain"), domain));
    let search = magic_dns.search_domains.iter().enumerate();
    let search_key = key.key("searchDomains");
    let search = search.map(|(index, domain)| (search_key.clone(), search_key.item(index), domain));
    for (key, location, domain) in base.chain(search) {
        if !is_domain(domain) {
            problems.push(Problem::new(key, DOMAIN).at(location));
        }
    }
    for (index, server) in magic_dns.nameservers.iter().enumerate() {
        if !is_reachable_from_pods(*server) {
            let key = key.key("nameservers");
            let text =
                format!("{server} is not reachable from pods: use the address of the server");
            problems.push(Problem::new(key.clone(), text).at(key.item(index)));
        }
    }
    problems
}

/// A domain, with or without a trailing dot.
fn is_domain(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    let is_letter = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.len() <= 253
        && name.split('.').all(|label| {
            label.len() <= 63
                && label.starts_with(is_letter)
                && label.ends_with(is_letter)
                && label.chars().all(|c| is_letter(c) || c == '-')
        })
}

/// Loopback addresses would be those of the pod.
fn is_reachable_from_pods(server: IpAddr) -> bool {
    !(server.is_loopback() || server.is_unspecified() || server.is_multicast())
}
