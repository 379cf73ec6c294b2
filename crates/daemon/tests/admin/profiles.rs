use std::net::{IpAddr, SocketAddr};

use daemon::admin::LIMITS;
use lab::{Netns, Node, eventually};
use node_config::Monitoring;
use rstest::rstest;

use crate::server::{Admin, TIMEOUT, local};

fn profiling() -> Admin {
    Admin::with(local(true), LIMITS)
}

#[rstest]
#[case("/debug/pprof")]
#[case("/debug/pprof/")]
#[case("/debug/pprof/profile")]
#[case("/debug/pprof/profile?seconds=1")]
fn profiles_are_disabled_by_default_with_a_remedy(#[case] path: &str) {
    let response = Admin::new().get(path);
    assert_eq!(response.status, 404);
    assert!(response.text().contains("monitoring.pprof"), "{response:?}");
}

#[test]
fn profiles_are_enabled_and_disabled_at_run_time() {
    let admin = Admin::with_profiler_lock();
    for (monitoring, status) in [(local(true), 200), (local(false), 404)] {
        admin.reload(monitoring);
        let is_reloaded = || (admin.get("/debug/pprof").status == status).then_some(());
        eventually(TIMEOUT, "the reload", is_reloaded).unwrap();
    }
}

#[rstest]
#[case("0")]
#[case("61")]
#[case("-1")]
#[case("1.5")]
#[case("99999999999999999999999")]
#[case("")]
fn an_invalid_length_is_refused(#[case] seconds: &str) {
    let admin = profiling();
    let response = admin.get(&format!("/debug/pprof/profile?seconds={seconds}"));
    assert_eq!(response.status, 400, "{response:?}");
}

#[test]
fn remote_clients_get_no_profile() {
    let node = Node::new("profiles").unwrap();
    node.run(["ip", "link", "set", "lo", "up"]).unwrap();
    node.run(["ip", "address", "add", "10.9.9.1/32", "dev", "lo"])
        .unwrap();
    let outside: IpAddr = [10, 9, 9, 1].into();
    let (by_loopback, by_address) = node
        .enter(|| {
            let monitoring = Monitoring {
                address: SocketAddr::from(([0, 0, 0, 0], 0)),
                pprof: true,
                ..Monitoring::default()
            };
            let admin = Admin::with(monitoring, LIMITS);
            let by_loopback = admin.get_by([127, 0, 0, 1].into(), "/debug/pprof");
            let by_address = admin.get_by(outside, "/debug/pprof");
            assert_eq!(admin.get_by(outside, "/metrics").status, 200);
            (by_loopback.status, by_address.status)
        })
        .unwrap();
    assert_eq!((by_loopback, by_address), (200, 403));
}

#[cfg(not(all(
    feature = "profiling",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
#[rstest]
#[case("/debug/pprof/profile?seconds=1")]
fn a_build_without_a_profiler_says_so(#[case] path: &str) {
    let response = profiling().get(path);
    assert_eq!(response.status, 501);
    assert!(
        response.text().contains("feature \"profiling\""),
        "{response:?}"
    );
}
