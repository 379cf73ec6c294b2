//! What systemd is told: on a socket of its own, in its own words.

use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

use crate::scene::{Daemon, SOON, Scene};

/// Without networks it is told after ten seconds. A busy machine gets some more.
const AT_LAST: Duration = Duration::from_secs(20);

const PATH: &str = "/run/notify";

/// What systemd has of a service.
struct Systemd {
    socket: UnixDatagram,
}

impl Systemd {
    fn new(scene: &Scene) -> Self {
        Self {
            socket: UnixDatagram::bind(scene.file(PATH)).unwrap(),
        }
    }

    /// The next message, if there is one in time.
    fn next(&self, patience: Duration) -> Option<String> {
        self.socket.set_read_timeout(Some(patience)).unwrap();
        let mut text = [0; 4096];
        loop {
            match self.socket.recv(&mut text) {
                Ok(length) => return Some(String::from_utf8(text[..length].to_vec()).unwrap()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                // Whoever stops this process for a moment, as a debugger does, ends the wait.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// All messages up to the first with this line.
    #[track_caller]
    fn until(&self, line: &str, patience: Duration) -> Vec<String> {
        let end = Instant::now() + patience;
        let mut messages = Vec::new();
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let left = left.max(Duration::from_millis(1));
            let Some(message) = self.next(left) else {
                panic!("no {line} within {patience:?}: {messages:?}");
            };
            let is_it = has(&message, line);
            messages.push(message);
            if is_it {
                return messages;
            }
        }
    }
}

fn launch<'a>(scene: &'a Scene, more: &[(&str, &str)]) -> Daemon<'a> {
    scene.launch_with(&[&[("NOTIFY_SOCKET", PATH)], more].concat())
}

fn has(message: &str, line: &str) -> bool {
    message.lines().any(|found| found == line)
}

#[test]
fn a_start_is_told_once_with_its_state_and_an_end_when_it_begins() {
    let scene = Scene::new();
    let systemd = Systemd::new(&scene);
    let daemon = launch(&scene, &[]);
    let told = systemd.until("READY=1", SOON);
    let [ready] = told.as_slice() else {
        panic!("{told:?}");
    };
    assert!(has(ready, "STATUS=ready"), "{ready}");
    assert_eq!(
        daemon.get("/ready").unwrap().status,
        200,
        "what was told was true"
    );
    assert!(daemon.stop().status.success());
    let told = systemd.until("STOPPING=1", SOON);
    assert!(
        !told.iter().any(|message| has(message, "READY=1")),
        "{told:?}"
    );
}

#[test]
fn a_start_is_told_though_nothing_is_known() {
    let scene = Scene::with("network: {mtu: 1280}");
    let systemd = Systemd::new(&scene);
    let _daemon = launch(&scene, &[]);
    let told = systemd.until("READY=1", AT_LAST);
    assert!(has(&told[0], "STATUS=not ready: see /ready"), "{told:?}");
}

#[test]
fn the_watchdog_is_fed_as_often_as_it_asks_for() {
    let scene = Scene::new();
    let systemd = Systemd::new(&scene);
    let limit = Duration::from_secs(3);
    let usec = limit.as_micros().to_string();
    let _daemon = launch(&scene, &[("WATCHDOG_USEC", &usec)]);
    systemd.until("READY=1", SOON);
    for _ in 0..4 {
        systemd.until("WATCHDOG=1", limit);
    }
}

#[test]
fn a_reload_is_told_with_its_time_and_its_end() {
    let scene = Scene::new();
    let systemd = Systemd::new(&scene);
    let daemon = launch(&scene, &[]);
    systemd.until("READY=1", SOON);
    for yaml in [
        "network: {podCIDR: {nodeLocal: 10.244.1.0/24, base: 10.244.0.0/16}, mtu: 1400}",
        "network: {mtuu: 1400}",
    ] {
        scene.configure(yaml);
        let before = scene.sh("cat /proc/uptime");
        daemon.reload();
        let told = systemd.until("RELOADING=1", SOON);
        let reloading = told.last().unwrap();
        // Type=notify-reload takes no other reload for its own:
        // https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html
        let time = reloading
            .lines()
            .find_map(|line| line.strip_prefix("MONOTONIC_USEC="));
        let time: f64 = time.expect(reloading).parse().unwrap();
        let before: f64 = before.split(' ').next().unwrap().parse().unwrap();
        assert!((time / 1e6 - before).abs() < 10.0, "{time} at {before}");
        systemd.until("READY=1", SOON);
    }
}
