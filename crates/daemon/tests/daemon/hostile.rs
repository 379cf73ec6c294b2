//! Clients that mean no good, disks that are full, files that vanish: pods start all the same, what
//! is wrong is said, and what can be mended is mended without a restart.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use lab::{Netns, Signal, eventually, tools};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::scene::{CONFLIST, Daemon, REPAIRED, SOON, Scene};

const SOCKET: &str = "/run/headcni/daemon.sock";
const CROWD: usize = 3000;
const CALLS: usize = 15;

fn allow_many_files() {
    let limit = getrlimit(Resource::Nofile);
    let current = limit.maximum;
    setrlimit(Resource::Nofile, Rlimit { current, ..limit }).unwrap();
}

/// Starts pods and takes them away again; how long an ADD takes as a rule.
fn usual_add(scene: &Scene, prefix: &str) -> Duration {
    let mut times: Vec<Duration> = (0..CALLS)
        .map(|nth| {
            let pod = scene.node.pod(&format!("{prefix}{nth}")).unwrap();
            let call = scene.call("ADD").pod(&pod).conf(&scene.conf());
            let outcome = call.run(&scene.node, tools::headcni()).unwrap();
            outcome.ok().unwrap();
            scene.del(&pod);
            outcome.elapsed
        })
        .collect();
    times.sort();
    times[CALLS / 2]
}

fn await_events(scene: &Scene, daemon: &Daemon<'_>, count: usize) {
    let of = |way: &str| {
        let series = format!("headcni_plugin_events_total{{request=\"{way}\"}}");
        daemon.metric(&series).unwrap_or_default()
    };
    #[expect(clippy::cast_precision_loss, reason = "they are few")]
    let count = count as f64;
    scene.eventually("all events are counted", || {
        (of("socket") + of("spool") > count - 0.5).then_some(())
    });
}

#[test]
fn a_silent_crowd_at_the_socket_slows_no_pod_down() {
    allow_many_files();
    let scene = Scene::new();
    let daemon = scene.start();
    let before = usual_add(&scene, "a");
    let path = scene.file(SOCKET);
    let crowd: Vec<UnixStream> = (0..CROWD)
        .map(|_| UnixStream::connect(&path).unwrap())
        .collect();
    let during = usual_add(&scene, "b");
    eprintln!("ADD as a rule: {before:?} alone, {during:?} beside {CROWD} silent clients");
    assert!(
        during < before * 2 + Duration::from_millis(20),
        "{before:?} before, {during:?} now"
    );
    await_events(&scene, &daemon, 4 * CALLS);
    assert_eq!(daemon.get("/healthz").unwrap().status, 200);
    drop(crowd);
}

#[test]
fn nonsense_at_the_socket_harms_nobody() {
    let scene = Scene::new();
    let daemon = scene.start();
    let long = vec![b'x'; 4 << 20];
    let deep = [b"{\"ask\":".repeat(20_000), b"\n".to_vec()].concat();
    let nonsense: [&[u8]; 8] = [
        b"",
        b"\n\n\n",
        b"\xff\xfe\x00\n",
        b"{}\n",
        b"{\"ask\":\"everything\"}\n",
        b"GET / HTTP/1.1\r\n\r\n",
        &long,
        &deep,
    ];
    for words in nonsense {
        let mut stream = UnixStream::connect(scene.file(SOCKET)).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        // Whoever says too much is not listened to until the end.
        let _ = stream.write_all(words);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    }
    let pod = scene.node.pod("p1").unwrap();
    scene.add(&pod);
    scene.eventually("the pod is known", || {
        (daemon.client().pods().unwrap().len() == 1).then_some(())
    });
    let end = daemon.stop();
    assert!(end.status.success(), "{end:?}");
    let length = end.stderr.len();
    assert!(length < 20_000, "{length} bytes of log");
}

#[test]
fn slow_clients_of_the_admin_server_hold_nobody_up() {
    allow_many_files();
    let scene = Scene::new();
    let daemon = scene.start();
    let address: SocketAddr = "127.0.0.1:9844".parse().unwrap();
    let crowd = scene.node.enter(|| {
        let connect = |_| {
            let stream = TcpStream::connect_timeout(&address, Duration::from_secs(1)).ok()?;
            (&stream)
                .write_all(b"GET /healthz HTTP/1.1\r\nHost: ")
                .ok()?;
            Some(stream)
        };
        (0..1000).map_while(connect).collect::<Vec<TcpStream>>()
    });
    let crowd = crowd.unwrap();
    let start = Instant::now();
    let answer = daemon.get("/healthz");
    eprintln!("{} slow clients: {:?}", crowd.len(), start.elapsed());
    assert_eq!(answer.unwrap().status, 200);
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    let pod = scene.node.pod("p1").unwrap();
    scene.add(&pod);
}

#[test]
fn pods_start_at_once_beside_a_daemon_that_stands_still() {
    let scene = Scene::new();
    let daemon = scene.start();
    daemon.running.signal(Signal::STOP);
    let usual = usual_add(&scene, "p");
    assert!(usual < Duration::from_secs(1), "{usual:?}");
    daemon.running.signal(Signal::CONT);
    await_events(&scene, &daemon, 2 * CALLS);
}

#[test]
fn a_full_run_directory_is_told_and_used_again_when_there_is_room() {
    let scene = Scene::new();
    scene.sh("mkdir /run/headcni; mount -t tmpfs -o size=64k tmpfs /run/headcni");
    let daemon = scene.start();
    scene.sh(
        "head -c 1M /dev/zero > /run/headcni/filler || true; rm /run/headcni/subnet.env; \
              head -c 1M /dev/zero > /run/headcni/filler2 || true",
    );
    let message = daemon.await_condition("CNIConfigWritten", "False");
    assert!(message.contains("subnet.env"), "{message}");
    assert!(message.to_lowercase().contains("space"), "{message}");
    // Who is told nothing does not wait.
    let pod = scene.node.pod("p1").unwrap();
    scene.add(&pod);
    scene.sh("rm /run/headcni/filler*");
    daemon.await_condition("CNIConfigWritten", "True");
    assert!(scene.read("/run/headcni/subnet.env").is_some());
    daemon.await_ready();
}

#[test]
fn a_state_directory_that_cannot_be_written_is_told_and_written_when_it_can() {
    let scene = Scene::new();
    scene.sh(
        "mkdir -p /var/lib/headcni; mount -t tmpfs tmpfs /var/lib/headcni; \
              mount -o remount,ro /var/lib/headcni",
    );
    let daemon = scene.launch();
    daemon.await_condition("PodCIDRKnown", "True");
    let message = scene.eventually("it is told", || {
        let condition = daemon.condition("CNIConfigWritten")?;
        let message = condition["message"].as_str()?.to_owned();
        message.contains("/var/lib/headcni").then_some(message)
    });
    assert!(message.to_lowercase().contains("read-only"), "{message}");
    assert_eq!(daemon.get("/healthz").unwrap().status, 200);
    scene.sh("mount -o remount,rw /var/lib/headcni");
    let patience = Duration::from_secs(35);
    eventually(patience, "the node is ready", || {
        (daemon.get("/ready")?.status == 200).then_some(())
    })
    .unwrap();
    assert!(scene.read(CONFLIST).is_some());
}

#[test]
fn a_run_directory_that_vanishes_comes_back_with_all_that_was_in_it() {
    let scene = Scene::new();
    let daemon = scene.start();
    scene.sh("rm -r /run/headcni");
    eventually(REPAIRED, "subnet.env is back", || {
        scene.read("/run/headcni/subnet.env").map(drop)
    })
    .unwrap();
    // It is looked for every ten seconds.
    let patience = Duration::from_secs(25);
    eventually(patience, "the socket is back", || {
        UnixStream::connect(scene.file(SOCKET)).ok()
    })
    .unwrap();
    let pod = scene.node.pod("p1").unwrap();
    scene.add(&pod);
    scene.eventually("the pod is known", || {
        (daemon.client().pods().unwrap().len() == 1).then_some(())
    });
    let second = scene.command(&["uninstall"]);
    assert!(
        !second.status.success(),
        "there is still one daemon: {second:?}"
    );
    assert!(scene.read(CONFLIST).is_some());
}

#[test]
fn an_admin_address_that_is_taken_is_waited_for() {
    let scene = Scene::new();
    let taken = scene.node.enter(|| TcpListener::bind("127.0.0.1:9844"));
    let taken = taken.unwrap().unwrap();
    let daemon = scene.launch();
    scene.eventually("the node is configured all the same", || {
        scene.read(CONFLIST).map(drop)
    });
    let pod = scene.node.pod("p1").unwrap();
    scene.add(&pod);
    drop(taken);
    daemon.await_ready();
    assert_eq!(daemon.get("/debug/pprof/").unwrap().status, 404);
    scene.configure(
        "network: {podCIDR: {nodeLocal: 10.244.1.0/24, base: 10.244.0.0/16}}
monitoring: {pprof: true}",
    );
    daemon.reload();
    scene.eventually("it hears of reloads", || {
        (daemon.get("/debug/pprof/")?.status == 200).then_some(())
    });
    let log = daemon.stop().stderr;
    assert!(log.contains("127.0.0.1:9844"), "{log}");
}

#[test]
fn a_run_directory_that_was_full_before_keeps_no_daemon_from_starting() {
    let scene = Scene::new();
    scene.sh(
        "mkdir /run/headcni; mount -t tmpfs -o size=64k tmpfs /run/headcni; \
         head -c 1M /dev/zero > /run/headcni/filler || true",
    );
    let daemon = scene.launch();
    scene.eventually("it is told", || {
        let message = daemon.condition("CNIConfigWritten")?["message"].to_string();
        message.contains("subnet.env").then_some(())
    });
    scene.sh("rm /run/headcni/filler");
    daemon.await_ready();
}

#[test]
fn pipes_in_place_of_files_hang_nothing() {
    let scene = Scene::new();
    let daemon = scene.start();
    let pod = scene.node.pod("p1").unwrap();
    scene.add(&pod);
    daemon.stop();
    scene.sh("cd /var/lib/cni/headcni/headcni; mkfifo p9@eth0.json; \
         cd /var/lib/cni/networks/headcni; mkfifo 10.244.1.9; \
         rm /run/headcni/subnet.env /var/lib/headcni/*; \
         mkfifo /run/headcni/subnet.env /var/lib/headcni/subnet.env; \
         rm /etc/cni/net.d/10-headcni.conflist; mkfifo /etc/cni/net.d/10-headcni.conflist; \
         mkdir -p /var/lib/kubelet; mkfifo /var/lib/kubelet/config.yaml");
    let daemon = scene.launch();
    daemon.await_ready();
    assert!(scene.read("/run/headcni/subnet.env").is_some());
    scene.sh("rm /etc/headcni/daemon.yaml; mkfifo /etc/headcni/daemon.yaml");
    daemon.reload();
    let message = daemon.await_condition("ConfigurationLoaded", "False");
    assert!(message.contains("pipe"), "{message}");
    assert!(daemon.stop().status.success());
}
