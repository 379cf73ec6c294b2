use super::*;

/// As 0.29 writes it.
const NEW: &str = r#"{"id":"1","machineKey":"mkey:aa","nodeKey":"nodekey:bb","discoKey":"discokey:cc",
  "ipAddresses":["100.64.0.1","fd7a:115c:a1e0::1"],"name":"node1",
  "user":{"id":"2147455555","name":"tagged-devices","createdAt":null},
  "lastSeen":"2026-11-16T06:00:00Z","expiry":null,"preAuthKey":{"id":"4","key":"hskey-auth-x-***"},
  "createdAt":"2026-11-15T06:00:00.5Z","registerMethod":"REGISTER_METHOD_AUTH_KEY",
  "givenName":"node1","online":true,"approvedRoutes":["fd00::/64","10.244.1.0/24"],
  "availableRoutes":["10.244.1.0/24","fd00::/64"],"subnetRoutes":["10.244.1.0/24"],
  "tags":["tag:k8s-node"]}"#;

/// As 0.26 does.
const OLD: &str = r#"{"id":"2","machineKey":"mkey:aa","nodeKey":"nodekey:bb","discoKey":"",
  "ipAddresses":[],"name":"node2","user":{"id":"1","name":"lab"},"lastSeen":null,
  "expiry":"0001-01-01T00:00:00Z","preAuthKey":{"id":"4","key":"0123456789abcdef"},
  "forcedTags":["tag:b","tag:a"],"invalidTags":["tag:wished"],"validTags":["tag:a"],
  "givenName":"node2","online":false,"approvedRoutes":[],"availableRoutes":[],"subnetRoutes":[]}"#;

#[test]
fn a_node_of_the_newest_version() {
    let node: Node = serde_json::from_str(NEW).unwrap();
    assert_eq!((node.id, node.pre_auth_key), (1, Some(4)));
    assert_eq!(node.addresses.len(), 2);
    assert_eq!(node.user.unwrap().id, 2_147_455_555);
    assert_eq!(node.approved, node.available, "both are sorted");
    assert_eq!(node.serving, ["10.244.1.0/24".parse().unwrap()]);
    assert_eq!(node.tags, ["tag:k8s-node"]);
    assert!(node.is_online && node.expiry.is_none());
}

#[test]
fn an_old_node_has_only_the_tags_that_it_may_have() {
    let node: Node = serde_json::from_str(OLD).unwrap();
    assert_eq!(node.tags, ["tag:a", "tag:b"]);
    assert_eq!(node.expiry, None);
    assert!(!format!("{node:?}").contains("0123456789abcdef"));
}

#[test]
fn an_empty_server_has_no_nodes() {
    for text in ["{}", r#"{"nodes":[]}"#, r#"{"nodes":null}"#] {
        assert!(serde_json::from_str::<All>(text).unwrap().nodes.is_empty());
    }
}
