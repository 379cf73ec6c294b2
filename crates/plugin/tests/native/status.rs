//! STATUS: can an ADD work here?

use lab::scenario::PluginNode;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use lab::{Netns, Outcome};
use rstest::rstest;
use serde_json::{Value, json};

use crate::networks::{call, ipv4, plugin_node, used_node, with};

const SOCKET: &str = "/run/tailscale/tailscaled.sock";

fn status(plugin: &PluginNode, conf: &Value) -> Outcome {
    plugin.run(&call("STATUS", conf))
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
    status(&plugin_node(), &ipv4()).ok().unwrap();
}

#[rstest]
#[case::native(ipv4())]
#[case::of_the_seed(with(crate::seed_001::document(), "cniVersion", json!("1.1.0")))]
fn asking_changes_nothing(#[case] conf: Value) {
    let plugin = used_node(&conf);
    let before = plugin.snapshot();
    let outcome = status(&plugin, &conf);
    outcome.ok().unwrap();
    assert_eq!(outcome.stdout, "");
    plugin.node.assert_unchanged(&before);
}

/// A tailscaled that says this of itself, or takes questions and says nothing. It ends with the
/// test.
fn tailscaled(plugin: &PluginNode, says: Option<&'static str>) -> Arc<AtomicBool> {
    plugin.node.run(["mkdir", "-p", "/run/tailscale"]).unwrap();
    let listener = UnixListener::bind(plugin.node.path(SOCKET)).unwrap();
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
#[case::silent(None, Some("no response"))]
fn a_strict_status_asks_tailscaled_itself(
    #[case] says: Option<&'static str>,
    #[case] trouble: Option<&str>,
) {
    let plugin = plugin_node();
    let conf = with(ipv4(), "tailscale_socket", json!(SOCKET));
    let asked = tailscaled(&plugin, says);
    status(&plugin, &conf).ok().unwrap();
    assert!(!asked.load(Ordering::SeqCst), "by default nobody asks");
    let outcome = status(&plugin, &strict(conf));
    assert!(asked.load(Ordering::SeqCst));
    match trouble {
        None => outcome.ok().unwrap(),
        Some(part) => unavailable(&outcome, 51, part),
    }
}

#[test]
fn a_missing_tailscaled_matters_to_a_strict_status_only() {
    let plugin = plugin_node();
    let conf = with(ipv4(), "tailscale_socket", json!(SOCKET));
    status(&plugin, &conf).ok().unwrap();
    unavailable(&status(&plugin, &strict(conf)), 51, SOCKET);
    // Where no socket is named, there is nobody to ask.
    status(&plugin, &strict(ipv4())).ok().unwrap();
}

#[test]
fn a_full_pool_matters_to_a_strict_status_only() {
    let plugin = plugin_node();
    let ipam = json!({ "type": "headcni-ipam", "subnet": "10.9.0.0/30" });
    let conf = with(ipv4(), "ipam", ipam);
    status(&plugin, &strict(conf.clone())).ok().unwrap();
    let (pod, _) = plugin.attached("p", &conf);
    status(&plugin, &conf).ok().unwrap();
    unavailable(&status(&plugin, &strict(conf.clone())), 50, "10.9.0.0/30");
    plugin.succeed("DEL", &conf, &pod);
    status(&plugin, &strict(conf)).ok().unwrap();
}

#[rstest]
#[case::of_records("/var/lib/cni/headcni")]
#[case::of_leases("/var/lib/cni/networks/headcni")]
fn a_store_that_cannot_be_written_is_told_with_its_path(#[case] directory: &str) {
    let plugin = used_node(&ipv4());
    status(&plugin, &ipv4()).ok().unwrap();
    let mount = ["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", directory];
    plugin.node.run(mount).unwrap();
    unavailable(&status(&plugin, &ipv4()), 50, directory);
    plugin.node.run(["umount", directory]).unwrap();
    status(&plugin, &ipv4()).ok().unwrap();
}

#[test]
fn nft_is_needed_until_its_tables_are_there() {
    let plugin = used_node(&ipv4());
    let hide = "mount --bind /dev/null /usr/sbin/nft";
    plugin.node.run(hide.split(' ')).unwrap();
    status(&plugin, &ipv4()).ok().unwrap();
    let show = "umount /usr/sbin/nft";
    for table in ["headcni", "headcni-ports"] {
        plugin.node.run(show.split(' ')).unwrap();
        let delete = ["nft", "delete", "table", "inet", table];
        plugin.node.run(delete).unwrap();
        status(&plugin, &ipv4()).ok().unwrap();
        plugin.node.run(hide.split(' ')).unwrap();
        unavailable(&status(&plugin, &ipv4()), 50, "nftables");
        let pod = plugin.pod(&format!("without-{table}"));
        let outcome = plugin.attempt("ADD", &ipv4(), &pod);
        assert!(outcome.err_msg().contains("nftables"), "{outcome:?}");
        assert!(pod.links().unwrap().is_empty());
    }
}
