//! Hostile clients, full disks and deleted files: pods start anyway, faults are reported, and the daemon
//! recovers without a restart.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use lab::scenario::{CONFLIST, DaemonNode};
use lab::{Netns, Signal, eventually, tools};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::{TIMEOUT, client};

const SOCKET: &str = "/run/headcni/daemon.sock";
/// Repairs take less than a second on an idle machine.
const REPAIR_TIMEOUT: Duration = Duration::from_secs(5);
const CLIENTS: usize = 3000;
const CALLS: usize = 15;

fn allow_many_files() {
    let limit = getrlimit(Resource::Nofile);
    let current = limit.maximum;
    setrlimit(Resource::Nofile, Rlimit { current, ..limit }).unwrap();
}

/// Adds and deletes pods; returns the median duration of ADD.
fn median_add(node: &DaemonNode, prefix: &str) -> Duration {
    let mut times: Vec<Duration> = (0..CALLS)
        .map(|nth| {
            let pod = node.pod(&format!("{prefix}{nth}"));
            let call = node.call("ADD").pod(&pod).conf(&node.cni_conf());
            let outcome = call.run(&node.node, tools::headcni()).unwrap();
            outcome.ok().unwrap();
            node.del(&pod);
            outcome.elapsed
        })
        .collect();
    times.sort();
    times[CALLS / 2]
}

/// The daemon still learns of new pods.
fn assert_lists_a_new_pod(node: &DaemonNode) {
    let pod = node.pod("new");
    node.add(&pod);
    node.eventually("the pod is listed", || {
        let listed = client(node).pods().ok()?;
        listed
            .iter()
            .any(|pod| pod.container == "new")
            .then_some(())
    });
}

#[test]
fn thousands_of_idle_socket_clients_do_not_delay_add() {
    allow_many_files();
    let node = DaemonNode::new();
    let daemon = node.start_daemon();
    let before = median_add(&node, "a");
    let path = node.file(SOCKET);
    let clients: Vec<UnixStream> = (0..CLIENTS)
        .map(|_| UnixStream::connect(&path).unwrap())
        .collect();
    let during = median_add(&node, "b");
    eprintln!("median ADD: {before:?} alone, {during:?} with {CLIENTS} idle clients");
    assert!(
        during < before * 2 + Duration::from_millis(20),
        "{before:?} before, {during:?} now"
    );
    assert_eq!(daemon.get("/healthz").unwrap().status, 200);
    drop(clients);
    assert_lists_a_new_pod(&node);
}

#[test]
fn malformed_requests_do_not_disturb_the_daemon() {
    let node = DaemonNode::new();
    let daemon = node.start_daemon();
    let long = vec![b'x'; 4 << 20];
    let deep = [b"{\"ask\":".repeat(20_000), b"\n".to_vec()].concat();
    let malformed: [&[u8]; 8] = [
        b"",
        b"\n\n\n",
        b"\xff\xfe\x00\n",
        b"{}\n",
        b"{\"ask\":\"everything\"}\n",
        b"GET / HTTP/1.1\r\n\r\n",
        &long,
        &deep,
    ];
    for bytes in malformed {
        let mut stream = UnixStream::connect(node.file(SOCKET)).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        // The daemon closes the connection of a client that sends too much.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    }
    let pod = node.pod("p1");
    node.add(&pod);
    node.eventually("the pod is known", || {
        (client(&node).pods().unwrap().len() == 1).then_some(())
    });
    let end = daemon.stop();
    assert!(end.status.success(), "{end:?}");
    let length = end.stderr.len();
    assert!(length < 20_000, "{length} bytes of log");
}

#[test]
fn slow_admin_clients_do_not_block_others() {
    allow_many_files();
    let node = DaemonNode::new();
    let daemon = node.start_daemon();
    let address: SocketAddr = "127.0.0.1:9844".parse().unwrap();
    let clients = node.node.enter(|| {
        let connect = |_| {
            let stream = TcpStream::connect_timeout(&address, Duration::from_secs(1)).ok()?;
            (&stream)
                .write_all(b"GET /healthz HTTP/1.1\r\nHost: ")
                .ok()?;
            Some(stream)
        };
        (0..1000).map_while(connect).collect::<Vec<TcpStream>>()
    });
    let clients = clients.unwrap();
    let start = Instant::now();
    let answer = daemon.get("/healthz");
    eprintln!("{} slow clients: {:?}", clients.len(), start.elapsed());
    assert_eq!(answer.unwrap().status, 200);
    assert!(start.elapsed() < TIMEOUT, "{:?}", start.elapsed());
    let pod = node.pod("p1");
    node.add(&pod);
}

#[test]
fn add_is_not_delayed_by_a_stopped_daemon() {
    let node = DaemonNode::new();
    let daemon = node.start_daemon();
    daemon.running.signal(Signal::STOP);
    let median = median_add(&node, "p");
    assert!(median < Duration::from_secs(1), "{median:?}");
    daemon.running.signal(Signal::CONT);
    assert_lists_a_new_pod(&node);
}

#[test]
fn a_full_run_directory_is_reported_and_used_again_when_there_is_space() {
    let node = DaemonNode::new();
    node.sh("mkdir /run/headcni; mount -t tmpfs -o size=64k tmpfs /run/headcni");
    let daemon = node.start_daemon();
    node.sh(
        "head -c 1M /dev/zero > /run/headcni/filler || true; rm /run/headcni/subnet.env; \
              head -c 1M /dev/zero > /run/headcni/filler2 || true",
    );
    let message = daemon.await_condition("CNIConfigWritten", "False");
    assert!(message.contains("subnet.env"), "{message}");
    assert!(message.to_lowercase().contains("space"), "{message}");
    // ADD does not need subnet.env.
    let pod = node.pod("p1");
    node.add(&pod);
    node.sh("rm /run/headcni/filler*");
    daemon.await_condition("CNIConfigWritten", "True");
    assert!(node.read("/run/headcni/subnet.env").is_some());
    daemon.await_ready();
}

#[test]
fn a_read_only_state_directory_is_reported_and_written_once_it_is_writable() {
    let node = DaemonNode::new();
    node.sh(
        "mkdir -p /var/lib/headcni; mount -t tmpfs tmpfs /var/lib/headcni; \
              mount -o remount,ro /var/lib/headcni",
    );
    let daemon = node.spawn_daemon();
    daemon.await_condition("PodCIDRKnown", "True");
    let message = node.eventually("it is reported", || {
        let condition = daemon.condition("CNIConfigWritten")?;
        let message = condition["message"].as_str()?.to_owned();
        message.contains("/var/lib/headcni").then_some(message)
    });
    assert!(message.to_lowercase().contains("read-only"), "{message}");
    assert_eq!(daemon.get("/healthz").unwrap().status, 200);
    node.sh("mount -o remount,rw /var/lib/headcni");
    let timeout = Duration::from_secs(35);
    eventually(timeout, "the node is ready", || {
        (daemon.get("/ready")?.status == 200).then_some(())
    })
    .unwrap();
    assert!(node.read(CONFLIST).is_some());
}

#[test]
fn a_deleted_run_directory_is_recreated_with_its_files_and_socket() {
    let node = DaemonNode::new();
    let _daemon = node.start_daemon();
    node.sh("rm -r /run/headcni");
    eventually(REPAIR_TIMEOUT, "subnet.env is back", || {
        node.read("/run/headcni/subnet.env").map(drop)
    })
    .unwrap();
    // The socket is checked every ten seconds.
    let timeout = Duration::from_secs(25);
    eventually(timeout, "the socket is back", || {
        UnixStream::connect(node.file(SOCKET)).ok()
    })
    .unwrap();
    let pod = node.pod("p1");
    node.add(&pod);
    node.eventually("the pod is known", || {
        (client(&node).pods().unwrap().len() == 1).then_some(())
    });
    let second = node.command(&["uninstall"]);
    assert!(!second.status.success(), "a daemon still runs: {second:?}");
    assert!(node.read(CONFLIST).is_some());
}

#[test]
fn the_daemon_waits_for_an_admin_address_in_use() {
    let node = DaemonNode::new();
    let taken = node.node.enter(|| TcpListener::bind("127.0.0.1:9844"));
    let taken = taken.unwrap().unwrap();
    let daemon = node.spawn_daemon();
    node.eventually("the node is configured anyway", || {
        node.read(CONFLIST).map(drop)
    });
    let pod = node.pod("p1");
    node.add(&pod);
    drop(taken);
    daemon.await_ready();
    assert_eq!(daemon.get("/debug/pprof/").unwrap().status, 404);
    node.configure(
        "network: {podCIDR: {nodeLocal: 10.244.1.0/24, base: 10.244.0.0/16}}
monitoring: {pprof: true}",
    );
    daemon.reload();
    node.eventually("the admin server is reloaded", || {
        (daemon.get("/debug/pprof/")?.status == 200).then_some(())
    });
    let log = daemon.stop().stderr;
    assert!(log.contains("127.0.0.1:9844"), "{log}");
}

#[test]
fn the_daemon_starts_with_a_full_run_directory() {
    let node = DaemonNode::new();
    node.sh(
        "mkdir /run/headcni; mount -t tmpfs -o size=64k tmpfs /run/headcni; \
         head -c 1M /dev/zero > /run/headcni/filler || true",
    );
    let daemon = node.spawn_daemon();
    node.eventually("it is reported", || {
        let message = daemon.condition("CNIConfigWritten")?["message"].to_string();
        message.contains("subnet.env").then_some(())
    });
    node.sh("rm /run/headcni/filler");
    daemon.await_ready();
}

#[test]
fn named_pipes_in_place_of_files_do_not_block_the_daemon() {
    let node = DaemonNode::new();
    let daemon = node.start_daemon();
    let pod = node.pod("p1");
    node.add(&pod);
    daemon.stop();
    node.sh("cd /var/lib/cni/headcni/headcni; mkfifo p9@eth0.json; \
         cd /var/lib/cni/networks/headcni; mkfifo 10.244.1.9; \
         rm /run/headcni/subnet.env /var/lib/headcni/*; \
         mkfifo /run/headcni/subnet.env /var/lib/headcni/subnet.env; \
         rm /etc/cni/net.d/10-headcni.conflist; mkfifo /etc/cni/net.d/10-headcni.conflist; \
         mkdir -p /var/lib/kubelet; mkfifo /var/lib/kubelet/config.yaml");
    let daemon = node.spawn_daemon();
    daemon.await_ready();
    assert!(node.read("/run/headcni/subnet.env").is_some());
    node.sh("rm /etc/headcni/daemon.yaml; mkfifo /etc/headcni/daemon.yaml");
    daemon.reload();
    let message = daemon.await_condition("ConfigurationLoaded", "False");
    assert!(message.contains("pipe"), "{message}");
    assert!(daemon.stop().status.success());
}
