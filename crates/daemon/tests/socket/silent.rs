//! Thousands of clients that say nothing.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use daemon::socket::MAX_CLIENTS;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::scene::{SPOOL, Scene, call, headcni, native};
use crate::server::Process;

const CROWD: usize = 5000;
/// Pods that start in the meantime.
const PODS: usize = 20;

fn allow_many_files() {
    let limit = getrlimit(Resource::Nofile);
    let current = limit.maximum;
    setrlimit(Resource::Nofile, Rlimit { current, ..limit }).unwrap();
}

/// Connects and says nothing; an error if the queue is full.
fn silent(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// Starts pods and takes them away again; how long the slowest call took.
fn start_pods(scene: &Scene) -> Duration {
    let mut slowest = Duration::ZERO;
    for number in 0..PODS {
        let pod = scene.node.pod(&format!("p{number}")).unwrap();
        for verb in ["ADD", "DEL"] {
            let outcome = call(verb, &native(), &pod).run(&scene.node, headcni());
            let outcome = outcome.unwrap();
            outcome.ok().unwrap();
            slowest = slowest.max(outcome.elapsed);
        }
    }
    slowest
}

#[test]
fn a_crowd_at_a_stopped_daemon_delays_no_pod_and_no_event_is_lost() {
    allow_many_files();
    let scene = Scene::used();
    let server = Process::start(&scene.socket());
    let before = server.peak_kib();
    server.stop();
    let crowd: Vec<_> = (0..CROWD).map(|_| silent(&scene.socket())).collect();
    let let_in = crowd.iter().filter(|client| client.is_ok()).count();
    assert!(let_in < CROWD, "the queue has no end");
    let slowest = start_pods(&scene);
    assert!(slowest < Duration::from_secs(2), "{slowest:?}");
    let spooled = scene.node.read(SPOOL).unwrap();
    assert_eq!(spooled.lines().count(), 2 * PODS);
    let started = Instant::now();
    server.go_on();
    server.await_told(2 * PODS);
    let grown = server.peak_kib() - before;
    eprintln!(
        "{let_in} of {CROWD} silent clients in the queue: events after {:?}, {grown} KiB more, \
         {} open files",
        started.elapsed(),
        server.open_files()
    );
    assert!(grown < 4096, "{grown} KiB more");
    drop(crowd);
}

#[test]
fn a_crowd_at_a_running_daemon_holds_no_event_up() {
    allow_many_files();
    let scene = Scene::used();
    let server = Process::start(&scene.socket());
    let before = server.peak_kib();
    let path = scene.socket();
    let started = Instant::now();
    let slowest = thread::scope(|scope| {
        let crowd = scope.spawn(|| {
            let one = |_| loop {
                match silent(&path) {
                    Ok(client) => break client,
                    Err(rustix::io::Errno::AGAIN) => thread::yield_now(),
                    Err(error) => panic!("{error}"),
                }
            };
            let crowd: Vec<_> = (0..CROWD).map(one).collect();
            crowd
        });
        let slowest = start_pods(&scene);
        server.await_told(2 * PODS);
        let files = server.open_files();
        assert!(files < MAX_CLIENTS + 30, "{files} open files");
        drop(crowd.join().unwrap());
        slowest
    });
    let grown = server.peak_kib() - before;
    eprintln!(
        "{CROWD} silent clients beside {} calls: all told after {:?}, slowest call {slowest:?}, \
         {grown} KiB more",
        2 * PODS,
        started.elapsed()
    );
    assert_eq!(server.told().len(), 2 * PODS);
    assert!(grown < 4096, "{grown} KiB more");
    assert!(slowest < Duration::from_secs(2), "{slowest:?}");
}
