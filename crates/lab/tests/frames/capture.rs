//! A capture misses nothing, ends in time, and says what it saw.

use std::time::{Duration, Instant};

use lab::frames::{Direction, EtherType, Ethernet};
use lab::{Capture, Netns, RawLink};

use crate::stage::{FORGED, LINK, PATIENCE, Stage};

/// `ETH_P_802_EX1`: for experiments, so that no kernel has a use for it.
const EXPERIMENT: EtherType = EtherType(0x88b5);

#[test]
fn both_ends_see_a_frame_as_it_was_sent() {
    let stage = Stage::new();
    let (mut here, mut there) = (
        stage.capture(),
        Capture::start(&stage.victim, LINK).unwrap(),
    );
    // To nobody, and still seen at the other end of the wire.
    let frame = Ethernet::new(FORGED, FORGED).frame(EXPERIMENT, &[7; 100]);
    stage.send(&frame);
    for (capture, direction) in [(&mut here, Direction::Out), (&mut there, Direction::In)] {
        let seen = capture.first(PATIENCE, |frame| frame.from() == Some(FORGED));
        let seen = seen.unwrap();
        assert_eq!(
            (seen.bytes(), seen.direction()),
            (&frame[..], direction),
            "{seen:?}"
        );
    }
}

#[test]
fn all_frames_before_a_mark_are_there_in_order() {
    let stage = Stage::new();
    let mut capture = Capture::start(&stage.victim, LINK).unwrap();
    let wire = Ethernet::new(FORGED, stage.victim_mac());
    for number in 0..=200u8 {
        stage.send(&wire.frame(EXPERIMENT, &[number; 1000]));
    }
    let seen = capture.until(PATIENCE, |frame| frame.payload().first() == Some(&200));
    let seen = seen.unwrap();
    let ours = seen.iter().filter(|frame| frame.from() == Some(FORGED));
    let numbers: Vec<u8> = ours.map(|frame| frame.payload()[0]).collect();
    assert_eq!(numbers, (0..=200).collect::<Vec<_>>());
}

#[test]
fn what_is_not_wanted_is_in_the_error_and_time_ends() {
    let stage = Stage::new();
    let mut capture = Capture::start(&stage.victim, LINK).unwrap();
    stage.send(&Ethernet::new(FORGED, FORGED).frame(EXPERIMENT, &[7; 100]));
    let start = Instant::now();
    let error = capture
        .first(Duration::from_millis(200), |_| false)
        .unwrap_err();
    assert!(start.elapsed() < PATIENCE);
    let text = error.to_string();
    assert!(text.contains("on up0 within 200ms"), "{text}");
    assert!(text.contains(&FORGED.to_string()), "{text}");
    let none = capture.within(Duration::from_millis(10), |frame| {
        frame.from() == Some(FORGED)
    });
    assert_eq!(none.unwrap(), []);
}

#[test]
fn only_the_asked_link_is_seen() {
    let stage = Stage::new();
    let victim = &stage.victim;
    let pair = ["add", "other0", "type", "veth", "peer", "name", "other1"];
    victim.ip(["link"].iter().chain(&pair)).unwrap();
    for end in ["other0", "other1"] {
        victim.ip(["link", "set", end, "up"]).unwrap();
    }
    let mut capture = Capture::start(victim, "other0").unwrap();
    stage.send(&Ethernet::new(FORGED, FORGED).frame(EXPERIMENT, &[7; 100]));
    let other = RawLink::open(victim, "other0").unwrap();
    other
        .send(&Ethernet::new(other.mac(), FORGED).frame(EXPERIMENT, &[8; 100]))
        .unwrap();
    let seen = capture.until(PATIENCE, |frame| frame.payload().first() == Some(&8));
    let seen = seen.unwrap();
    assert!(!seen.iter().any(|frame| frame.from() == Some(FORGED)));
    assert!(Capture::start(victim, "nonesuch").is_err());
}
