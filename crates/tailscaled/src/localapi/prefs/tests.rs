use super::*;

fn told() -> Value {
    json!({
        "ControlURL": "https://10.0.0.1:8443", "RouteAll": true, "CorpDNS": false,
        "WantRunning": true, "LoggedOut": false, "Hostname": "n1", "OperatorUser": "max",
        "AdvertiseRoutes": ["10.244.1.0/24"], "AdvertiseTags": null, "NoSNAT": true,
        "NoStatefulFiltering": null, "NetfilterMode": 2, "ExitNodeID": "x",
        "ShieldsUp": true,
        "AutoUpdate": { "Check": true, "Apply": null },
        "Config": { "PrivateNodeKey": "privkey:secret" },
    })
}

#[test]
fn what_was_told_is_read_without_its_keys() {
    let prefs = Prefs::read(&told());
    assert_eq!(prefs.hostname, "n1");
    assert_eq!(prefs.advertise_tags, [] as [String; 0]);
    assert_eq!(prefs.netfilter_mode, NetfilterMode::On);
    assert_eq!(prefs.no_stateful_filtering, None);
    assert!(prefs.shields_up);
    assert!(prefs.auto_update_check && prefs.auto_update_apply.is_none());
    assert!(!format!("{prefs:?}").contains("secret"));
}

#[test]
fn only_what_is_meant_is_marked() {
    let edit = PrefsEdit {
        advertise_routes: Some(vec![]),
        no_stateful_filtering: Some(None),
        shields_up: Some(false),
        auto_update_check: Some(false),
        ..PrefsEdit::default()
    };
    let patch = json!({
        "AdvertiseRoutes": [], "AdvertiseRoutesSet": true,
        "NoStatefulFiltering": null, "NoStatefulFilteringSet": true,
        "ShieldsUp": false, "ShieldsUpSet": true,
        "AutoUpdate": { "Check": false }, "AutoUpdateSet": { "CheckSet": true },
    });
    assert_eq!(edit.patch(), patch);
    assert!(!edit.is_empty() && PrefsEdit::default().is_empty());
}

#[test]
fn what_is_kept_survives_a_file_and_can_be_restored() {
    let kept = Prefs::read(&told()).keep();
    let text = serde_json::to_string(&kept).unwrap();
    let read: KeptPrefs = serde_json::from_str(&text).unwrap();
    assert_eq!(read, kept);
    let patch = read.restore().patch();
    assert_eq!(patch["AdvertiseRoutes"], json!(["10.244.1.0/24"]));
    assert_eq!(patch["NoStatefulFilteringSet"], true);
    assert_eq!(patch.as_object().unwrap().len(), 8);
}

#[test]
fn a_changed_start_keeps_what_we_know_nothing_of() {
    let edit = PrefsEdit {
        hostname: Some("n2".to_owned()),
        auto_update_check: Some(false),
        ..PrefsEdit::default()
    };
    let value = StartPrefs::changed(&Prefs::read(&told()), &edit).value();
    assert_eq!(value["OperatorUser"], "max");
    assert_eq!(value["Hostname"], "n2");
    assert_eq!(
        value["AutoUpdate"],
        json!({ "Check": false, "Apply": null })
    );
    assert_eq!(value.get("Config"), None);
}

#[test]
fn a_fresh_start_leaves_nothing_to_zero_that_would_hurt() {
    let value = StartPrefs::fresh(&PrefsEdit::default()).value();
    assert_eq!(value["NetfilterMode"], 2);
    assert_eq!(value["WantRunning"], true);
    assert_eq!(value["CorpDNS"], false);
}
