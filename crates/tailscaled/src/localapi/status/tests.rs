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
fn a_member_is_read_whole() {
    let status = Status::read(&json!({
        "Version": "1.102.5", "BackendState": "Running", "HaveNodeKey": true, "AuthURL": "",
        "TailscaleIPs": ["100.64.0.1"], "Health": ["relay is far"], "TUN": false,
        "Self": { "ID": "1", "PublicKey": "nodekey:01", "PrimaryRoutes": ["10.244.1.0/24"] },
        "CurrentTailnet": { "MagicDNSSuffix": "tail.test" }, "MagicDNSSuffix": "old",
        "Peer": { "nodekey:02": peer() },
    }));
    assert_eq!(status.state, State::Running);
    assert_eq!(status.auth_url, None);
    assert_eq!(status.has_tun, Some(false));
    assert_eq!(status.domain.as_deref(), Some("tail.test"));
    assert_eq!(status.this.served, ["10.244.1.0/24".parse().unwrap()]);
    let [peer] = &status.peers[..] else {
        panic!("{status:?}")
    };
    assert_eq!(peer.node_id, Some(2));
    assert_eq!(peer.allowed.len(), 3);
    assert_eq!(peer.served, ["10.244.2.0/24".parse().unwrap()]);
    assert_eq!(peer.direct, Some("10.99.0.12:41641".parse().unwrap()));
    assert_eq!((peer.received_bytes, peer.sent_bytes), (5, 6));
    assert!(peer.is_online && peer.is_active && !peer.is_expired);
    assert!(peer.last_handshake.is_some());
    assert_eq!(peer.key_expiry, None);
}

#[test]
fn a_tailscaled_that_is_logged_out_has_nulls_everywhere() {
    let status = Status::read(&json!({
        "Version": "1.102.5", "BackendState": "NeedsLogin", "TailscaleIPs": null, "Self": null,
        "Peer": null, "User": null, "ClientVersion": null, "CurrentTailnet": null,
        "Health": ["You are logged out. The last login error was: authkey already used"],
    }));
    assert_eq!(status.state, State::NeedsLogin);
    assert_eq!(status.this, Member::default());
    assert_eq!(status.peers, []);
    assert_eq!(status.login_error(), Some("authkey already used"));
    assert_eq!(status.has_tun, None);
}

/// As 1.102 says it of one that Headscale has deleted, and of others that look like it.
#[test]
fn one_that_is_turned_away_says_that_it_runs() {
    let is_turned_away = |is_online: bool, url: &str, complaint: Option<&str>| {
        let complaint = complaint.map(|why| format!("The last login error was: {why}"));
        let status = Status::read(&json!({
            "BackendState": "Running", "AuthURL": url, "Health": Vec::from_iter(complaint),
            "Self": { "PublicKey": "nodekey:01", "Online": is_online },
        }));
        status.is_turned_away()
    };
    let url = "https://10.99.0.1/register/x";
    assert!(is_turned_away(false, url, None));
    assert!(is_turned_away(false, "", Some("authkey already used")));
    // Somebody thinks about another login.
    assert!(!is_turned_away(true, url, None));
    assert!(!is_turned_away(true, "", Some("authkey already used")));
    // The server is away.
    assert!(!is_turned_away(false, "", None));
    assert!(!is_turned_away(false, "", Some("connection refused")));
    assert!(!is_turned_away(false, "", Some("x509: unknown authority")));
}

#[test]
fn a_bad_member_does_not_cost_the_others() {
    let mut strange = peer();
    strange["TailscaleIPs"] = json!("not a list");
    strange["RxBytes"] = json!(-1);
    let status = Status::read(&json!({
        "BackendState": "Dancing",
        "Peer": { "a": 5, "b": null, "c": { "PublicKey": 7 }, "d": strange, "e": peer() },
    }));
    assert_eq!(status.state, State::Other("Dancing".to_owned()));
    assert_eq!(status.peers.len(), 2);
    assert_eq!(status.unreadable_peers, 3);
    assert_eq!(status.peers[0].addresses, [] as [IpAddr; 0]);
}

#[test]
fn states_have_names_and_numbers() {
    assert_eq!(State::numbered(6), State::Running);
    assert_eq!(State::named("Running"), State::Running);
    assert_eq!(State::Running.to_string(), "Running");
    assert_eq!(State::numbered(99), State::Other("99".to_owned()));
    assert_eq!(State::numbered(99).to_string(), "99");
}
