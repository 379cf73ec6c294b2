//! Heap profiles of this process, which has the daemon's allocator.

use std::alloc::System;
use std::hint::black_box;

use daemon::admin::Limits;
use heap::Sampled;
use lab::eventually;
use pprof::protos::{Message, Profile};

use crate::scene::{Admin, PATIENCE, local};

#[global_allocator]
static ALLOCATOR: Sampled = Sampled::new(System);

const MIB: i64 = 1 << 20;

/// What the profile is to find.
#[inline(never)]
fn hoard(mebibytes: usize) -> Vec<Vec<u8>> {
    (0..mebibytes * 64)
        .map(|_| Vec::with_capacity(black_box(16 << 10)))
        .collect()
}

fn profile(admin: &Admin) -> Profile {
    let response = admin.get("/debug/pprof/heap");
    assert_eq!(response.status, 200, "{response:?}");
    assert_eq!(
        response.header("content-disposition"),
        "attachment; filename=\"heap\""
    );
    Profile::decode(response.body.as_slice()).unwrap()
}

fn text(profile: &Profile, id: i64) -> &str {
    &profile.string_table[usize::try_from(id).unwrap()]
}

/// The sum of a value over all stacks that a function is in.
fn sum(profile: &Profile, value: &str, function: &str) -> i64 {
    let mut types = profile.sample_type.iter();
    let value = types.position(|known| text(profile, known.ty) == value);
    let has_function = |location: &u64| {
        let location = profile.location.iter().find(|known| known.id == *location);
        location.unwrap().line.iter().any(|line| {
            let mut functions = profile.function.iter();
            let found = functions.find(|known| known.id == line.function_id);
            text(profile, found.unwrap().name).contains(function)
        })
    };
    let samples = profile.sample.iter();
    samples
        .filter(|sample| sample.location_id.iter().any(has_function))
        .map(|sample| sample.value[value.unwrap()])
        .sum()
}

#[test]
fn a_heap_profile_names_who_keeps_memory_and_forgets_what_is_freed() {
    let admin = Admin::with(local(true), Limits::default());
    let kept = hoard(32);
    let both = [profile(&admin), {
        drop(kept);
        profile(&admin)
    }];
    let [before, after] = both.map(|profile| {
        let of = |value| sum(&profile, value, "heap_profile::hoard") / MIB;
        (of("alloc_space"), of("inuse_space"))
    });
    // 800 samples, so a standard deviation is 3 %.
    assert!((24..42).contains(&before.0), "{before:?}");
    assert_eq!(before.0, before.1);
    assert_eq!(after, (before.0, 0));
}

#[test]
fn sampling_is_switched_while_the_server_runs() {
    let admin = Admin::to_be_switched();
    let unseen = hoard(16);
    assert_eq!(heap::snapshot(), None);
    admin.reload(local(true));
    let is_on = || (admin.get("/debug/pprof/heap").status == 200).then_some(());
    eventually(PATIENCE, "the switch", is_on).unwrap();
    assert_eq!(
        sum(&profile(&admin), "alloc_space", "heap_profile::hoard"),
        0
    );
    // Read again, it goes on.
    let seen = hoard(16);
    admin.reload(local(true));
    assert!(sum(&profile(&admin), "inuse_space", "heap_profile::hoard") > 0);
    admin.reload(local(false));
    let is_off = || (admin.get("/debug/pprof/heap").status == 404).then_some(());
    eventually(PATIENCE, "the switch", is_off).unwrap();
    assert_eq!(heap::snapshot(), None);
    drop((unseen, seen));
}
