//! Keys that need a restart.

use super::schema::Config;

/// All other keys take effect on SIGHUP.
pub const RESTART_KEYS: [&str; 2] = ["monitoring.address", "pods.orphanInterval"];

/// The changed keys that need a restart.
pub fn needs_restart(now: &Config, new: &Config) -> Vec<&'static str> {
    let now = serde_json::to_value(now).unwrap_or_default();
    let new = serde_json::to_value(new).unwrap_or_default();
    let differs = |key: &&str| {
        let pointer = format!("/{}", key.replace('.', "/"));
        now.pointer(&pointer) != new.pointer(&pointer)
    };
    RESTART_KEYS.into_iter().filter(differs).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys;
    use crate::path::KeyPath;

    #[test]
    fn every_key_that_needs_a_restart_exists() {
        let root = keys::root();
        for key in RESTART_KEYS {
            let path = KeyPath::from(key);
            assert!(root.leaves().iter().any(|leaf| leaf.path == path), "{key}");
        }
    }

    #[test]
    fn only_changed_keys_need_a_restart() {
        let now = Config::default();
        let mut new = now.clone();
        new.network.mtu = 1400;
        assert_eq!(needs_restart(&now, &new), [""; 0]);
        new.cni.name = "other".to_owned();
        new.monitoring.address = "127.0.0.1:1".parse().unwrap();
        assert_eq!(needs_restart(&now, &new), ["monitoring.address"]);
    }
}
