//! Notifications to systemd.

use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

use lab::scenario::{Daemon, DaemonNode};

use crate::TIMEOUT;

/// Without a pod CIDR, READY is sent after ten seconds; more on a busy machine.
const READY_WITHOUT_POD_CIDR: Duration = Duration::from_secs(20);

const PATH: &str = "/run/notify";

struct NotifySocket {
    socket: UnixDatagram,
}

impl NotifySocket {
    fn new(node: &DaemonNode) -> Self {
        Self {
            socket: UnixDatagram::bind(node.file(PATH)).unwrap(),
        }
    }

    fn next(&self, timeout: Duration) -> Option<String> {
        self.socket.set_read_timeout(Some(timeout)).unwrap();
        let mut text = [0; 4096];
        loop {
            match self.socket.recv(&mut text) {
                Ok(length) => return Some(String::from_utf8(text[..length].to_vec()).unwrap()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                // A signal such as a debugger's ends the wait.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// All messages up to the first with this line.
    #[track_caller]
    fn until(&self, line: &str, timeout: Duration) -> Vec<String> {
        let end = Instant::now() + timeout;
        let mut messages = Vec::new();
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let left = left.max(Duration::from_millis(1));
            let Some(message) = self.next(left) else {
                panic!("no {line} within {timeout:?}: {messages:?}");
            };
            let is_it = has(&message, line);
            messages.push(message);
            if is_it {
                return messages;
            }
        }
    }
}

fn launch<'a>(node: &'a DaemonNode, more: &[(&str, &str)]) -> Daemon<'a> {
    node.spawn_daemon_with_env(&[&[("NOTIFY_SOCKET", PATH)], more].concat())
}

fn has(message: &str, line: &str) -> bool {
    message.lines().any(|found| found == line)
}

#[test]
fn ready_is_sent_once_with_a_status_and_stopping_at_the_end() {
    let node = DaemonNode::new();
    let systemd = NotifySocket::new(&node);
    let daemon = launch(&node, &[]);
    let messages = systemd.until("READY=1", TIMEOUT);
    let [ready] = messages.as_slice() else {
        panic!("{messages:?}");
    };
    assert!(has(ready, "STATUS=ready"), "{ready}");
    assert_eq!(
        daemon.get("/ready").unwrap().status,
        200,
        "the node is ready"
    );
    assert!(daemon.stop().status.success());
    let messages = systemd.until("STOPPING=1", TIMEOUT);
    assert!(
        !messages.iter().any(|message| has(message, "READY=1")),
        "{messages:?}"
    );
}

#[test]
fn ready_is_sent_without_a_pod_cidr() {
    let node = DaemonNode::with_config("network: {mtu: 1280}");
    let systemd = NotifySocket::new(&node);
    let _daemon = launch(&node, &[]);
    let messages = systemd.until("READY=1", READY_WITHOUT_POD_CIDR);
    assert!(
        has(&messages[0], "STATUS=not ready: see /ready"),
        "{messages:?}"
    );
}

#[test]
fn the_watchdog_is_notified_at_its_interval() {
    let node = DaemonNode::new();
    let systemd = NotifySocket::new(&node);
    let limit = Duration::from_secs(3);
    let usec = limit.as_micros().to_string();
    let _daemon = launch(&node, &[("WATCHDOG_USEC", &usec)]);
    systemd.until("READY=1", TIMEOUT);
    for _ in 0..4 {
        systemd.until("WATCHDOG=1", limit);
    }
}

#[test]
fn a_reload_is_announced_with_its_time_and_its_end() {
    let node = DaemonNode::new();
    let systemd = NotifySocket::new(&node);
    let daemon = launch(&node, &[]);
    systemd.until("READY=1", TIMEOUT);
    for yaml in [
        "network: {podCIDR: {nodeLocal: 10.244.1.0/24, base: 10.244.0.0/16}, mtu: 1400}",
        "network: {mtuu: 1400}",
    ] {
        node.configure(yaml);
        let before = node.sh("cat /proc/uptime");
        daemon.reload();
        let messages = systemd.until("RELOADING=1", TIMEOUT);
        let reloading = messages.last().unwrap();
        // Type=notify-reload ignores a reload without this time:
        // https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html
        let time = reloading
            .lines()
            .find_map(|line| line.strip_prefix("MONOTONIC_USEC="));
        let time: f64 = time.expect(reloading).parse().unwrap();
        let before: f64 = before.split(' ').next().unwrap().parse().unwrap();
        assert!((time / 1e6 - before).abs() < 10.0, "{time} at {before}");
        systemd.until("READY=1", TIMEOUT);
    }
}
