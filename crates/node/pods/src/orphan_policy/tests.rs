use rstest::rstest;

use super::*;

const LIMITS: Limits = Limits {
    grace: Duration::from_mins(5),
    interval: Duration::from_mins(1),
};
const OLD: Age = Age {
    by_file: Some(Duration::from_hours(1)),
    seen_for: Duration::from_mins(5),
};
const PRESENCES: [Presence; 3] = [Presence::Present, Presence::Absent, Presence::Unknown];
const LOCKS: [Lock; 3] = [Lock::Free, Lock::Held, Lock::Unknown];
const BOOTS: [Boot; 3] = [Boot::This, Boot::Earlier, Boot::Unknown];
const RECORD_STATES: [RecordState; 4] = [
    RecordState::Empty,
    RecordState::Damaged,
    RecordState::HalfMade,
    RecordState::Complete,
];

/// All combinations.
fn all_records() -> Vec<RecordEvidence> {
    let mut all = Vec::new();
    for state in RECORD_STATES {
        for boot in BOOTS {
            for datapath in [Datapath::Native, Datapath::Other] {
                for link in PRESENCES {
                    for netns in PRESENCES {
                        all.extend(LOCKS.map(|lock| RecordEvidence {
                            state,
                            boot,
                            datapath,
                            link,
                            netns,
                            lock,
                        }));
                    }
                }
            }
        }
    }
    all
}

/// All combinations.
fn all_leases() -> Vec<LeaseEvidence> {
    let mut all = Vec::new();
    for is_of_native_store in [true, false] {
        for names_interface in [true, false] {
            for record in PRESENCES {
                for records in PRESENCES {
                    for link in PRESENCES {
                        for route in PRESENCES {
                            all.extend(LOCKS.map(|lock| LeaseEvidence {
                                is_of_native_store,
                                names_interface,
                                record,
                                records,
                                link,
                                route,
                                lock,
                            }));
                        }
                    }
                }
            }
        }
    }
    all
}

#[test]
fn a_record_is_an_orphan_in_exactly_these_cases() {
    for evidence in all_records() {
        let RecordEvidence {
            state,
            datapath,
            link,
            netns,
            lock,
            ..
        } = evidence;
        let is_free = lock == Lock::Free;
        let is_native = datapath == Datapath::Native;
        let expected = is_free
            && match state {
                RecordState::Damaged => false,
                RecordState::Empty => link == Presence::Absent,
                RecordState::HalfMade => {
                    netns != Presence::Unknown && (!is_native || link != Presence::Unknown)
                }
                RecordState::Complete => {
                    netns == Presence::Absent && (!is_native || link == Presence::Absent)
                }
            };
        let assessment = evidence.assess(OLD, LIMITS);
        let is_orphan = matches!(assessment, Assessment::Orphan(_));
        assert_eq!(is_orphan, expected, "{evidence:?}: {assessment:?}");
    }
}

#[test]
fn a_lease_is_an_orphan_in_exactly_one_case() {
    let orphans: Vec<_> = all_leases()
        .into_iter()
        .filter(|evidence| matches!(evidence.assess(OLD, LIMITS), Assessment::Orphan(_)))
        .collect();
    assert_eq!(
        orphans,
        [LeaseEvidence {
            is_of_native_store: true,
            names_interface: true,
            record: Presence::Absent,
            records: Presence::Present,
            link: Presence::Absent,
            route: Presence::Absent,
            lock: Lock::Free,
        }]
    );
}

#[test]
fn a_held_lock_means_in_flight() {
    for evidence in all_records() {
        if evidence.lock == Lock::Held {
            assert_eq!(evidence.assess(OLD, LIMITS), Assessment::InFlight);
        }
    }
}

#[test]
fn a_complete_record_with_its_link_or_netns_is_in_use() {
    for evidence in all_records() {
        let is_in_use = match evidence.datapath {
            Datapath::Native => evidence.link == Presence::Present,
            Datapath::Other => evidence.netns == Presence::Present,
        };
        if evidence.state == RecordState::Complete && is_in_use && evidence.lock == Lock::Free {
            let assessment = evidence.assess(OLD, LIMITS);
            assert!(matches!(assessment, Assessment::InUse(_)), "{evidence:?}");
        }
    }
}

fn complete() -> RecordEvidence {
    RecordEvidence {
        state: RecordState::Complete,
        boot: Boot::This,
        datapath: Datapath::Native,
        link: Presence::Absent,
        netns: Presence::Absent,
        lock: Lock::Free,
    }
}

#[rstest]
#[case::died(complete(), Assessment::Orphan(Cause::Died))]
#[case::earlier_boot(RecordEvidence { boot: Boot::Earlier, ..complete() },
    Assessment::Orphan(Cause::EarlierBoot))]
#[case::half_made(RecordEvidence { state: RecordState::HalfMade, netns: Presence::Present,
    link: Presence::Present, ..complete() }, Assessment::Orphan(Cause::HalfMade))]
#[case::half_made_earlier(RecordEvidence { state: RecordState::HalfMade, boot: Boot::Earlier,
    ..complete() }, Assessment::Orphan(Cause::EarlierBoot))]
#[case::never_begun(RecordEvidence { state: RecordState::Empty, netns: Presence::Unknown,
    ..complete() }, Assessment::Orphan(Cause::NeverBegun))]
#[case::link_taken_away(RecordEvidence { netns: Presence::Present, ..complete() },
    Assessment::InUse(SignOfLife::Netns))]
#[case::namespace_taken_away(RecordEvidence { link: Presence::Present, ..complete() },
    Assessment::InUse(SignOfLife::Link))]
#[case::hidden(RecordEvidence { netns: Presence::Unknown, ..complete() },
    Assessment::Unknown(Doubt::Netns))]
#[case::silent_kernel(RecordEvidence { link: Presence::Unknown, ..complete() },
    Assessment::Unknown(Doubt::Kernel))]
#[case::damaged(RecordEvidence { state: RecordState::Damaged, ..complete() },
    Assessment::Unknown(Doubt::Damaged))]
#[case::bridge(RecordEvidence { datapath: Datapath::Other, link: Presence::Unknown, ..complete() },
    Assessment::Orphan(Cause::Died))]
fn records_are_assessed_with_a_reason(
    #[case] evidence: RecordEvidence,
    #[case] assessment: Assessment,
) {
    assert_eq!(evidence.assess(OLD, LIMITS), assessment);
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[rstest]
#[case::first_observation(Some(86400), 0, false)]
#[case::second_observation_too_soon(Some(86400), 59, false)]
#[case::second_observation(Some(86400), 60, true)]
#[case::young_file(Some(299), 60, false)]
#[case::young_file_observed_for_long(Some(0), 300, true)]
#[case::untrusted_clock(None, 60, false)]
#[case::untrusted_clock_almost(None, 299, false)]
#[case::clock_not_needed(None, 300, true)]
fn the_grace_period_counts_from_the_first_observation(
    #[case] by_file: Option<u64>,
    #[case] seen_for: u64,
    #[case] is_due: bool,
) {
    let age = Age {
        by_file: by_file.map(seconds),
        seen_for: seconds(seen_for),
    };
    let expected = if is_due {
        Assessment::Orphan(Cause::Died)
    } else {
        Assessment::Waiting(Cause::Died)
    };
    assert_eq!(complete().assess(age, LIMITS), expected);
}

#[test]
fn nothing_is_an_orphan_at_the_first_observation() {
    let age = Age {
        by_file: Some(Duration::MAX),
        seen_for: Duration::ZERO,
    };
    let none = Limits {
        grace: Duration::ZERO,
        interval: Duration::ZERO,
    };
    let records = all_records().into_iter().map(|one| one.assess(age, none));
    let leases = all_leases().into_iter().map(|one| one.assess(age, none));
    let mut assessments = records.chain(leases);
    assert!(!assessments.any(|assessment| matches!(assessment, Assessment::Orphan(_))));
}
