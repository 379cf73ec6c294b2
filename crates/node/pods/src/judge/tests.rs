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
const SIGHTS: [Sight; 3] = [Sight::There, Sight::Gone, Sight::Unknown];
const LOCKS: [Lock; 3] = [Lock::Free, Lock::Held, Lock::Unknown];
const BOOTS: [Boot; 3] = [Boot::This, Boot::Earlier, Boot::Unknown];
const WRITTEN: [Written; 4] = [
    Written::Nothing,
    Written::Nonsense,
    Written::HalfMade,
    Written::Complete,
];

/// Everything that can be found out about a record.
fn all_records() -> Vec<RecordEvidence> {
    let mut all = Vec::new();
    for written in WRITTEN {
        for boot in BOOTS {
            for datapath in [Datapath::Native, Datapath::Other] {
                for link in SIGHTS {
                    for namespace in SIGHTS {
                        all.extend(LOCKS.map(|lock| RecordEvidence {
                            written,
                            boot,
                            datapath,
                            link,
                            namespace,
                            lock,
                        }));
                    }
                }
            }
        }
    }
    all
}

/// Everything that can be found out about a lease.
fn all_leases() -> Vec<LeaseEvidence> {
    let mut all = Vec::new();
    for is_of_native_store in [true, false] {
        for names_interface in [true, false] {
            for record in SIGHTS {
                for records in SIGHTS {
                    for link in SIGHTS {
                        for way in SIGHTS {
                            all.extend(LOCKS.map(|lock| LeaseEvidence {
                                is_of_native_store,
                                names_interface,
                                record,
                                records,
                                link,
                                way,
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
fn a_record_is_a_left_over_in_these_cases_and_no_others() {
    for evidence in all_records() {
        let RecordEvidence {
            written,
            datapath,
            link,
            namespace,
            lock,
            ..
        } = evidence;
        let is_free = lock == Lock::Free;
        let is_native = datapath == Datapath::Native;
        let expected = is_free
            && match written {
                Written::Nonsense => false,
                Written::Nothing => link == Sight::Gone,
                Written::HalfMade => {
                    namespace != Sight::Unknown && (!is_native || link != Sight::Unknown)
                }
                Written::Complete => {
                    namespace == Sight::Gone && (!is_native || link == Sight::Gone)
                }
            };
        let verdict = evidence.judge(OLD, LIMITS);
        let is_orphan = matches!(verdict, Verdict::Orphan(_));
        assert_eq!(is_orphan, expected, "{evidence:?}: {verdict:?}");
    }
}

#[test]
fn a_lease_is_a_left_over_in_one_case() {
    let orphans: Vec<_> = all_leases()
        .into_iter()
        .filter(|evidence| matches!(evidence.judge(OLD, LIMITS), Verdict::Orphan(_)))
        .collect();
    assert_eq!(
        orphans,
        [LeaseEvidence {
            is_of_native_store: true,
            names_interface: true,
            record: Sight::Gone,
            records: Sight::There,
            link: Sight::Gone,
            way: Sight::Gone,
            lock: Lock::Free,
        }]
    );
}

#[test]
fn what_is_locked_is_in_flight_whatever_else_is_known() {
    for evidence in all_records() {
        if evidence.lock == Lock::Held {
            assert_eq!(evidence.judge(OLD, LIMITS), Verdict::InFlight);
        }
    }
}

#[test]
fn a_complete_record_with_its_link_or_its_namespace_lives() {
    for evidence in all_records() {
        let has_life = match evidence.datapath {
            Datapath::Native => evidence.link == Sight::There,
            Datapath::Other => evidence.namespace == Sight::There,
        };
        if evidence.written == Written::Complete && has_life && evidence.lock == Lock::Free {
            let verdict = evidence.judge(OLD, LIMITS);
            assert!(matches!(verdict, Verdict::Alive(_)), "{evidence:?}");
        }
    }
}

fn complete() -> RecordEvidence {
    RecordEvidence {
        written: Written::Complete,
        boot: Boot::This,
        datapath: Datapath::Native,
        link: Sight::Gone,
        namespace: Sight::Gone,
        lock: Lock::Free,
    }
}

#[rstest]
#[case::died(complete(), Verdict::Orphan(Cause::Died))]
#[case::earlier_boot(RecordEvidence { boot: Boot::Earlier, ..complete() },
    Verdict::Orphan(Cause::EarlierBoot))]
#[case::half_made(RecordEvidence { written: Written::HalfMade, namespace: Sight::There,
    link: Sight::There, ..complete() }, Verdict::Orphan(Cause::HalfMade))]
#[case::half_made_earlier(RecordEvidence { written: Written::HalfMade, boot: Boot::Earlier,
    ..complete() }, Verdict::Orphan(Cause::EarlierBoot))]
#[case::never_begun(RecordEvidence { written: Written::Nothing, namespace: Sight::Unknown,
    ..complete() }, Verdict::Orphan(Cause::NeverBegun))]
#[case::link_taken_away(RecordEvidence { namespace: Sight::There, ..complete() },
    Verdict::Alive(Life::Namespace))]
#[case::namespace_taken_away(RecordEvidence { link: Sight::There, ..complete() },
    Verdict::Alive(Life::Link))]
#[case::hidden(RecordEvidence { namespace: Sight::Unknown, ..complete() },
    Verdict::Unknown(Doubt::Namespace))]
#[case::silent_kernel(RecordEvidence { link: Sight::Unknown, ..complete() },
    Verdict::Unknown(Doubt::Kernel))]
#[case::damaged(RecordEvidence { written: Written::Nonsense, ..complete() },
    Verdict::Unknown(Doubt::Damaged))]
#[case::bridge(RecordEvidence { datapath: Datapath::Other, link: Sight::Unknown, ..complete() },
    Verdict::Orphan(Cause::Died))]
fn records_are_judged_with_a_reason(#[case] evidence: RecordEvidence, #[case] verdict: Verdict) {
    assert_eq!(evidence.judge(OLD, LIMITS), verdict);
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[rstest]
#[case::first_look(Some(86400), 0, false)]
#[case::second_look_too_soon(Some(86400), 59, false)]
#[case::second_look(Some(86400), 60, true)]
#[case::young_file(Some(299), 60, false)]
#[case::young_file_seen_for_long(Some(0), 300, true)]
#[case::clock_not_to_be_trusted(None, 60, false)]
#[case::clock_not_to_be_trusted_almost(None, 299, false)]
#[case::clock_not_needed(None, 300, true)]
fn time_is_what_we_have_seen_of_it(
    #[case] by_file: Option<u64>,
    #[case] seen_for: u64,
    #[case] is_due: bool,
) {
    let age = Age {
        by_file: by_file.map(seconds),
        seen_for: seconds(seen_for),
    };
    let expected = if is_due {
        Verdict::Orphan(Cause::Died)
    } else {
        Verdict::Waiting(Cause::Died)
    };
    assert_eq!(complete().judge(age, LIMITS), expected);
}

#[test]
fn nothing_is_a_left_over_at_the_first_look() {
    let age = Age {
        by_file: Some(Duration::MAX),
        seen_for: Duration::ZERO,
    };
    let none = Limits {
        grace: Duration::ZERO,
        interval: Duration::ZERO,
    };
    let records = all_records().into_iter().map(|one| one.judge(age, none));
    let leases = all_leases().into_iter().map(|one| one.judge(age, none));
    let mut verdicts = records.chain(leases);
    assert!(!verdicts.any(|verdict| matches!(verdict, Verdict::Orphan(_))));
}
