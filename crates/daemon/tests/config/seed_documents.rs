//! The keys of the project's first documents have a place in the configuration.

use std::net::IpAddr;

use node_config::Strategy;

use crate::fixture::ConfigDir;

/// `config:` of the Helm example, verbatim.
const HELM: &str = r#"  network:
    podCIDR:
      nodeLocal: "10.244.1.0/24"  # 当前节点的本地 Pod CIDR
      base: "10.244.0.0/16"       # 集群 Pod CIDR（用于计算）
      perNode: "/24"              # 每个节点的子网大小
    serviceCIDR: "10.96.0.0/16"
    mtu: 1280
"#;

#[test]
fn the_helm_example_is_a_valid_configuration() {
    let network = ConfigDir::new(HELM).load(&[]).unwrap().config.network;
    assert_eq!(network.pod_cidr.node_local.to_string(), "10.244.1.0/24");
    assert_eq!(network.pod_cidr.base.to_string(), "10.244.0.0/16");
    assert_eq!(network.pod_cidr.per_node.ipv4, 24);
    assert_eq!(network.service_cidr.to_string(), "10.96.0.0/16");
    assert_eq!(network.mtu, 1280);
}

/// The keys of the CNI document in our configuration.
const CNI: &str = r"
cni:
  name: tailscale-cni
headscale:
  url: https://hs.binrc.com
tailscale:
  socket: /var/run/tailscale/tailscaled.sock
network:
  podCIDR:
    nodeLocal: 10.244.0.0/24
  serviceCIDR: 10.96.0.0/16
  mtu: 1280
  enableIPv6: false
ipam:
  type: host-local
  rangeStart: 10.244.0.10
  rangeEnd: 10.244.0.254
  gateway: 10.244.0.1
dns:
  magicDNS:
    enable: true
    baseDomain: cluster.local
    nameservers: [10.2.0.1]
    searchDomains: [c.binrc.com]
networkPolicy:
  enabled: true
";

#[test]
fn every_key_of_the_cni_document_is_supported() {
    let loaded = ConfigDir::new(CNI).load(&[]).unwrap();
    let config = &loaded.config;
    let ip = |text: &str| Some(text.parse::<IpAddr>().unwrap());
    assert_eq!(config.cni.name, "tailscale-cni");
    assert_eq!(
        config.headscale.url.as_deref(),
        Some("https://hs.binrc.com")
    );
    assert_eq!(
        config.network.pod_cidr.node_local.to_string(),
        "10.244.0.0/24"
    );
    assert_eq!(config.network.enable_ipv6, Some(false));
    assert_eq!(config.ipam.kind.as_deref(), Some("host-local"));
    assert_eq!(config.ipam.strategy, Strategy::Sequential);
    assert_eq!(config.ipam.range_start, ip("10.244.0.10"));
    assert_eq!(config.ipam.range_end, ip("10.244.0.254"));
    assert_eq!(config.ipam.gateway, ip("10.244.0.1"));
    let names = &config.dns.magic_dns;
    assert!(names.enable);
    assert_eq!(names.base_domain.as_deref(), Some("cluster.local"));
    assert_eq!(names.nameservers, [ip("10.2.0.1").unwrap()]);
    assert_eq!(names.search_domains, ["c.binrc.com"]);
    assert!(config.network_policy.enabled);
    assert_eq!(
        loaded.warnings.len(),
        1,
        "about policies: {:?}",
        loaded.warnings
    );
}
