use std::time::{Duration, UNIX_EPOCH};

use serde_json::json;

use super::*;

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

fn state(conditions: &Conditions, wanted: Condition) -> State {
    let states: BTreeMap<Condition, State> = conditions.snapshot().into_iter().collect();
    states[&wanted].clone()
}

#[test]
fn all_conditions_are_there_in_order_before_anybody_reports() {
    let conditions = Conditions::default();
    let names: Vec<Condition> = conditions
        .snapshot()
        .iter()
        .map(|(name, _)| *name)
        .collect();
    assert_eq!(names, Condition::ALL);
    assert!(!conditions.is_ready());
}

#[test]
fn since_is_the_moment_of_the_flip_and_survives_other_words() {
    let conditions = Conditions::default();
    let condition = Condition::NetworkReady;
    assert_eq!(
        conditions.note(condition, true, "12 rules", at(100)),
        Some(Change::Flipped)
    );
    assert_eq!(
        conditions.note(condition, true, "13 rules", at(200)),
        Some(Change::Reworded)
    );
    assert_eq!(conditions.note(condition, true, "13 rules", at(300)), None);
    let after = state(&conditions, condition);
    assert_eq!((after.since, after.message.as_str()), (at(100), "13 rules"));
    assert_eq!(
        conditions.note(condition, false, "no nft", at(400)),
        Some(Change::Flipped)
    );
    assert_eq!(state(&conditions, condition).since, at(400));
}

#[test]
fn the_node_is_ready_when_all_that_is_required_holds_and_not_before() {
    let conditions = Conditions::default();
    let required = Condition::ALL
        .iter()
        .filter(|condition| condition.is_required());
    for condition in required {
        assert!(!conditions.is_ready() && !conditions.report().ready);
        conditions.holds(*condition, "");
    }
    assert!(conditions.is_ready() && conditions.report().ready);
    conditions.fails(Condition::IpsAvailable, "254 of 254 are used");
    assert!(
        conditions.is_ready(),
        "no address left makes no node unready"
    );
    conditions.fails(Condition::SocketOpen, "in use");
    assert!(!conditions.is_ready() && !conditions.report().ready);
}

#[test]
fn a_report_reads_like_a_condition_of_kubernetes() {
    let conditions = Conditions::default();
    conditions.note(
        Condition::PodCidrKnown,
        true,
        "10.244.1.0/24",
        at(951_782_400),
    );
    let report = serde_json::to_value(conditions.report()).unwrap();
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
fn a_flip_is_logged_once_however_often_it_is_reported() {
    let conditions = Conditions::default();
    let mut logged = Vec::new();
    let mut report = |condition, holds, message| {
        let change = conditions.note(condition, holds, message, at(1));
        logged.extend(change.map(|change| (level(condition, holds, change), condition.name())));
    };
    for _ in 0..3 {
        report(Condition::NetworkReady, false, "no nft");
    }
    for _ in 0..3 {
        report(Condition::NetworkReady, true, "12 rules");
    }
    report(Condition::NetworkReady, true, "13 rules");
    report(Condition::IpsAvailable, false, "all used");
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
