use serde_json::json;

use super::*;

fn peer() -> Value {
    json!({
        "ID": "2", "NodeID": 2, "PublicKey": "nodekey:02", "HostName": "node2",
        "DNSName": "node2.tail.test.", "UserID": 5,
        "TailscaleIPs": ["100.64.0.2", "fd7a:115c:a1e0::2"],
        "AllowedIPs": ["100.64.0.2/32", "fd7a:115c:a1e0::2/128", "10.244.2.0/24"],
        "PrimaryRoutes": ["10.244.2.0/24"], "Tags": ["tag:k8s-node"],
        "Addrs": ["10.99.0.12:41641"], "CurAddr": "10.99.0.12:41641", "Relay": "lab",
        "RxBytes": 5, "TxBytes": 6, "LastHandshake": "2026-11-15T19:40:23.5Z",
        "Online": true, "Active": true, "KeyExpiry": "0001-01-01T00:00:00Z",
    })
}

#[test]
fn every_field_of_a_peer_is_parsed() {
    let status = Status::parse(&json!({
        "Version": "1.102.5", "BackendState": "Running", "HaveNodeKey": true, "AuthURL": "",
        "TailscaleIPs": ["100.64.0.1"], "Health": ["relay is far"], "TUN": false,
        "Self": { "ID": "1", "PublicKey": "nodekey:01", "PrimaryRoutes": ["10.244.1.0/24"] },
        "CurrentTailnet": { "MagicDNSSuffix": "tail.test" }, "MagicDNSSuffix": "old",
        "Peer": { "nodekey:02": peer() },
    }));
    assert_eq!(status.state, BackendState::Running);
    assert_eq!(status.auth_url, None);
    assert_eq!(status.has_tun, Some(false));
    assert_eq!(status.magic_dns_suffix.as_deref(), Some("tail.test"));
    assert_eq!(
        status.self_node.primary_routes,
        ["10.244.1.0/24".parse().unwrap()]
    );
    let [peer] = &status.peers[..] else {
        panic!("{status:?}")
    };
    assert_eq!(peer.node_id, Some(2));
    assert_eq!(peer.allowed_ips.len(), 3);
    assert_eq!(peer.primary_routes, ["10.244.2.0/24".parse().unwrap()]);
    assert_eq!(peer.cur_addr, Some("10.99.0.12:41641".parse().unwrap()));
    assert_eq!((peer.rx_bytes, peer.tx_bytes), (5, 6));
    assert!(peer.is_online && peer.is_active && !peer.is_expired);
    assert!(peer.last_handshake.is_some());
    assert_eq!(peer.key_expiry, None);
}

#[test]
fn null_fields_of_a_logged_out_tailscaled_are_empty() {
    let status = Status::parse(&json!({
        "Version": "1.102.5", "BackendState": "NeedsLogin", "TailscaleIPs": null, "Self": null,
        "Peer": null, "User": null, "ClientVersion": null, "CurrentTailnet": null,
        "Health": ["You are logged out. The last login error was: authkey already used"],
    }));
    assert_eq!(status.state, BackendState::NeedsLogin);
    assert_eq!(status.self_node, PeerStatus::default());
    assert_eq!(status.peers, []);
    assert_eq!(status.login_error(), Some("authkey already used"));
    assert_eq!(status.has_tun, None);
}

/// As 1.102 reports it after Headscale deleted the node, and cases that look similar.
#[test]
fn a_running_node_that_control_rejects_is_detected() {
    let is_rejected = |is_online: bool, url: &str, warning: Option<&str>| {
        let warning = warning.map(|error| format!("The last login error was: {error}"));
        let status = Status::parse(&json!({
            "BackendState": "Running", "AuthURL": url, "Health": Vec::from_iter(warning),
            "Self": { "PublicKey": "nodekey:01", "Online": is_online },
        }));
        status.is_rejected_by_control()
    };
    let url = "https://10.99.0.1/register/x";
    assert!(is_rejected(false, url, None));
    assert!(is_rejected(false, "", Some("authkey already used")));
    // An interactive login is pending.
    assert!(!is_rejected(true, url, None));
    assert!(!is_rejected(true, "", Some("authkey already used")));
    // The control server is unreachable.
    assert!(!is_rejected(false, "", None));
    assert!(!is_rejected(false, "", Some("connection refused")));
    assert!(!is_rejected(false, "", Some("x509: unknown authority")));
}

#[test]
fn an_invalid_peer_does_not_hide_the_others() {
    let mut invalid = peer();
    invalid["TailscaleIPs"] = json!("not a list");
    invalid["RxBytes"] = json!(-1);
    let status = Status::parse(&json!({
        "BackendState": "Future",
        "Peer": { "a": 5, "b": null, "c": { "PublicKey": 7 }, "d": invalid, "e": peer() },
    }));
    assert_eq!(status.state, BackendState::Other("Future".to_owned()));
    assert_eq!(status.peers.len(), 2);
    assert_eq!(status.invalid_peers, 3);
    assert_eq!(status.peers[0].addresses, [] as [IpAddr; 0]);
}

#[test]
fn states_have_names_and_numbers() {
    assert_eq!(BackendState::from_number(6), BackendState::Running);
    assert_eq!(BackendState::from_name("Running"), BackendState::Running);
    assert_eq!(BackendState::Running.to_string(), "Running");
    assert_eq!(
        BackendState::from_number(99),
        BackendState::Other("99".to_owned())
    );
    assert_eq!(BackendState::from_number(99).to_string(), "99");
}
