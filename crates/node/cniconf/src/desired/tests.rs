use std::path::Path;

use rstest::rstest;
use serde_json::json;

use super::*;
use node_config::Cni;

/// The document of the user's own description of headcni, as it stands there.
const SEED: &str = r#"{
  "cniVersion": "0.4.0",
  "name": "headcni",
  "plugins": [
    {
      "type": "bridge",
      "bridge": "headcni0",
      "ipMasq": true,
      "isGateway": true,
      "ipam": {
        "type": "host-local",
        "subnet": "10.244.1.0/24",
        "routes": [
          {
            "dst": "0.0.0.0/0"
          }
        ]
      }
    }
  ]
}
"#;

const NATIVE: &str = r#"{
  "cniVersion": "1.0.0",
  "cniVersions": [
    "0.4.0",
    "1.0.0",
    "1.1.0"
  ],
  "name": "headcni",
  "plugins": [
    {
      "type": "headcni",
      "ipam": {
        "type": "headcni-ipam",
        "subnet": "10.244.1.0/24",
        "allocation_strategy": "sequential"
      },
      "capabilities": {
        "bandwidth": true,
        "ips": true,
        "mac": true,
        "portMappings": true
      },
      "mtu": 1280,
      "pod_cidr": "10.244.0.0/16",
      "guard_pod_cidr": true,
      "enable_ipv6": false,
      "tailscale_socket": "/var/run/tailscale/tailscaled.sock",
      "daemon_socket": "/run/headcni/daemon.sock"
    }
  ]
}
"#;

const ALL_OF_NATIVE: &str = r#"{
  "cniVersion": "1.0.0",
  "cniVersions": [
    "0.4.0",
    "1.0.0",
    "1.1.0"
  ],
  "name": "headcni",
  "plugins": [
    {
      "type": "headcni",
      "ipam": {
        "type": "headcni-ipam",
        "ranges": [
          [
            {
              "subnet": "10.244.1.0/24",
              "rangeStart": "10.244.1.10",
              "rangeEnd": "10.244.1.99",
              "gateway": "10.244.1.254"
            }
          ],
          [
            {
              "subnet": "fd00:244:0:1::/64"
            }
          ]
        ],
        "allocation_strategy": "dense-pack",
        "dataDir": "/var/lib/leases"
      },
      "capabilities": {
        "bandwidth": true,
        "ips": true,
        "mac": true
      },
      "mtu": 1400,
      "pod_cidr": "10.244.0.0/16,fd00:244::/48",
      "service_cidr": "10.96.0.0/16,fd00:96::/112",
      "guard_pod_cidr": true,
      "enable_ipv6": true,
      "magic_dns": {
        "enable": true,
        "base_domain": "tail.example.org",
        "nameservers": [
          "100.100.100.100"
        ],
        "search_domains": [
          "tail.example.org"
        ]
      },
      "headscale_url": "https://headscale.example.org",
      "tailscale_socket": "/run/ts.sock",
      "daemon_socket": "/run/headcni/daemon.sock",
      "enable_network_policy": true,
      "status_strict": true,
      "log_file": "/var/log/headcni.log"
    },
    {
      "capabilities": {
        "portMappings": true
      },
      "snat": true,
      "type": "portmap"
    }
  ]
}
"#;

const IPV4: &str = "10.244.1.0/24";
const IPV6: &str = "fd00:244:0:1::/64";

fn nets(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn attempt(config: &Config, local: &[&str]) -> Result<Desired, CniConfError> {
    let dirs = Dirs::locate(&Cni::default(), Path::new("/nonexistent"));
    let base = nets(&["fd00:244::/48", "10.244.0.0/16"]);
    desired(config, &nets(local), &base, &dirs)
}

fn made(config: &Config, local: &[&str]) -> Desired {
    attempt(config, local).unwrap()
}

/// A configuration with some keys, as the daemon's file has them.
fn config(keys: &Value) -> Config {
    serde_json::from_value(keys.clone()).unwrap()
}

fn bridge(keys: &Value) -> Config {
    let mut config = config(keys);
    config.cni.mode = Mode::Bridge;
    config
}

#[test]
fn the_native_conflist_is_self_contained() {
    assert_eq!(made(&Config::default(), &[IPV4]).conflist_text, NATIVE);
}

#[test]
fn every_setting_is_in_the_native_conflist() {
    let config = config(&json!({
        "network": { "mtu": 1400, "serviceCIDR": "10.96.0.0/16,fd00:96::/112", "enableIPv6": true },
        "cni": {
            "logFile": "/var/log/headcni.log",
            "statusStrict": true,
            "cniPlugins": [
                { "type": "portmap", "capabilities": { "portMappings": true }, "snat": true },
            ],
        },
        "ipam": {
            "strategy": "dense-pack", "dataDir": "/var/lib/leases", "gateway": "10.244.1.254",
            "rangeStart": "10.244.1.10", "rangeEnd": "10.244.1.99",
        },
        "headscale": { "url": "https://headscale.example.org" },
        "tailscale": { "socket": "/run/ts.sock" },
        "dns": { "magicDNS": {
            "enable": true, "baseDomain": "tail.example.org",
            "nameservers": ["100.100.100.100"], "searchDomains": ["tail.example.org"],
        } },
        "networkPolicy": { "enabled": true },
    }));
    let desired = made(&config, &[IPV6, IPV4]);
    assert_eq!(desired.conflist_text, ALL_OF_NATIVE);
    assert_eq!(
        desired.subnet_env_text,
        "HEADCNI_NETWORK=10.244.0.0/16\nHEADCNI_SUBNET=10.244.1.254/24\n\
         HEADCNI_IPV6_NETWORK=fd00:244::/48\nHEADCNI_IPV6_SUBNET=fd00:244:0:1::/64\n\
         HEADCNI_MTU=1400\nHEADCNI_IPMASQ=true\n"
    );
}

#[test]
fn bridge_mode_gives_the_described_document_with_the_mtu() {
    let config = bridge(&json!({ "cni": { "bridge": { "ipMasq": true } } }));
    let desired = made(&config, &[IPV4]);
    let with_mtu = SEED.replace(
        "\"isGateway\": true,\n",
        "\"isGateway\": true,\n      \"mtu\": 1280,\n",
    );
    assert_ne!(with_mtu, SEED);
    assert_eq!(desired.conflist_text, with_mtu);
    assert!(desired.subnet_env_text.ends_with("HEADCNI_IPMASQ=false\n"));
}

#[test]
fn the_bridge_masquerades_only_if_configured() {
    let desired = made(&bridge(&json!({})), &[IPV4]);
    assert_eq!(desired.conflist["plugins"][0]["ipMasq"], false);
    assert!(desired.conflist["plugins"][0].get("hairpinMode").is_none());
    let hairpin = bridge(&json!({ "cni": { "bridge": { "hairpinMode": true } } }));
    let hairpin = made(&hairpin, &[IPV4]);
    assert_eq!(hairpin.conflist["plugins"][0]["hairpinMode"], true);
    assert!(desired.subnet_env_text.ends_with("HEADCNI_IPMASQ=true\n"));
}

#[test]
fn a_bridge_of_both_families_has_ranges_and_both_default_routes() {
    let desired = made(&bridge(&json!({})), &[IPV6, IPV4]);
    assert_eq!(
        desired.conflist["plugins"][0]["ipam"],
        json!({
            "type": "host-local",
            "ranges": [[{ "subnet": IPV4 }], [{ "subnet": IPV6 }]],
            "routes": [{ "dst": "0.0.0.0/0" }, { "dst": "::/0" }],
        })
    );
}

#[test]
fn a_bridge_may_lease_from_our_own_ipam() {
    let keys = json!({ "ipam": { "type": "headcni-ipam", "strategy": "random" } });
    let desired = made(&bridge(&keys), &[IPV6]);
    assert_eq!(
        desired.conflist["plugins"][0]["ipam"],
        json!({
            "type": "headcni-ipam", "subnet": IPV6, "routes": [{ "dst": "::/0" }],
            "allocation_strategy": "random",
        })
    );
}

#[test]
fn an_ipam_plugin_without_ranges_gets_none() {
    let desired = made(&config(&json!({ "ipam": { "type": "dhcp" } })), &[IPV4]);
    let ipam = &desired.conflist["plugins"][0]["ipam"];
    assert_eq!(*ipam, json!({ "type": "dhcp" }));
}

#[test]
fn additional_plugins_are_appended_unchanged() {
    let tuning = json!({ "type": "tuning", "sysctl": { "net.core.somaxconn": "500" } });
    let limited = json!({ "type": "bandwidth", "capabilities": { "bandwidth": true } });
    let keys = json!({ "cni": { "cniPlugins": [tuning, limited, tuning] } });
    for (config, has_own) in [(config(&keys), true), (bridge(&keys), false)] {
        let plugins = &made(&config, &[IPV4]).conflist["plugins"];
        assert_eq!(plugins[1], tuning);
        assert_eq!(plugins[2], limited);
        assert_eq!(plugins[3], Value::Null);
        let own = &plugins[0]["capabilities"];
        assert_eq!(own["portMappings"] == true, has_own, "{own}");
        // What two plugins are given is done twice.
        assert_eq!(own["bandwidth"], Value::Null);
    }
}

#[test]
fn a_family_without_a_cluster_cidr_uses_the_pod_cidr() {
    let dirs = Dirs::locate(&Cni::default(), Path::new("/nonexistent"));
    let desired = desired(&Config::default(), &nets(&[IPV4]), &[], &dirs).unwrap();
    assert_eq!(desired.conflist["plugins"][0]["pod_cidr"], IPV4);
}

#[rstest]
#[case::no_network(json!({}), &[], "PodCIDR")]
#[case::two_of_a_family(json!({}), &[IPV4, "10.244.2.0/24"], "one IP family")]
#[case::outside(json!({}), &["10.7.1.0/24"], "network.podCIDR.base 10.244.0.0/16")]
#[case::too_small(json!({}), &["10.244.1.0/31"], "too small")]
#[case::loopback(json!({}), &["127.1.0.0/24"], "127.0.0.0/8")]
#[case::service(json!({ "network": { "serviceCIDR": "10.244.128.0/20" } }), &[IPV4],
    "network.serviceCIDR 10.244.128.0/20 overlaps")]
#[case::ipv6_wanted(json!({ "network": { "enableIPv6": true } }), &[IPV4], "network.enableIPv6")]
#[case::ipv6_unwanted(json!({ "network": { "enableIPv6": false } }), &[IPV4, IPV6],
    "network.enableIPv6")]
#[case::ipv6_mtu(json!({ "network": { "mtu": 1200 } }), &[IPV6], "network.mtu 1200")]
#[case::range_outside(json!({ "ipam": { "rangeStart": "10.244.2.1" } }), &[IPV4],
    "ipam.rangeStart 10.244.2.1")]
#[case::range_backwards(json!({ "ipam": { "rangeStart": "10.244.1.9", "rangeEnd": "10.244.1.8" } }),
    &[IPV4], "after rangeEnd")]
#[case::gateway(json!({ "ipam": { "gateway": "10.244.1.0" } }), &[IPV4], "subnet.env")]
#[case::broadcast(json!({ "ipam": { "gateway": "10.244.1.255" } }), &[IPV4], "broadcast")]
#[case::name(json!({ "cni": { "name": "../etc" } }), &[IPV4], "../etc")]
#[case::bridge_name(json!({ "cni": { "mode": "bridge", "bridge": { "name": "far-too-long-name" } } }),
    &[IPV4], "cni.bridge.name far-too-long-name")]
#[case::plugin_type(json!({ "cni": { "cniPlugins": [{ "type": "../sh" }] } }), &[IPV4], "../sh")]
#[case::no_type(json!({ "cni": { "cniPlugins": [{ "snat": true }] } }), &[IPV4], "cni.cniPlugins")]
#[case::twice(json!({ "cni": { "cniPlugins": [{ "type": "headcni" }] } }), &[IPV4],
    "begins the chain")]
#[case::strategy(json!({ "cni": { "mode": "bridge" }, "ipam": { "strategy": "random" } }), &[IPV4],
    "ipam.strategy random")]
#[case::ipam(json!({ "ipam": { "type": "headcni" } }), &[IPV4], "ipam.type headcni")]
#[case::ipam_path(json!({ "ipam": { "type": "../x" } }), &[IPV4], "ipam.type ../x")]
#[case::told_for_nothing(json!({ "ipam": { "type": "dhcp", "gateway": "10.244.1.9" } }), &[IPV4],
    "ipam.gateway 10.244.1.9")]
#[case::socket(json!({ "tailscale": { "socket": "ts.sock" } }), &[IPV4], "tailscale.socket ts.sock")]
#[case::log_file(json!({ "cni": { "logFile": "/dev/stderr" } }), &[IPV4], "/dev/stderr")]
#[case::data_dir(json!({ "ipam": { "dataDir": "leases" } }), &[IPV4], "ipam.dataDir leases")]
#[case::url(json!({ "headscale": { "url": "hs.example.org" } }), &[IPV4], "headscale.url must be")]
fn values_that_plugins_refuse_are_errors_of_their_key(
    #[case] keys: Value,
    #[case] local: &[&str],
    #[case] part: &str,
) {
    let error = attempt(&config(&keys), local).unwrap_err().explained();
    assert!(error.contains(part), "{error}");
}

#[test]
fn a_password_in_a_url_is_not_shown() {
    let keys = json!({ "headscale": { "url": "https://me:hunter2@hs.example" } });
    let error = attempt(&config(&keys), &[IPV4]).unwrap_err().explained();
    assert!(!error.contains("hunter2"), "{error}");
}
