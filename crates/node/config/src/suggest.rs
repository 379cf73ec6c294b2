//! Suggestions for unknown keys.

use super::keys::{Key, Shape};

/// Names of other CNIs and of the plugin's configuration.
const SYNONYMS: [(&str, &str); 6] = [
    ("enableNetworkPolicy", "networkPolicy.enabled"),
    ("logLevel", "logging.level"),
    ("logFormat", "logging.format"),
    ("metricsAddress", "monitoring.address"),
    ("clusterCIDR", "network.podCIDR.base"),
    ("allocationStrategy", "ipam.strategy"),
];

/// Keys that would contain a secret, and the remedy.
const SECRETS: [(&str, &str); 4] = [
    ("apiKey", API_KEY),
    ("headscaleApiKey", API_KEY),
    ("preAuthKey", PRE_AUTH_KEY),
    ("authKey", PRE_AUTH_KEY),
];
const API_KEY: &str = "the configuration must not contain secrets: put it in a file and set \
                       headscale.apiKeyFile, or set HEADCNID_HEADSCALE_API_KEY";
const PRE_AUTH_KEY: &str = "the configuration must not contain secrets: put it in a file and \
                            set headscale.preAuthKeyFile, or set \
                            HEADCNID_HEADSCALE_PRE_AUTH_KEY";

/// The message for a key that `section` does not have.
pub(super) fn unknown_key(root: &Key, section: &Key, name: &str) -> String {
    if let Some((_, advice)) = SECRETS.iter().find(|(key, _)| is_same(key, name)) {
        return format!("unknown key: {advice}");
    }
    let siblings: Vec<&str> = match &section.shape {
        Shape::Section(keys) => keys.iter().map(|key| key.name.as_str()).collect(),
        Shape::Table | Shape::Leaf(_) => Vec::new(),
    };
    let meant = siblings.iter().find(|sibling| is_same(sibling, name));
    let meant = meant.map(ToString::to_string);
    let meant = meant.or_else(|| elsewhere(root, section, name));
    let meant = meant.or_else(|| nearest(name, siblings.iter().copied()).map(str::to_owned));
    match meant {
        Some(meant) => format!("unknown key, did you mean {meant}?"),
        None => format!("unknown key; known keys are {}", siblings.join(", ")),
    }
}

/// A key of that name in another section, or one whose path is that name without dots.
fn elsewhere(root: &Key, section: &Key, name: &str) -> Option<String> {
    let synonym = SYNONYMS.iter().find(|(key, _)| is_same(key, name));
    if let Some((_, path)) = synonym {
        return Some((*path).to_owned());
    }
    let full = section.path.key(name).to_string();
    let keys = root.all();
    let by_path = keys.iter().find(|key| {
        let path = key.path.to_string();
        is_same(&path, name) || is_same(&path, &full)
    });
    let mut by_name = keys.iter().filter(|key| is_same(&key.name, name));
    let only = match (by_name.next(), by_name.next()) {
        (Some(only), None) => Some(only),
        _ => None,
    };
    by_path.or(only).map(|key| key.path.to_string())
}

/// The candidate with the smallest edit distance, if it is small.
pub(super) fn nearest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let word = plain(word);
    // One error per three letters, and at least one.
    let max = (word.chars().count() / 3).clamp(1, 4);
    let distances = candidates.into_iter().map(|candidate| {
        let distance = strsim::osa_distance(&word, &plain(candidate));
        (distance, candidate)
    });
    let (distance, candidate) = distances.min_by_key(|(distance, _)| *distance)?;
    (distance <= max).then_some(candidate)
}

/// Ignores case and punctuation: `pod_cidr` is `podCIDR`.
fn is_same(one: &str, other: &str) -> bool {
    plain(one) == plain(other)
}

fn plain(name: &str) -> String {
    let letters = name.chars().take(100).filter(|c| c.is_alphanumeric());
    letters.flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::super::keys;
    use super::super::path::KeyPath;
    use super::*;

    fn find<'a>(root: &'a Key, path: &str) -> &'a Key {
        let path = KeyPath::from(path);
        let keys = root.all();
        keys.into_iter().find(|key| key.path == path).unwrap()
    }

    #[rstest]
    #[case("network", "mtuu", "did you mean mtu?")]
    #[case("network", "pod_cidr", "did you mean podCIDR?")]
    #[case("network", "podCidr", "did you mean podCIDR?")]
    #[case("network", "nodeLocal", "did you mean network.podCIDR.nodeLocal?")]
    #[case("network", "level", "did you mean logging.level?")]
    #[case("network.podCIDR", "nodelocall", "did you mean nodeLocal?")]
    #[case("network", "zzzzzz", "known keys are podCIDR, serviceCIDR")]
    #[case("headscale", "apiKey", "HEADCNID_HEADSCALE_API_KEY")]
    #[case("headscale", "auth_key", "headscale.preAuthKeyFile")]
    fn an_unknown_key_gets_a_suggestion(
        #[case] section: &str,
        #[case] name: &str,
        #[case] words: &str,
    ) {
        let root = keys::root();
        let text = unknown_key(&root, find(&root, section), name);
        assert!(text.contains(words), "{text}");
    }

    #[rstest]
    #[case("headscale_url", "headscale.url")]
    #[case("tailscale_socket", "tailscale.socket")]
    #[case("pod_cidr", "network.podCIDR")]
    #[case("service_cidr", "network.serviceCIDR")]
    #[case("magic_dns", "dns.magicDNS")]
    #[case("mtu", "network.mtu")]
    #[case("enable_ipv6", "network.enableIPv6")]
    #[case("enable_network_policy", "networkPolicy.enabled")]
    fn a_key_of_the_plugin_s_configuration_gets_its_path(#[case] name: &str, #[case] path: &str) {
        let root = keys::root();
        let text = unknown_key(&root, &root, name);
        assert_eq!(text, format!("unknown key, did you mean {path}?"));
    }
}
