//! kill -9 in the middle of a call: a retry, one DEL or one GC ends clean.

use lab::Syscalls;
use rstest::rstest;
use serde_json::{Value, json};

use crate::kill_sweep::{Killing, Namespace, Then, with_all};
use crate::networks::{dual_stack, ipv4, with};

const ALL: [Then; 3] = [Then::Add, Then::Del, Then::Gc];
const BOTH: [Namespace; 2] = [Namespace::Stays, Namespace::Goes];

/// Addresses from a plugin that is executed.
fn executed_ipam() -> Value {
    let ranges = json!([[{ "subnet": "10.9.0.0/24" }], [{ "subnet": "fd00:9::/64" }]]);
    with(
        ipv4(),
        "ipam",
        json!({ "type": "host-local", "ranges": ranges }),
    )
}

#[rstest]
fn an_add_killed_at_any_system_call_is_cleaned_up(
    #[values(Then::Add, Then::Del, Then::Gc)] then: Then,
) {
    let killing = Killing {
        conf: &with_all(ipv4()),
        verb: "ADD",
        at: Syscalls::All,
        namespace: &[Namespace::Stays],
        then: &[then],
        step: 1,
    };
    let moments = killing.everywhere();
    assert!(moments > 60, "{moments} are too few to be true");
}

#[rstest]
#[case::ipv4(ipv4(), &[Namespace::Goes], 1)]
#[case::dual_stack(dual_stack(), &BOTH, 1)]
#[case::executed_ipam(executed_ipam(), &BOTH, 5)]
fn an_add_killed_at_any_kernel_message_is_cleaned_up(
    #[case] conf: Value,
    #[case] namespace: &[Namespace],
    #[case] step: usize,
) {
    let killing = Killing {
        conf: &with_all(conf),
        verb: "ADD",
        at: Syscalls::KERNEL_MESSAGES,
        namespace,
        then: &ALL,
        step,
    };
    let moments = killing.everywhere();
    assert!(moments >= 4, "{moments} are too few to be true");
}

#[test]
fn an_add_with_an_executed_ipam_killed_at_system_calls_is_cleaned_up() {
    let killing = Killing {
        conf: &with_all(executed_ipam()),
        verb: "ADD",
        at: Syscalls::All,
        namespace: &[Namespace::Stays],
        then: &ALL,
        step: 10,
    };
    killing.everywhere();
}

#[rstest]
#[case::ipv4(ipv4(), 4)]
#[case::executed_ipam(executed_ipam(), 10)]
fn a_del_killed_at_any_system_call_is_finished_by_the_next_call(
    #[case] conf: Value,
    #[case] step: usize,
) {
    let killing = Killing {
        conf: &with_all(conf),
        verb: "DEL",
        at: Syscalls::All,
        namespace: &[Namespace::Stays],
        then: &ALL,
        step,
    };
    killing.everywhere();
}

#[rstest]
#[case::ipv4(ipv4(), &[Namespace::Goes], 1)]
#[case::dual_stack(dual_stack(), &BOTH, 1)]
#[case::executed_ipam(executed_ipam(), &BOTH, 5)]
fn a_del_killed_at_any_kernel_message_is_finished_by_the_next_call(
    #[case] conf: Value,
    #[case] namespace: &[Namespace],
    #[case] step: usize,
) {
    let killing = Killing {
        conf: &with_all(conf),
        verb: "DEL",
        at: Syscalls::KERNEL_MESSAGES,
        namespace,
        then: &ALL,
        step,
    };
    let moments = killing.everywhere();
    assert!(moments >= 2, "{moments} are too few to be true");
}

#[test]
fn a_gc_killed_at_any_system_call_is_finished_by_the_next_call() {
    let killing = Killing {
        conf: &with_all(ipv4()),
        verb: "GC",
        at: Syscalls::All,
        namespace: &BOTH,
        then: &ALL,
        step: 11,
    };
    killing.everywhere();
}

#[test]
fn a_gc_killed_at_any_kernel_message_is_finished_by_the_next_call() {
    let killing = Killing {
        conf: &with_all(dual_stack()),
        verb: "GC",
        at: Syscalls::KERNEL_MESSAGES,
        namespace: &[Namespace::Stays],
        then: &ALL,
        step: 1,
    };
    killing.everywhere();
}
