use std::time::Duration;

use rstest::rstest;
use serde_json::json;

use super::*;

#[rstest]
#[case(0, "1970-01-01T00:00:00.000Z")]
#[case(951_782_400, "2000-02-29T00:00:00.000Z")]
#[case(1_709_251_199, "2024-02-29T23:59:59.000Z")]
#[case(1_735_689_600, "2025-01-01T00:00:00.000Z")]
#[case(4_102_444_799, "2099-12-31T23:59:59.000Z")]
fn timestamps_are_rfc_3339_in_utc(#[case] seconds: u64, #[case] text: &str) {
    assert_eq!(timestamp(UNIX_EPOCH + Duration::from_secs(seconds)), text);
}

#[rstest]
#[case(json!({}), &[], Level::Info, false)]
#[case(json!({ "log_level": "error" }), &[], Level::Error, false)]
#[case(json!({ "log_level": "error" }), &[("KLOG_V", "2")], Level::Info, false)]
#[case(json!({}), &[("KLOG_V", "4"), ("KLOG_LOGTOSTDERR", "true")], Level::Debug, true)]
#[case(json!({}), &[("KLOG_V", "4")], Level::Debug, true)]
#[case(json!({ "log_file": "/var/log/x.log" }), &[("KLOG_V", "4")], Level::Debug, false)]
#[case(json!({}), &[("KLOG_V", "4"), ("KLOG_LOGTOSTDERR", "false")], Level::Debug, false)]
#[case(json!({ "log_level": "debug" }), &[("KLOG_V", "0")], Level::Debug, false)]
#[case(json!({}), &[("KLOG_V", "x"), ("KLOG_LOGTOSTDERR", "false")], Level::Info, false)]
fn klog_v_raises_the_level_and_4_alone_logs_to_stderr(
    #[case] conf: serde_json::Value,
    #[case] env: &[(&str, &str)],
    #[case] level: Level,
    #[case] to_stderr: bool,
) {
    let keys = Keys::new(conf.as_object().unwrap(), "");
    let settings = LogSettings::parse(keys, &env.iter().copied().collect()).unwrap();
    assert_eq!((settings.level, settings.to_stderr), (level, to_stderr));
}

#[test]
fn a_line_is_bounded() {
    let conf = crate::NetConf::parse(br#"{"name":"net"}"#).unwrap();
    let call = Call {
        verb: Verb::Gc,
        conf,
        env: Env::default(),
    };
    let settings = LogSettings {
        level: Level::Debug,
        file: None,
        to_stderr: false,
    };
    let log = CallLog::start("headcni", &settings, &call, None);
    for _ in 0..1000 {
        log.debug(|| "x".repeat(10_000));
        let _ = log.step("bridge", Verb::Del, || Err::<(), ()>(()));
    }
    let mut line = log.line.into_inner();
    line.error = "e".repeat(1_000_000);
    assert!(render(&mut line).len() < 300_000);
}

#[rstest]
#[case(json!({ "log_level": "loud" }), "loud")]
#[case(json!({ "log_file": "relative" }), "relative")]
#[case(json!({ "log_file": "/dev/stdout" }), "/dev/stdout")]
#[case(json!({ "log_file": "/proc/self/fd/1" }), "/proc/self/fd/1")]
#[case(json!({ "log_file": 5 }), "log_file")]
fn invalid_log_settings_are_rejected(#[case] conf: serde_json::Value, #[case] part: &str) {
    let keys = Keys::new(conf.as_object().unwrap(), "");
    let error = LogSettings::parse(keys, &Env::default()).unwrap_err();
    assert!(error.msg.contains(part), "{error}");
}

#[test]
fn the_summary_has_all_steps_even_if_nothing_is_logged() {
    let conf = crate::NetConf::parse(br#"{"name":"net"}"#).unwrap();
    let call = Call {
        verb: Verb::Add,
        conf,
        env: Env::default(),
    };
    let settings = LogSettings::default();
    let log = CallLog::start("headcni", &settings, &call, None);
    log.step("link", Verb::Add, || Ok::<_, ()>(())).unwrap();
    log.step("link", Verb::Del, || Err::<(), _>(()))
        .unwrap_err();
    let summary = log.finish(None);
    let steps: Vec<_> = summary.steps.iter().map(|s| (s.verb, s.outcome)).collect();
    assert_eq!(
        steps,
        [
            (Verb::Add, CallOutcome::Ok),
            (Verb::Del, CallOutcome::Error)
        ]
    );
    let of_steps: Duration = summary.steps.iter().map(|step| step.duration).sum();
    assert!(summary.duration >= of_steps);
}

#[test]
fn durations_are_milliseconds_with_three_decimals() {
    let step = CallStep {
        name: "link".to_owned(),
        verb: Verb::Add,
        outcome: CallOutcome::Ok,
        duration: Duration::from_nanos(1_234_567),
    };
    assert_eq!(
        serde_json::to_value(step).unwrap(),
        json!({ "plugin": "link", "verb": "ADD", "outcome": "ok", "duration_ms": 1.235 })
    );
}
