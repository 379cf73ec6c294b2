//! The mesh's server and names.

use std::net::IpAddr;

use cni::IfName;
use http::Uri;

use crate::path::KeyPath;
use crate::problem::Problem;
use crate::schema::{Config, MagicDns, MeshMode};

pub(super) fn problems(config: &Config) -> Vec<Problem> {
    let mut problems = Vec::new();
    if let Some(trouble) = config.headscale.url.as_deref().and_then(bad_url) {
        problems.push(Problem::new("headscale.url", trouble));
    }
    problems.extend(member(config));
    problems.extend(names(&config.dns.magic_dns));
    problems
}

fn member(config: &Config) -> Vec<Problem> {
    let tailscale = &config.tailscale;
    let mut problems = Vec::new();
    let mut refuse = |key: &str, text: String| problems.push(Problem::new(key, text));
    let is_ours = matches!(tailscale.mode, MeshMode::Daemon | MeshMode::Container);
    if is_ours && config.headscale.url.is_none() {
        let text = "our tailscaled has no server to join: set headscale.url, or mode to off";
        refuse("tailscale.mode", text.to_owned());
    }
    let interface = &tailscale.interface;
    if IfName::new(interface).is_err() {
        let text = "not an interface's name: up to 15 bytes without \"/\", \":\" and blanks, as \
                    headcni01";
        refuse("tailscale.interface", text.to_owned());
    } else if interface == "lo" || *interface == config.cni.bridge.name {
        let text = format!("{interface} is another interface: take a name of its own");
        refuse("tailscale.interface", text);
    }
    let program = tailscale.program.as_os_str().as_encoded_bytes();
    let is_name = !program.contains(&b'/');
    if program.is_empty() || !(is_name || tailscale.program.is_absolute()) {
        let text = "write the whole path of the program, or its name alone, as tailscaled";
        refuse("tailscale.program", text.to_owned());
    }
    let hostname = tailscale.hostname.as_deref();
    if hostname.is_some_and(|name| name.contains(['.', '_']) || !is_domain(name)) {
        let text = "not a node's name: up to 63 letters, digits and \"-\", as node-1";
        refuse("tailscale.hostname", text.to_owned());
    }
    if tailscale.tags.is_empty() {
        let text =
            "without a tag no member of the mesh is known for a node: say one, as tag:k8s-node";
        refuse("tailscale.tags", text.to_owned());
    }
    for (index, tag) in tailscale.tags.iter().enumerate() {
        if !is_tag(tag) {
            let key = KeyPath::from("tailscale.tags");
            let text =
                "not a tag: \"tag:\", a letter, then letters, digits and \"-\", as tag:k8s-node";
            problems.push(Problem::new(key.clone(), text).look_at(key.item(index)));
        }
    }
    problems
}

/// As Tailscale has them: <https://tailscale.com/kb/1068/tags>.
fn is_tag(tag: &str) -> bool {
    tag.strip_prefix("tag:").is_some_and(|name| {
        let is_inner = |c: char| c.is_ascii_alphanumeric() || c == '-';
        name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(is_inner)
    })
}

/// What is wrong with the server's address.
fn bad_url(url: &str) -> Option<&'static str> {
    const FORM: &str = "must be of the form https://headscale.example.org";
    let scheme = url.split_once("://").map(|(scheme, _)| scheme);
    if !scheme.is_some_and(|scheme| matches!(scheme, "https" | "http")) {
        return Some("must begin with https:// or http://, as https://headscale.example.org");
    }
    // The type below drops a fragment.
    if url.contains(['?', '#']) {
        return Some("has a query or a fragment: leave out what begins with ? or #");
    }
    let Ok(uri) = url.parse::<Uri>() else {
        return Some(FORM);
    };
    match uri.authority() {
        Some(authority) if authority.as_str().contains('@') => {
            Some("has a user's name: leave it out, the key stands in a file or a variable")
        }
        Some(authority) if !authority.host().is_empty() => {
            // A port that is none is no error of that type.
            let port = authority.as_str().strip_prefix(authority.host());
            let is_sound =
                port.is_some_and(|port| port.is_empty() || authority.port_u16() > Some(0));
            if is_sound { None } else { Some(FORM) }
        }
        _ => Some(FORM),
    }
}

fn names(magic_dns: &MagicDns) -> Vec<Problem> {
    const DOMAIN: &str = "not a domain: letters, digits and \"-\" with dots between, as \
                          tailnet.example.org";
    let key = KeyPath::from("dns.magicDNS");
    let mut problems = Vec::new();
    let base = magic_dns.base_domain.iter();
    let base = base.map(|domain| (key.key("baseDomain"), key.key("baseDomain"), domain));
    let search = magic_dns.search_domains.iter().enumerate();
    let search_key = key.key("searchDomains");
    let search = search.map(|(index, domain)| (search_key.clone(), search_key.item(index), domain));
    for (key, spot, domain) in base.chain(search) {
        if !is_domain(domain) {
            problems.push(Problem::new(key, DOMAIN).look_at(spot));
        }
    }
    for (index, server) in magic_dns.nameservers.iter().enumerate() {
        if !can_serve(*server) {
            let key = key.key("nameservers");
            let text = format!("{server} can't be reached by pods: take the server's real address");
            problems.push(Problem::new(key.clone(), text).look_at(key.item(index)));
        }
    }
    problems
}

/// A domain, with or without the dot at its end.
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

/// To a pod, loopback is the pod itself.
fn can_serve(server: IpAddr) -> bool {
    !(server.is_loopback() || server.is_unspecified() || server.is_multicast())
}
