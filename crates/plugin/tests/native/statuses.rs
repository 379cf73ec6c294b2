//! STATUS: can an ADD work here?

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use lab::{Netns, Outcome};
use rstest::rstest;
use serde_json::{Value, json};

use crate::scene::{Scene, call, ipv4, with};

const SOCKET: &str = "/run/tailscale/tailscaled.sock";

fn status(scene: &Scene, conf: &Value) -> Outcome {
    scene.run(&call("STATUS", conf))
}

#[track_caller]
fn unavailable(outcome: &Outcome, code: u64, part: &str) {
    assert_eq!(outcome.err_code(), Some(code), "{outcome:?}");
    assert!(outcome.err_msg().contains(part), "{outcome:?}");
}

fn strict(conf: Value) -> Value {
    with(conf, "status_strict", json!(true))
}

#[test]
fn a_new_machine_is_ready() {
    status(&Scene::new(), &ipv4()).ok().unwrap();
}

#[rstest]
#[case::native(ipv4())]
#[case::of_the_seed(with(crate::seed::document(), "cniVersion", json!("1.1.0")))]
fn asking_changes_nothing(#[case] conf: Value) {
    let scene = Scene::used(&conf);
    let before = scene.snapshot();
    let outcome = status(&scene, &conf);
    outcome.ok().unwrap();
    assert_eq!(outcome.stdout, "");
    scene.node.assert_unchanged(&before);
}

/// A tailscaled that says this of itself, or takes questions and says nothing. It ends with the
/// test.
fn tailscaled(scene: &Scene, says: Option<&'static str>) -> Arc<AtomicBool> {
    scene.node.run(["mkdir", "-p", "/run/tailscale"]).unwrap();
    let listener = UnixListener::bind(scene.node.path(SOCKET)).unwrap();
    let asked = Arc::new(AtomicBool::new(false));
    let was_asked = Arc::clone(&asked);
    thread::spawn(move || {
        let mut silent = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = String::new();
            BufReader::new(&stream).read_line(&mut request).unwrap();
            was_asked.store(request.contains("/localapi/v0/status"), Ordering::SeqCst);
            let Some(state) = says else {
                silent.push(stream);
                continue;
            };
            let body = json!({ "BackendState": state, "Version": "1.102.5" }).to_string();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            stream.write_all((head + &body).as_bytes()).unwrap();
        }
    });
    asked
}

#[rstest]
#[case::running(Some("Running"), None)]
#[case::stopped(Some("Stopped"), Some("Stopped"))]
#[case::needs_login(Some("NeedsLogin"), Some("NeedsLogin"))]
#[case::silent(None, Some("timed out"))]
fn a_strict_status_asks_tailscaled_itself(
    #[case] says: Option<&'static str>,
    #[case] trouble: Option<&str>,
) {
    let scene = Scene::new();
    let conf = with(ipv4(), "tailscale_socket", json!(SOCKET));
    let asked = tailscaled(&scene, says);
    status(&scene, &conf).ok().unwrap();
    assert!(!asked.load(Ordering::SeqCst), "by default nobody asks");
    let outcome = status(&scene, &strict(conf));
    assert!(asked.load(Ordering::SeqCst));
    match trouble {
        None => outcome.ok().unwrap(),
        Some(part) => unavailable(&outcome, 51, part),
    }
}

#[test]
fn a_missing_tailscaled_matters_to_a_strict_status_only() {
    let scene = Scene::new();
    let conf = with(ipv4(), "tailscale_socket", json!(SOCKET));
    status(&scene, &conf).ok().unwrap();
    unavailable(&status(&scene, &strict(conf)), 51, SOCKET);
    // Where no socket is named, there is nobody to ask.
    status(&scene, &strict(ipv4())).ok().unwrap();
}

#[test]
fn a_full_pool_matters_to_a_strict_status_only() {
    let scene = Scene::new();
    let ipam = json!({ "type": "headcni-ipam", "subnet": "10.9.0.0/30" });
    let conf = with(ipv4(), "ipam", ipam);
    status(&scene, &strict(conf.clone())).ok().unwrap();
    let (pod, _) = scene.attached("p", &conf);
    status(&scene, &conf).ok().unwrap();
    unavailable(&status(&scene, &strict(conf.clone())), 50, "10.9.0.0/30");
    scene.done("DEL", &conf, &pod);
    status(&scene, &strict(conf)).ok().unwrap();
}

#[rstest]
#[case::of_records("/var/lib/cni/headcni")]
#[case::of_leases("/var/lib/cni/networks/headcni")]
fn a_store_that_cannot_be_written_is_told_with_its_path(#[case] directory: &str) {
    let scene = Scene::used(&ipv4());
    status(&scene, &ipv4()).ok().unwrap();
    let mount = ["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", directory];
    scene.node.run(mount).unwrap();
    unavailable(&status(&scene, &ipv4()), 50, directory);
    scene.node.run(["umount", directory]).unwrap();
    status(&scene, &ipv4()).ok().unwrap();
}

#[test]
fn nft_is_needed_until_its_tables_are_there() {
    let scene = Scene::used(&ipv4());
    let hide = "mount --bind /dev/null /usr/sbin/nft";
    scene.node.run(hide.split(' ')).unwrap();
    status(&scene, &ipv4()).ok().unwrap();
    let show = "umount /usr/sbin/nft";
    for table in ["headcni", "headcni-ports"] {
        scene.node.run(show.split(' ')).unwrap();
        let delete = ["nft", "delete", "table", "inet", table];
        scene.node.run(delete).unwrap();
        status(&scene, &ipv4()).ok().unwrap();
        scene.node.run(hide.split(' ')).unwrap();
        unavailable(&status(&scene, &ipv4()), 50, "nftables");
        let pod = scene.pod(&format!("without-{table}"));
        let outcome = scene.attempt("ADD", &ipv4(), &pod);
        assert!(outcome.err_msg().contains("nftables"), "{outcome:?}");
        assert!(pod.links().unwrap().is_empty());
    }
}
