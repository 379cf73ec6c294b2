//! Too many open files: told once, and over when it is over.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::thread::sleep;
use std::time::Duration;

use crate::scene::{Daemon, SOON, Scene};

/// Lets the daemon open no more files, or as many as it likes.
fn limit(scene: &Scene, daemon: &Daemon<'_>, count: usize) {
    let pid = daemon.running.pid();
    scene.sh(&format!("prlimit --pid {pid} --nofile={count}:"));
}

#[test]
fn too_many_open_files_are_told_once_and_nobody_is_forgotten() {
    let scene = Scene::new();
    let daemon = scene.start();
    // So that what is open is not about to be closed.
    daemon.await_condition("OrphansCollected", "True");
    let path = scene.file("/run/headcni/daemon.sock");
    limit(&scene, &daemon, 3);
    // The kernel takes it, and the daemon does not get it.
    let mut client = UnixStream::connect(path).unwrap();
    client
        .write_all(b"{\"version\":1,\"ask\":\"status\"}\n")
        .unwrap();
    client.set_read_timeout(Some(SOON)).unwrap();
    // Ten times as long as it waits between two tries.
    sleep(Duration::from_secs(1));
    limit(&scene, &daemon, 1024);
    let mut answer = String::new();
    BufReader::new(client).read_line(&mut answer).unwrap();
    assert!(answer.contains("\"answer\""), "{answer}");
    let message = daemon.await_condition("SocketOpen", "True");
    assert!(message.contains("listening at"), "{message}");
    let errors = daemon.metric("headcni_socket_accept_errors_total").unwrap();
    assert!(errors >= 5.0, "{errors}");
    let output = daemon.stop();
    let told = output
        .stderr
        .lines()
        .filter(|line| line.contains("let a client of the socket in"));
    let told: Vec<&str> = told.collect();
    assert_eq!(told.len(), 1, "{told:#?}");
    assert!(told[0].contains("LimitNOFILE"), "{told:?}");
    let again = output
        .stderr
        .matches("condition holds condition=SocketOpen")
        .count();
    assert_eq!(again, 2, "{}", output.stderr);
}
