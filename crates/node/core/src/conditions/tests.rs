use std::time::{Duration, UNIX_EPOCH};

use serde_json::json;

use super::ConditionStatus::{False, True};
use super::*;

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

fn report(conditions: &Conditions, wanted: Condition) -> ConditionReport {
    let reports: BTreeMap<_, _> = conditions.snapshot().into_iter().collect();
    reports[&wanted].clone()
}

#[test]
fn all_conditions_are_unknown_until_they_are_reported() {
    let conditions = Conditions::default();
    let names: Vec<Condition> = conditions
        .snapshot()
        .iter()
        .map(|(name, _)| *name)
        .collect();
    assert_eq!(names, Condition::ALL);
    let readiness = conditions.readiness();
    let mut statuses = readiness.conditions.iter().map(|one| one.status);
    assert!(statuses.all(|status| status == ConditionStatus::Unknown));
    assert!(!conditions.is_ready());
}

#[test]
fn since_changes_with_the_status_but_not_with_the_message() {
    let conditions = Conditions::default();
    let condition = Condition::NetworkReady;
    assert_eq!(
        conditions.update(condition, True, "12 rules", at(100)),
        Some(Change::Status)
    );
    assert_eq!(
        conditions.update(condition, True, "13 rules", at(200)),
        Some(Change::Message)
    );
    assert_eq!(
        conditions.update(condition, True, "13 rules", at(300)),
        None
    );
    let after = report(&conditions, condition);
    assert_eq!((after.since, after.message.as_str()), (at(100), "13 rules"));
    assert_eq!(
        conditions.update(condition, False, "no nft", at(400)),
        Some(Change::Status)
    );
    assert_eq!(report(&conditions, condition).since, at(400));
}

#[test]
fn the_node_is_ready_when_all_required_conditions_are_true() {
    let conditions = Conditions::default();
    let required = Condition::ALL
        .iter()
        .filter(|condition| condition.is_required());
    for condition in required {
        assert!(!conditions.is_ready() && !conditions.readiness().ready);
        conditions.holds(*condition, "");
    }
    assert!(conditions.is_ready() && conditions.readiness().ready);
    conditions.fails(Condition::IpsAvailable, "254 of 254 leased");
    assert!(conditions.is_ready(), "IPsAvailable is not required");
    conditions.fails(Condition::SocketOpen, "in use");
    assert!(!conditions.is_ready() && !conditions.readiness().ready);
}

#[test]
fn readiness_has_the_fields_of_a_kubernetes_condition() {
    let conditions = Conditions::default();
    conditions.update(
        Condition::PodCidrKnown,
        True,
        "10.244.1.0/24",
        at(951_782_400),
    );
    let report = serde_json::to_value(conditions.readiness()).unwrap();
    assert_eq!(
        report["conditions"][2],
        json!({
            "name": "PodCIDRKnown",
            "status": "True",
            "required": true,
            "message": "10.244.1.0/24",
            "since": "2000-02-29T00:00:00.000Z",
        })
    );
    assert_eq!(report["ready"], json!(false));
    assert_eq!(
        report["conditions"].as_array().unwrap().len(),
        Condition::ALL.len()
    );
}

#[test]
fn a_change_is_logged_once_however_often_it_is_reported() {
    let conditions = Conditions::default();
    let mut logged = Vec::new();
    let mut report = |condition, status, message| {
        let change = conditions.update(condition, status, message, at(1));
        logged.extend(change.map(|change| (level(condition, status, change), condition.name())));
    };
    for _ in 0..3 {
        report(Condition::NetworkReady, False, "no nft");
    }
    for _ in 0..3 {
        report(Condition::NetworkReady, True, "12 rules");
    }
    report(Condition::NetworkReady, True, "13 rules");
    report(Condition::IpsAvailable, False, "all leased");
    assert_eq!(
        logged,
        [
            (Level::ERROR, "NetworkReady"),
            (Level::INFO, "NetworkReady"),
            (Level::DEBUG, "NetworkReady"),
            (Level::WARN, "IPsAvailable"),
        ]
    );
}
