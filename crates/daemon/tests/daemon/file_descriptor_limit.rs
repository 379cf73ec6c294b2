//! The limit of open files is reached: reported once, and recovered from.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::thread::sleep;
use std::time::Duration;

use lab::scenario::{Daemon, DaemonNode};

use crate::TIMEOUT;


fn limit(node: &DaemonNode, daemon: &Daemon<'_>, count: usize) {
    let pid = daemon.running.pid();
    node.sh(&format!("prlimit --pid {pid} --nofile={count}:"));
}

#[test]
fn the_open_file_limit_is_logged_once_and_waiting_clients_are_served_later() {
    let node = DaemonNode::new();
    let daemon = node.start_daemon();
    // No file is about to be closed.
    daemon.await_condition("OrphansCollected", "True");
    let path = node.file("/run/headcni/daemon.sock");
    limit(&node, &daemon, 3);
    // The kernel accepts the connection, the daemon cannot.
    let mut client = UnixStream::connect(path).unwrap();
    client
        .write_all(b"{\"version\":1,\"ask\":\"status\"}\n")
        .unwrap();
    client.set_read_timeout(Some(TIMEOUT)).unwrap();
    // Ten times the interval between two attempts.
    sleep(Duration::from_secs(1));
    limit(&node, &daemon, 1024);
    let mut answer = String::new();
    BufReader::new(client).read_line(&mut answer).unwrap();
    assert!(answer.contains("\"answer\""), "{answer}");
    let message = daemon.await_condition("SocketOpen", "True");
    assert!(message.contains("listening at"), "{message}");
    let errors = daemon.metric("headcni_socket_accept_errors_total").unwrap();
    assert!(errors >= 5.0, "{errors}");
    let output = daemon.stop();
    let logged = output
        .stderr
        .lines()
        .filter(|line| line.contains("let a client of the socket in"));
    let logged: Vec<&str> = logged.collect();
    assert_eq!(logged.len(), 1, "{logged:#?}");
    assert!(logged[0].contains("LimitNOFILE"), "{logged:?}");
    let again = output
        .stderr
        .matches("condition holds condition=SocketOpen")
        .count();
    assert_eq!(again, 2, "{}", output.stderr);
}
