//! What a tailscaled is told, and told back.

use lab::Node;
use tailscaled::localapi::{Error, KeptPrefs, NetfilterMode, PrefsEdit};

use crate::scene::{Place, answers, usual};

#[tokio::test]
async fn what_is_changed_can_be_restored() {
    let node = Node::new("n1").unwrap();
    let place = Place::new(&node, None);
    let mut supervisor = place.supervisor();
    supervisor.ensure().await.unwrap();
    let api = place.api();
    answers(&api).await;

    let before = api.prefs().await.unwrap();
    assert_eq!(before.netfilter_mode, NetfilterMode::On);
    let kept = serde_json::to_string(&before.keep()).unwrap();

    let edit = PrefsEdit {
        corp_dns: Some(false),
        auto_update_check: Some(false),
        ..usual("other", "10.244.1.0/24")
    };
    let now = api.edit_prefs(&edit).await.unwrap();
    assert_eq!(now.hostname, "other");
    assert_eq!(now.advertise_routes, ["10.244.1.0/24".parse().unwrap()]);
    assert_eq!(now.no_stateful_filtering, Some(true));
    assert!(now.no_snat && now.route_all && !now.corp_dns && !now.auto_update_check);
    assert_eq!(api.prefs().await.unwrap(), now);

    let kept: KeptPrefs = serde_json::from_str(&kept).unwrap();
    api.edit_prefs(&kept.restore()).await.unwrap();
    let after = api.prefs().await.unwrap();
    assert_eq!(after.keep(), before.keep());
    assert_eq!(after.hostname, "other");

    // None of what was said, true or false, is a third value.
    for value in [Some(true), Some(false), None] {
        let edit = PrefsEdit {
            no_stateful_filtering: Some(value),
            ..PrefsEdit::default()
        };
        let now = api.edit_prefs(&edit).await.unwrap();
        assert_eq!(now.no_stateful_filtering, value);
        assert_eq!(
            api.prefs().await.unwrap().keep().no_stateful_filtering,
            value
        );
    }

    let bad = PrefsEdit {
        advertise_routes: Some(vec!["10.0.0.1/24".parse().unwrap()]),
        ..PrefsEdit::default()
    };
    let error = api.edit_prefs(&bad).await.unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error}");
    assert!(error.to_string().contains("non-address bits"), "{error}");
}
