use node_core::conditions::Condition;
use node_core::metrics::{Exposition, PodLabels};
use rstest::rstest;
use serde_json::Value;

use crate::openmetrics::read;
use crate::scene::Admin;

#[test]
fn a_daemon_whose_loop_turns_is_healthy_before_anything_is_ready() {
    let admin = Admin::new();
    let health = admin.get("/healthz");
    assert_eq!((health.status, health.text()), (200, "ok\n"));
    assert_eq!(admin.get("/ready").status, 503);
}

#[test]
fn readiness_follows_the_conditions_and_names_them() {
    let admin = Admin::new();
    for condition in Condition::ALL {
        admin.sources.conditions.holds(condition, "as it should be");
    }
    let ready = admin.get("/ready");
    let body: Value = serde_json::from_slice(&ready.body).unwrap();
    assert_eq!((ready.status, &body["ready"]), (200, &Value::Bool(true)));
    assert_eq!(ready.header("content-type"), "application/json");

    let conditions = &admin.sources.conditions;
    conditions.fails(Condition::ForwardingAllowed, "docker drops\n\"all\"");
    let unready = admin.get("/ready");
    let body: Value = serde_json::from_slice(&unready.body).unwrap();
    assert_eq!((unready.status, &body["ready"]), (503, &Value::Bool(false)));
    let named = body["conditions"].as_array().unwrap().iter();
    let named = named
        .clone()
        .find(|condition| condition["name"] == "ForwardingAllowed")
        .unwrap();
    assert_eq!(named["status"], "False");
    assert_eq!(named["message"], "docker drops\n\"all\"");

    conditions.holds(Condition::ForwardingAllowed, "");
    conditions.fails(Condition::IpsAvailable, "none");
    assert_eq!(admin.get("/ready").status, 200);
}

#[rstest]
#[case("", Exposition::Text, "text/plain; version=0.0.4; charset=utf-8")]
#[case(
    "Accept: application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.1\r\n",
    Exposition::OpenMetrics,
    "application/openmetrics-text; version=1.0.0; charset=utf-8"
)]
fn metrics_come_in_the_text_that_the_scraper_wants(
    #[case] accept: &str,
    #[case] exposition: Exposition,
    #[case] content_type: &str,
) {
    let admin = Admin::new();
    let labels = PodLabels {
        namespace: Some("default".to_owned()),
        pod_name: Some("a\nheadcni_pods 99\n".to_owned()),
    };
    let times = &admin.sources.metrics.setup_duration;
    times.get_or_create(&labels).observe(0.002);
    let response = admin.ask(&format!("GET /metrics HTTP/1.1\r\nHost: x\r\n{accept}\r\n"));
    assert_eq!(response.status, 200);
    assert_eq!(response.header("content-type"), content_type);
    let families = read(response.text(), exposition).unwrap();
    let setup = &families["headcni_pod_network_setup_duration_seconds"];
    assert_eq!(setup.samples[0].labels["pod_name"], "a\nheadcni_pods 99\n");
    assert!(families.contains_key("process_resident_memory_bytes"));
}

#[rstest]
#[case("/healthz")]
#[case("/ready")]
#[case("/metrics")]
fn a_head_is_answered_without_a_body(#[case] path: &str) {
    let admin = Admin::new();
    let head = admin.ask(&format!("HEAD {path} HTTP/1.1\r\nHost: x\r\n\r\n"));
    assert_eq!(head.status, admin.get(path).status);
    assert!(head.body.is_empty());
    assert_ne!(head.header("content-length"), "");
}

#[rstest]
#[case("POST /ready HTTP/1.1\r\nHost: x\r\n\r\n", 405)]
#[case("DELETE /metrics HTTP/1.1\r\nHost: x\r\n\r\n", 405)]
#[case(
    "GET /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc",
    413
)]
#[case(
    "GET /metrics HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    413
)]
#[case("GET / HTTP/1.1\r\nHost: x\r\n\r\n", 404)]
#[case("GET /../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n", 404)]
#[case("GET /healthz/ HTTP/1.1\r\nHost: x\r\n\r\n", 404)]
#[case("nonsense\r\n\r\n", 400)]
fn what_is_not_served_is_refused(#[case] request: &str, #[case] status: u16) {
    let response = Admin::new().ask(request);
    assert_eq!(response.status, status, "{response:?}");
}

#[test]
fn answers_are_of_this_moment_and_say_what_they_are() {
    let admin = Admin::new();
    for path in ["/healthz", "/ready", "/metrics", "/debug/pprof", "/nothing"] {
        let response = admin.get(path);
        assert_eq!(response.header("cache-control"), "no-store", "{path}");
        assert_eq!(
            response.header("x-content-type-options"),
            "nosniff",
            "{path}"
        );
    }
    assert!(admin.get("/nothing").text().contains("/healthz"));
    let refused = admin.ask("POST /ready HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(refused.header("allow"), "GET,HEAD");
}
