//! A capture misses nothing and ends in time.

use std::time::{Duration, Instant};

use lab::frames::{Direction, EtherType, Ethernet};
use lab::{Capture, Netns, RawLink};

use crate::wire::{FORGED, LINK, TIMEOUT, Wire};

/// `ETH_P_802_EX1`, which no kernel uses.
const EXPERIMENT: EtherType = EtherType(0x88b5);

#[test]
fn both_ends_see_a_frame_as_it_was_sent() {
    let wire = Wire::new();
    let (mut here, mut there) = (wire.capture(), Capture::start(&wire.victim, LINK).unwrap());
    let frame = Ethernet::new(FORGED, FORGED).frame(EXPERIMENT, &[7; 100]);
    wire.send(&frame);
    for (capture, direction) in [(&mut here, Direction::Out), (&mut there, Direction::In)] {
        let seen = capture.first(TIMEOUT, |frame| frame.from() == Some(FORGED));
        let seen = seen.unwrap();
        assert_eq!(
            (seen.bytes(), seen.direction()),
            (&frame[..], direction),
            "{seen:?}"
        );
    }
}

#[test]
fn until_returns_all_frames_in_order() {
    let wire = Wire::new();
    let mut capture = Capture::start(&wire.victim, LINK).unwrap();
    let ethernet = Ethernet::new(FORGED, wire.victim_mac());
    for number in 0..=200u8 {
        wire.send(&ethernet.frame(EXPERIMENT, &[number; 1000]));
    }
    let seen = capture.until(TIMEOUT, |frame| frame.payload().first() == Some(&200));
    let seen = seen.unwrap();
    let ours = seen.iter().filter(|frame| frame.from() == Some(FORGED));
    let numbers: Vec<u8> = ours.map(|frame| frame.payload()[0]).collect();
    assert_eq!(numbers, (0..=200).collect::<Vec<_>>());
}

#[test]
fn a_timeout_shows_the_frames_that_came() {
    let wire = Wire::new();
    let mut capture = Capture::start(&wire.victim, LINK).unwrap();
    wire.send(&Ethernet::new(FORGED, FORGED).frame(EXPERIMENT, &[7; 100]));
    let start = Instant::now();
    let error = capture
        .first(Duration::from_millis(200), |_| false)
        .unwrap_err();
    assert!(start.elapsed() < TIMEOUT);
    let text = error.to_string();
    assert!(text.contains("on up0 within 200ms"), "{text}");
    assert!(text.contains(&FORGED.to_string()), "{text}");
    let none = capture.within(Duration::from_millis(10), |frame| {
        frame.from() == Some(FORGED)
    });
    assert_eq!(none.unwrap(), []);
}

#[test]
fn only_frames_of_the_link_are_captured() {
    let wire = Wire::new();
    let victim = &wire.victim;
    let pair = ["add", "other0", "type", "veth", "peer", "name", "other1"];
    victim.ip(["link"].iter().chain(&pair)).unwrap();
    for end in ["other0", "other1"] {
        victim.ip(["link", "set", end, "up"]).unwrap();
    }
    let mut capture = Capture::start(victim, "other0").unwrap();
    wire.send(&Ethernet::new(FORGED, FORGED).frame(EXPERIMENT, &[7; 100]));
    let other = RawLink::open(victim, "other0").unwrap();
    other
        .send(&Ethernet::new(other.mac(), FORGED).frame(EXPERIMENT, &[8; 100]))
        .unwrap();
    let seen = capture.until(TIMEOUT, |frame| frame.payload().first() == Some(&8));
    let seen = seen.unwrap();
    assert!(!seen.iter().any(|frame| frame.from() == Some(FORGED)));
    assert!(Capture::start(victim, "nonesuch").is_err());
}
