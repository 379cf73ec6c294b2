use node_core::conditions::Condition;
use node_core::metrics::PodLabels;
use rstest::rstest;
use serde_json::Value;

use crate::openmetrics::read;
use crate::server::Admin;

#[test]
fn the_daemon_is_healthy_before_it_is_ready() {
    let admin = Admin::new();
    let health = admin.get("/healthz");
    assert_eq!((health.status, health.text()), (200, "ok\n"));
    assert_eq!(admin.get("/ready").status, 503);
}

#[test]
fn ready_follows_the_required_conditions_and_lists_all() {
    let admin = Admin::new();
    for condition in Condition::ALL {
        admin.context.conditions.holds(condition, "as it should be");
    }
    let ready = admin.get("/ready");
    let body: Value = serde_json::from_slice(&ready.body).unwrap();
    assert_eq!((ready.status, &body["ready"]), (200, &Value::Bool(true)));
    assert_eq!(ready.header("content-type"), "application/json");

    let conditions = &admin.context.conditions;
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
#[case("")]
#[case("Accept: application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.1\r\n")]
#[case("Accept: text/plain\r\n")]
fn metrics_are_openmetrics_whatever_the_client_accepts(#[case] accept: &str) {
    let admin = Admin::new();
    let labels = PodLabels {
        namespace: Some("default".to_owned()),
        pod_name: Some("a\nheadcni_pods 99\n".to_owned()),
    };
    let times = &admin.context.metrics.setup_duration;
    times.get_or_create(&labels).observe(0.002);
    let response = admin.send(&format!("GET /metrics HTTP/1.1\r\nHost: x\r\n{accept}\r\n"));
    assert_eq!(response.status, 200);
    assert_eq!(
        response.header("content-type"),
        "application/openmetrics-text; version=1.0.0; charset=utf-8"
    );
    let families = read(response.text()).unwrap();
    let setup = &families["headcni_pod_network_setup_duration_seconds"];
    assert_eq!(setup.samples[0].labels["pod_name"], "a\nheadcni_pods 99\n");
    assert!(families.contains_key("process_resident_memory_bytes"));
}

#[rstest]
#[case("/healthz")]
#[case("/ready")]
#[case("/metrics")]
fn head_requests_have_no_body(#[case] path: &str) {
    let admin = Admin::new();
    let head = admin.send(&format!("HEAD {path} HTTP/1.1\r\nHost: x\r\n\r\n"));
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
fn other_requests_are_refused(#[case] request: &str, #[case] status: u16) {
    let response = Admin::new().send(request);
    assert_eq!(response.status, status, "{response:?}");
}

#[test]
fn responses_are_not_cached_and_not_sniffed() {
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
    let refused = admin.send("POST /ready HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(refused.header("allow"), "GET,HEAD");
}
