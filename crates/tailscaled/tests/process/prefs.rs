//! Prefs are changed, read back and restored.

use lab::Node;
use tailscaled::localapi::{Error, MaskedPrefs, NetfilterMode};

use crate::harness::{TailscaledFixture, await_ready, node_prefs};

#[tokio::test]
async fn changed_prefs_can_be_restored() {
    let node = Node::new("n1").unwrap();
    let tailscaled = TailscaledFixture::new(&node, None);
    let mut supervisor = tailscaled.supervisor();
    supervisor.ensure().await.unwrap();
    let api = tailscaled.api();
    await_ready(&api).await;

    let before = api.prefs().await.unwrap();
    assert_eq!(before.netfilter_mode, NetfilterMode::On);

    let edit = MaskedPrefs {
        corp_dns: Some(false),
        auto_update_check: Some(false),
        ..node_prefs("other", "10.244.1.0/24")
    };
    let now = api.edit_prefs(&edit).await.unwrap();
    assert_eq!(now.hostname, "other");
    assert_eq!(now.advertise_routes, ["10.244.1.0/24".parse().unwrap()]);
    assert_eq!(now.no_stateful_filtering, Some(true));
    assert!(now.no_snat && now.route_all && !now.corp_dns && !now.auto_update_check);
    assert_eq!(api.prefs().await.unwrap(), now);

    let restore = MaskedPrefs {
        advertise_routes: Some(before.advertise_routes.clone()),
        no_stateful_filtering: Some(before.no_stateful_filtering),
        ..MaskedPrefs::default()
    };
    let after = api.edit_prefs(&restore).await.unwrap();
    assert_eq!(after.advertise_routes, before.advertise_routes);
    assert_eq!(after.no_stateful_filtering, before.no_stateful_filtering);
    assert_eq!(after.hostname, "other");

    // It has three values: true, false and unset.
    for value in [Some(true), Some(false), None] {
        let edit = MaskedPrefs {
            no_stateful_filtering: Some(value),
            ..MaskedPrefs::default()
        };
        let now = api.edit_prefs(&edit).await.unwrap();
        assert_eq!(now.no_stateful_filtering, value);
        assert_eq!(api.prefs().await.unwrap().no_stateful_filtering, value);
    }

    let bad = MaskedPrefs {
        advertise_routes: Some(vec!["10.0.0.1/24".parse().unwrap()]),
        ..MaskedPrefs::default()
    };
    let error = api.edit_prefs(&bad).await.unwrap_err();
    assert!(matches!(error, Error::Status { .. }), "{error}");
    assert!(error.to_string().contains("non-address bits"), "{error}");
}
