//! Values that are allowed but probably a mistake.

use http::Uri;

use super::networks;
use crate::problem::Problem;
use crate::schema::{Bridge, Config, Mode};

/// `MAXNS` in resolv.conf(5).
const MAX_NAMESERVERS: usize = 3;

pub fn warnings(config: &Config) -> Vec<Problem> {
    let mut warnings = Vec::new();
    let mut warn = |key: &str, text: &str| warnings.push(Problem::new(key, text));
    if config.network_policy.enabled {
        warn(
            "networkPolicy.enabled",
            "NetworkPolicy is not enforced yet: pods stay reachable",
        );
    }
    if config.cni.mode == Mode::Native && config.cni.bridge != Bridge::default() {
        warn(
            "cni.bridge",
            "has no effect: set cni.mode to bridge to use it",
        );
    }
    if config.cni.mode == Mode::Bridge && config.cni.bridge.ip_masq {
        warn(
            "cni.bridge.ipMasq",
            "hides pod IPs from pods on other nodes: policies and logs there see the node IP",
        );
    }
    let plugins = config.cni.cni_plugins.iter();
    if config.cni.mode == Mode::Native && plugins.clone().any(|plugin| plugin["type"] == "portmap")
    {
        warn(
            "cni.cniPlugins",
            "headcni maps host ports itself: remove portmap",
        );
    }
    let pods = &config.network.pod_cidr;
    if pods.allow_guess && pods.base.0.is_empty() && pods.node_local.0.is_empty() {
        warn(
            "network.podCIDR.allowGuess",
            "without network.podCIDR.base all nodes derive the same pod CIDR: set base",
        );
    }
    let headscale = &config.headscale;
    if headscale.url.as_deref().is_some_and(is_clear_text) {
        warn(
            "headscale.url",
            "keys are sent in clear text: use https://, or a server on this node",
        );
    }
    if headscale.url.is_none() {
        let files = [
            ("headscale.apiKeyFile", &headscale.api_key_file),
            ("headscale.preAuthKeyFile", &headscale.pre_auth_key_file),
            ("headscale.caFile", &headscale.ca_file),
        ];
        for (key, _) in files.into_iter().filter(|(_, file)| file.is_some()) {
            warn(key, "has no effect without headscale.url");
        }
    }
    if config.dns.magic_dns.nameservers.len() > MAX_NAMESERVERS {
        warn(
            "dns.magicDNS.nameservers",
            "resolvers use only three: keep the best three",
        );
    }
    let base = networks::base(&config.network);
    let whole = networks::local(&config.network)
        .into_iter()
        .find(|local| base.iter().any(|base| base.net == local.net));
    if let Some(local) = whole {
        warnings.push(local.problem(format!(
            "{} is all of network.podCIDR.base: nothing is left for a second node",
            local.net
        )));
    }
    warnings
}

fn is_clear_text(url: &str) -> bool {
    let Ok(uri) = url.parse::<Uri>() else {
        return false;
    };
    let host = uri.host().unwrap_or_default();
    let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    let is_local = host == "localhost" || address.is_ok_and(|address| address.is_loopback());
    uri.scheme_str() == Some("http") && !is_local
}
