use std::collections::BTreeSet;

use rstest::rstest;

use super::*;
use crate::conditions::Condition;
use openmetrics::{Families, Family, read};

#[path = "../../../../daemon/tests/admin/openmetrics.rs"]
mod openmetrics;

const HOSTILE: &str = "a\"b\\c\nheadcni_forged 1\n# EOF";

/// Every metric with a value. A new field does not compile until it is added here, and so to
/// docs/metrics.md.
fn all_used() -> Metrics {
    let metrics = Metrics::new();
    let Metrics {
        registry: _,
        process: _,
        setup_duration,
        allocations,
        errors,
        call_duration,
        step_duration,
        interfaces,
        reconcile_duration,
        reconcile_errors,
        repairs,
        conditions: _,
        pool_size,
        pool_used,
        orphans,
        orphans_collected,
        pods,
        events,
        request_duration,
        log_lines_dropped,
        mesh,
    } = &metrics;
    let pod = PodLabels {
        namespace: Some("default".to_owned()),
        pod_name: Some(HOSTILE.to_owned()),
    };
    for labels in [PodLabels::default(), pod] {
        for seconds in [0.0, 0.0003, 0.02, 99.0] {
            setup_duration.get_or_create(&labels).observe(seconds);
        }
    }
    allocations.get_or_create(&ByStrategy::default()).inc();
    errors
        .get_or_create(&ByError {
            error_type: HOSTILE.to_owned(),
        })
        .inc();
    call_duration.get_or_create(&ByCall::default()).observe(1.0);
    step_duration.get_or_create(&ByStep::default()).observe(1.0);
    interfaces.get_or_create(&ByOutcome::default()).inc();
    for controller in ["hostnet", "cniconf"] {
        let by = ByController {
            controller: controller.to_owned(),
        };
        reconcile_duration.get_or_create(&by).observe(1.0);
    }
    reconcile_errors
        .get_or_create(&ByController::default())
        .inc();
    repairs.get_or_create(&ByController::default()).inc();
    pool_size.get_or_create(&ByFamily::default()).set(254.0);
    pool_used.get_or_create(&ByFamily::default()).set(3.0);
    orphans.get_or_create(&ByKind::default()).set(1);
    orphans_collected.get_or_create(&ByKind::default()).inc();
    pods.set(7);
    events.get_or_create(&ByOutcome::default()).inc();
    request_duration
        .get_or_create(&ByRequest::default())
        .observe(1.0);
    log_lines_dropped.inc();
    use_mesh(mesh);
    metrics
}

fn use_mesh(mesh: &MeshMetrics) {
    let MeshMetrics {
        peers,
        latency,
        handshake_age,
        bytes,
        path_changes,
        credential_expiry,
        routes,
        server_duration,
        repairs,
        clock_skew,
        time_to_serve,
        began: _,
        has_served: _,
    } = mesh;
    peers.get_or_create(&ByPath::default()).set(2);
    latency.observe(0.01);
    handshake_age.set(3.0);
    bytes.get_or_create(&ByTraffic::default()).inc();
    path_changes.inc();
    let by = ByCredential::default();
    credential_expiry.get_or_create(&by).set(86_400.0);
    routes.get_or_create(&ByRouteState::default()).set(1);
    let call = ByServerCall::default();
    server_duration.get_or_create(&call).observe(0.3);
    repairs.get_or_create(&ByRepair::default()).inc();
    clock_skew.set(-0.5);
    time_to_serve.set(4.0);
}

fn families() -> Families {
    let body = all_used().render(&Conditions::default()).unwrap();
    read(&body).unwrap_or_else(|why| panic!("{why}\n{body}"))
}

/// The name of a family's samples, without the suffixes of histograms.
fn series_name(name: &str, family: &Family) -> String {
    match family.kind.as_str() {
        "counter" => format!("{name}_total"),
        "info" => format!("{name}_info"),
        _ => name.to_owned(),
    }
}

#[test]
fn the_body_is_valid_openmetrics() {
    let families = families();
    let errors = families
        .values()
        .flat_map(|family| &family.samples)
        .find(|sample| sample.name == "headcni_network_errors_total");
    assert_eq!(errors.unwrap().labels["error_type"], HOSTILE);
}

#[rstest]
#[case("headcni_pod_network_setup_duration_seconds", "histogram", &["namespace", "pod_name"])]
#[case("headcni_ip_allocations_total", "counter", &["strategy"])]
#[case("headcni_network_errors_total", "counter", &["error_type"])]
#[case("headcni_build_info", "info", &["version"])]
#[case("headcni_condition", "gauge", &["condition"])]
#[case("process_cpu_seconds_total", "counter", &[])]
#[case("process_resident_memory_bytes", "gauge", &[])]
#[case("process_open_fds", "gauge", &[])]
#[case("process_start_time_seconds", "gauge", &[])]
fn documented_names_types_and_labels_are_served(
    #[case] name: &str,
    #[case] kind: &str,
    #[case] wanted: &[&str],
) {
    let families = families();
    let is_named = |(family, content): &(&String, &Family)| series_name(family, content) == name;
    let (_, family) = families.iter().find(is_named).unwrap();
    assert_eq!(family.kind, kind);
    assert_eq!(labels(family), wanted.iter().copied().collect());
}

#[test]
fn pod_labels_are_absent_by_default() {
    let metrics = Metrics::new();
    metrics
        .setup_duration
        .get_or_create(&PodLabels::default())
        .observe(0.001);
    let body = metrics.render(&Conditions::default()).unwrap();
    assert!(
        !body.contains("pod_name") && !body.contains("namespace"),
        "{body}"
    );
}

#[test]
fn a_scrape_has_the_current_status_of_each_condition() {
    let (metrics, conditions) = (Metrics::new(), Conditions::default());
    let value = |name: &str| {
        let body = metrics.render(&conditions).unwrap();
        let families = read(&body).unwrap();
        let samples = &families["headcni_condition"].samples;
        assert_eq!(samples.len(), Condition::ALL.len());
        let sample = samples
            .iter()
            .find(|sample| sample.labels["condition"] == name);
        sample.unwrap().value
    };
    assert!(value("SocketOpen") < 0.5);
    conditions.holds(Condition::SocketOpen, "");
    assert!(value("SocketOpen") > 0.5);
    conditions.fails(Condition::SocketOpen, "");
    assert!(value("SocketOpen") < 0.5);
}

/// Without the `le` of histograms.
fn labels(family: &Family) -> BTreeSet<&str> {
    let labels = family
        .samples
        .iter()
        .flat_map(|sample| sample.labels.keys());
    labels
        .map(String::as_str)
        .filter(|label| *label != "le")
        .collect()
}

#[test]
fn the_documentation_lists_every_metric_with_type_and_labels() {
    let documented: BTreeSet<Vec<String>> = include_str!("../../../../../docs/metrics.md")
        .lines()
        .filter(|line| line.starts_with("| `headcni_") || line.starts_with("| `process_"))
        .map(|line| {
            let cells = line.split('|').skip(1).take(3);
            cells.map(|cell| cell.trim().replace('`', "")).collect()
        })
        .collect();
    let served: BTreeSet<Vec<String>> = families()
        .iter()
        .map(|(name, family)| {
            let labels: Vec<&str> = labels(family).into_iter().collect();
            let name = series_name(name, family);
            vec![name, family.kind.clone(), labels.join(", ")]
        })
        .collect();
    assert_eq!(documented, served);
}

#[rstest]
#[case("a 1\n# EOF\n", "before any family")]
#[case("# TYPE a gauge\na 1\n", "EOF")]
#[case("# HELP a A.\n# TYPE a gauge\na 1\na 2\n# EOF\n", "second sample")]
#[case(
    "# HELP a A.\n# TYPE a gauge\na 1\n# HELP b B.\n# TYPE b gauge\nb 1\n# HELP a A.\n# EOF\n",
    "two pieces"
)]
#[case("# HELP a A.\n# TYPE a counter\na 1\n# EOF\n", "no part of a counter")]
#[case(
    "# HELP a A.\n# TYPE a gauge\na{x=\"1\",x=\"2\"} 1\n# EOF\n",
    "there twice"
)]
#[case(
    "# HELP a A.\n# TYPE a gauge\n# UNIT a seconds\na 1\n# EOF\n",
    "end in its unit"
)]
#[case(
    "# HELP a A.\n# TYPE a histogram\na_sum 1\na_count 2\na_bucket{le=\"1.0\"} 2\na_bucket{le=\"+Inf\"} 1\n# EOF\n",
    "do not grow"
)]
#[case(
    "# HELP a A.\n# TYPE a histogram\na_sum 1\na_count 2\na_bucket{le=\"1.0\"} 2\n# EOF\n",
    "+Inf"
)]
fn the_openmetrics_parser_rejects_invalid_bodies(#[case] body: &str, #[case] why: &str) {
    let error = read(body).unwrap_err();
    assert!(error.contains(why), "{error}");
}
