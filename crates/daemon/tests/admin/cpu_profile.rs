use std::hint::black_box;
use std::sync::mpsc;
use std::thread;

use daemon::admin::LIMITS;
use pprof::protos::{Message, Profile};

use crate::server::{Admin, local};

/// What the profile is to find: it burns CPU until the sender is gone.
#[inline(never)]
fn burn_while(other: &mpsc::Receiver<()>) {
    while other.try_recv() == Err(mpsc::TryRecvError::Empty) {
        for number in 0..100_000_u64 {
            black_box(number);
        }
    }
}

#[test]
fn a_profile_names_the_function_that_burns_the_time() {
    let admin = Admin::with(local(true), LIMITS);
    let (burning, until) = mpsc::channel::<()>();
    let fire = thread::spawn(move || burn_while(&until));
    // Two at once: one is taken, the other one is refused, and health is answered meanwhile.
    let take = || admin.get("/debug/pprof/profile?seconds=2");
    let mut both = thread::scope(|scope| {
        let both = [scope.spawn(take), scope.spawn(take)];
        assert_eq!(admin.get("/healthz").status, 200);
        both.map(|asked| asked.join().unwrap())
    });
    drop(burning);
    fire.join().unwrap();
    both.sort_by_key(|response| response.status);
    let [response, refused] = both;
    assert_eq!(
        (response.status, refused.status),
        (200, 409),
        "{response:?} {refused:?}"
    );
    let profile = Profile::decode(response.body.as_slice()).unwrap();
    let name = |id: u64| {
        let location = profile.location.iter().find(|location| location.id == id)?;
        let function = location.line.first()?.function_id;
        let function = profile.function.iter().find(|known| known.id == function)?;
        profile
            .string_table
            .get(usize::try_from(function.name).ok()?)
    };
    let burnt: i64 = profile
        .sample
        .iter()
        .filter(|sample| {
            let mut names = sample.location_id.iter().filter_map(|id| name(*id));
            names.any(|name| name.contains("burn_while"))
        })
        .map(|sample| sample.value[0])
        .sum();
    // Other tests are in this process too, and have their share.
    assert!(burnt > 5, "{burnt} samples");
}
