//! Metrics of CNI calls, from the plugin's events. Every label has a bounded set of values, except
//! the pod labels, which are opt-in and removed with the pod.

use std::time::Duration;

use api::event::{Event, EventStep, StepOutcome, step};
use cni::code;

use node_core::metrics::{ByCall, ByError, ByOutcome, ByStep, ByStrategy, Metrics, PodLabels};

/// The values of `error_type`, besides `other`.
pub const ERROR_TYPES: [&str; 15] = [
    "incompatible_version",
    "unsupported_field",
    "unknown_container",
    "invalid_environment",
    "io",
    "kernel",
    "decoding",
    "invalid_config",
    "try_again",
    "not_available",
    "delegate_broken",
    "timeout",
    "already_attached",
    "ipam_exhausted",
    "address_refused",
];

/// The values of `step`, besides `other`: the steps of native mode, and well-known plugins.
pub const STEPS: [&str; 27] = [
    step::IPAM,
    step::RULESET,
    step::LINK,
    step::DNS,
    step::PORTS,
    "bandwidth",
    "bridge",
    "calico",
    "calico-ipam",
    "cilium-cni",
    "dhcp",
    "dummy",
    "firewall",
    "flannel",
    "headcni-ipam",
    "host-device",
    "host-local",
    "ipvlan",
    "loopback",
    "macvlan",
    "portmap",
    "ptp",
    "sbr",
    "static",
    "tuning",
    "vlan",
    "whereabouts",
];

/// The values of `strategy`, besides `other`: our own, and other IPAM plugins.
pub const STRATEGIES: [&str; 8] = [
    "sequential",
    "random",
    "dense-pack",
    "host-local",
    "dhcp",
    "static",
    "whereabouts",
    "calico-ipam",
];

const OTHER: &str = "other";

/// Error codes of headcni-ipam beyond the CNI specification: docs/ipam.md.
const EXHAUSTED: u32 = 110;
const ADDRESS_UNAVAILABLE: u32 = 111;

/// Whether metrics have labels that name the pod: `monitoring.podLabels`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodLabelMode {
    Off,
    On,
}

/// Counts an event.
pub fn count(metrics: &Metrics, event: &Event, pod_labels: PodLabelMode) {
    // A newer plugin may report other verbs.
    let verb @ ("ADD" | "DEL") = event.verb.as_str() else {
        return;
    };
    let outcome = if event.code.is_none() { "ok" } else { "error" };
    let by = ByCall {
        verb: verb.to_owned(),
        outcome: outcome.to_owned(),
    };
    let calls = metrics.call_duration.get_or_create(&by);
    calls.observe(seconds(event.duration_us));
    for step in &event.steps {
        let by = ByStep {
            verb: verb_of(step, verb).to_owned(),
            step: known(&STEPS, &step.name).to_owned(),
            outcome: step.outcome.as_str().to_owned(),
        };
        let steps = metrics.step_duration.get_or_create(&by);
        steps.observe(seconds(step.duration_us));
    }
    if let Some(code) = event.code {
        let by = ByError {
            error_type: error_type(code, &event.steps).to_owned(),
        };
        metrics.errors.get_or_create(&by).inc();
    }
    let labels = match pod_labels {
        PodLabelMode::On => labels_of(event),
        PodLabelMode::Off => PodLabels::default(),
    };
    match (verb, event.code) {
        ("ADD", code) => {
            let by = ByOutcome {
                outcome: outcome.to_owned(),
            };
            metrics.interfaces.get_or_create(&by).inc();
            if code.is_none() {
                count_setup(metrics, event, &labels);
            }
        }
        // Otherwise series of deleted pods would pile up.
        (_, None) if labels != PodLabels::default() => {
            metrics.setup_duration.remove(&labels);
        }
        _ => {}
    }
}

fn count_setup(metrics: &Metrics, event: &Event, labels: &PodLabels) {
    let setups = metrics.setup_duration.get_or_create(labels);
    setups.observe(seconds(event.duration_us));
    if !event.ips.is_empty() {
        let strategy = event.strategy.as_deref().unwrap_or(OTHER);
        let by = ByStrategy {
            strategy: known(&STRATEGIES, strategy).to_owned(),
        };
        let addresses = event.ips.len() as u64;
        metrics.allocations.get_or_create(&by).inc_by(addresses);
    }
}

fn labels_of(event: &Event) -> PodLabels {
    match &event.pod {
        Some(pod) => PodLabels {
            namespace: Some(pod.namespace.clone()),
            pod_name: Some(pod.name.clone()),
        },
        None => PodLabels::default(),
    }
}

fn verb_of<'a>(step: &'a EventStep, verb: &'a str) -> &'a str {
    match step.verb.as_deref() {
        None => verb,
        Some(verb @ ("ADD" | "DEL")) => verb,
        Some(_) => OTHER,
    }
}

/// One of [`ERROR_TYPES`], or `other`: a delegate may return any code.
fn error_type(code: u32, steps: &[EventStep]) -> &'static str {
    match code {
        code::INCOMPATIBLE_VERSION => "incompatible_version",
        code::UNSUPPORTED_FIELD => "unsupported_field",
        code::UNKNOWN_CONTAINER => "unknown_container",
        code::INVALID_ENVIRONMENT => "invalid_environment",
        code::IO_FAILURE => {
            let is_failed = |step: &&EventStep| step.outcome == StepOutcome::Error;
            let first = steps.iter().find(is_failed);
            let is_of_kernel = |step: &EventStep| KERNEL_STEPS.contains(&step.name.as_str());
            if first.is_some_and(is_of_kernel) {
                "kernel"
            } else {
                "io"
            }
        }
        code::DECODING_FAILURE => "decoding",
        code::INVALID_CONFIG => "invalid_config",
        code::TRY_AGAIN_LATER => "try_again",
        code::NOT_AVAILABLE | code::LIMITED_CONNECTIVITY => "not_available",
        code::DELEGATE_BROKEN => "delegate_broken",
        code::DELEGATE_TIMEOUT => "timeout",
        code::ALREADY_ATTACHED => "already_attached",
        EXHAUSTED => "ipam_exhausted",
        ADDRESS_UNAVAILABLE => "address_refused",
        _ => OTHER,
    }
}

/// Steps whose I/O is netlink only.
const KERNEL_STEPS: [&str; 3] = [step::RULESET, step::LINK, step::PORTS];

fn known<'a>(values: &[&'a str], value: &str) -> &'a str {
    let found = values.iter().find(|known| **known == value);
    found.copied().unwrap_or(OTHER)
}

fn seconds(micros: u64) -> f64 {
    Duration::from_micros(micros).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use api::event::EventPod;
    use prometheus_client::encoding::text::encode;
    use rstest::rstest;

    use super::*;

    fn text(metrics: &Metrics) -> String {
        let mut text = String::new();
        encode(&mut text, &metrics.registry).unwrap();
        text
    }

    fn ended(name: &str) -> EventStep {
        EventStep {
            name: name.to_owned(),
            duration_us: 1_000_000,
            ..EventStep::default()
        }
    }

    fn add() -> Event {
        Event {
            verb: "ADD".to_owned(),
            ips: vec!["10.0.0.2".parse().unwrap(), "fd00::2".parse().unwrap()],
            strategy: Some("random".to_owned()),
            duration_us: 2_000_000,
            steps: vec![ended("ipam"), ended("link")],
            pod: Some(EventPod {
                namespace: "web".to_owned(),
                name: "web-0".to_owned(),
                uid: None,
            }),
            ..Event::default()
        }
    }

    #[track_caller]
    fn assert_lines(text: &str, lines: &[&str]) {
        for line in lines {
            assert!(text.lines().any(|found| found == *line), "{line}\n{text}");
        }
    }

    #[test]
    fn an_add_is_counted_with_its_steps_and_addresses() {
        let metrics = Metrics::new();
        count(&metrics, &add(), PodLabelMode::Off);
        let text = text(&metrics);
        assert_lines(
            &text,
            &[
                "headcni_ip_allocations_total{strategy=\"random\"} 2",
                "headcni_cni_call_duration_seconds_count{verb=\"ADD\",outcome=\"ok\"} 1",
                "headcni_cni_step_duration_seconds_sum{verb=\"ADD\",step=\"ipam\",outcome=\"ok\"} 1.0",
                "headcni_cni_step_duration_seconds_sum{verb=\"ADD\",step=\"link\",outcome=\"ok\"} 1.0",
                "headcni_interface_creations_total{outcome=\"ok\"} 1",
            ],
        );
        let is_setup = |line: &str| {
            line.starts_with("headcni_pod_network_setup_duration_seconds_sum")
                && line.ends_with(" 2.0")
        };
        assert_eq!(text.lines().filter(|line| is_setup(line)).count(), 1);
        assert!(!text.contains("web"), "{text}");
        assert!(!text.contains("error_type"), "{text}");
    }

    #[test]
    fn a_failed_add_counts_its_failed_step_and_no_address() {
        let metrics = Metrics::new();
        let failed = EventStep {
            outcome: StepOutcome::Error,
            ..ended("ipam")
        };
        let rolled_back = EventStep {
            verb: Some("DEL".to_owned()),
            ..ended("link")
        };
        let event = Event {
            code: Some(code::TRY_AGAIN_LATER),
            steps: vec![failed, rolled_back],
            ..add()
        };
        count(&metrics, &event, PodLabelMode::On);
        let text = text(&metrics);
        assert_lines(
            &text,
            &[
                "headcni_network_errors_total{error_type=\"try_again\"} 1",
                "headcni_cni_call_duration_seconds_count{verb=\"ADD\",outcome=\"error\"} 1",
                "headcni_cni_step_duration_seconds_count{verb=\"ADD\",step=\"ipam\",outcome=\"error\"} 1",
                "headcni_cni_step_duration_seconds_count{verb=\"DEL\",step=\"link\",outcome=\"ok\"} 1",
                "headcni_interface_creations_total{outcome=\"error\"} 1",
            ],
        );
        assert!(!text.contains("strategy="), "{text}");
        assert!(!text.contains("setup_duration_seconds_sum"), "{text}");
    }

    #[test]
    fn pod_labels_are_opt_in_and_removed_by_del() {
        let metrics = Metrics::new();
        count(&metrics, &add(), PodLabelMode::On);
        let labelled = "headcni_pod_network_setup_duration_seconds_count\
                        {namespace=\"web\",pod_name=\"web-0\"} 1";
        assert_lines(&text(&metrics), &[labelled]);
        let del = |code| Event {
            verb: "DEL".to_owned(),
            code,
            ..add()
        };
        count(&metrics, &del(Some(5)), PodLabelMode::On);
        assert_lines(&text(&metrics), &[labelled]);
        count(&metrics, &del(None), PodLabelMode::On);
        assert!(!text(&metrics).contains("web-0"));
    }

    #[test]
    fn a_del_counts_neither_interface_nor_address() {
        let metrics = Metrics::new();
        let event = Event {
            verb: "DEL".to_owned(),
            ..add()
        };
        count(&metrics, &event, PodLabelMode::Off);
        let text = text(&metrics);
        assert!(!text.contains("strategy="), "{text}");
        assert!(!text.contains("interface_creations_total{"), "{text}");
        assert!(text.contains("verb=\"DEL\",outcome=\"ok\""), "{text}");
    }

    #[test]
    fn the_number_of_series_is_bounded_for_any_event() {
        let metrics = Metrics::new();
        let size = |round: u32| {
            for number in 0..100 {
                let odd = format!("{round}-{number}");
                let event = Event {
                    verb: if number % 2 == 0 { "ADD" } else { odd.as_str() }.to_owned(),
                    strategy: Some(odd.clone()),
                    steps: vec![EventStep {
                        verb: Some(odd.clone()),
                        ..ended(&odd)
                    }],
                    code: (number % 4 == 0).then_some(round * 1000 + number + 200),
                    ..add()
                };
                count(&metrics, &event, PodLabelMode::Off);
            }
            text(&metrics).lines().count()
        };
        assert_eq!(size(1), size(2));
    }

    #[rstest]
    #[case(5, "ipam", "io")]
    #[case(5, "link", "kernel")]
    #[case(7, "link", "invalid_config")]
    #[case(101, "bridge", "timeout")]
    #[case(110, "ipam", "ipam_exhausted")]
    #[case(999, "bridge", "other")]
    fn an_error_has_a_type(#[case] code: u32, #[case] failed: &str, #[case] expected: &str) {
        let failed = EventStep {
            outcome: StepOutcome::Error,
            ..ended(failed)
        };
        assert_eq!(error_type(code, &[ended("ipam"), failed]), expected);
    }

    #[test]
    fn every_type_is_in_the_list() {
        for code in 0..300 {
            for name in ["link", "ipam"] {
                let failed = EventStep {
                    outcome: StepOutcome::Error,
                    ..ended(name)
                };
                let found = error_type(code, &[failed]);
                assert!(ERROR_TYPES.contains(&found) || found == OTHER, "{found}");
            }
        }
    }
}
