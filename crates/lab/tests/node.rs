//! A node is isolated from the host and ends with its owner.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use lab::{Address, Netns, Node, Running, eventually};

#[test]
fn a_node_starts_with_a_loopback_and_nothing_else() {
    let node = Node::new("fresh").unwrap();
    assert!(node.links().unwrap().is_empty());
    node.ping("127.0.0.1").unwrap();
    assert_eq!(node.run(["uname", "-n"]).unwrap().stdout, "fresh\n");
    assert_eq!(node.run(["ls", "/sys/class/net"]).unwrap().stdout, "lo\n");
    assert_eq!(node.iptables_save().unwrap(), "");
    assert_eq!(node.nft_ruleset().unwrap(), "");
}

#[test]
fn files_of_a_node_do_not_reach_the_host() {
    let node = Node::new("writer").unwrap();
    for dir in ["/etc", "/opt", "/var/lib", "/run", "/var/run"] {
        let file = format!("{dir}/lab-test-{}", node.holder_pid());
        node.write(&file, "here").unwrap();
        assert_eq!(node.run(["cat", &file]).unwrap().stdout, "here");
        assert_eq!(node.read(&file).unwrap(), "here");
        assert!(!Path::new(&file).exists(), "{file} is on the host");
    }
    assert!(node.has("/etc/passwd"), "the host's /etc shows through");
    assert!(!node.has("/etc/lab-nonesuch"));
}

#[test]
fn sysctls_are_per_node() {
    let (one, two) = (Node::new("one").unwrap(), Node::new("two").unwrap());
    one.sysctl("net.ipv4.ip_forward", "1").unwrap();
    two.sysctl("net.ipv4.ip_forward", "0").unwrap();
    let show = ["cat", "/proc/sys/net/ipv4/ip_forward"];
    assert_eq!(one.run(show).unwrap().stdout, "1\n");
    assert_eq!(two.run(show).unwrap().stdout, "0\n");
    assert!(one.sysctl("net.nonesuch", "1").is_err());
}

#[test]
fn two_nodes_with_the_same_names_do_not_collide() {
    let nodes = [Node::new("twin").unwrap(), Node::new("twin").unwrap()];
    for node in &nodes {
        let pod = node.pod("same").unwrap();
        node.run(["ip", "link", "add", "br0", "type", "bridge"])
            .unwrap();
        assert!(pod.links().unwrap().is_empty());
        assert_eq!(node.links().unwrap(), ["br0"]);
    }
    assert!(!Path::new("/run/netns/same").exists());
}

#[test]
fn wired_nodes_reach_each_other() {
    let (left, right) = (Node::new("left").unwrap(), Node::new("right").unwrap());
    left.wire("up0", "192.0.2.1/24", &right, "192.0.2.2/24")
        .unwrap();
    left.wire("up1", "2001:db8::1/64", &right, "2001:db8::2/64")
        .unwrap();
    left.ping("192.0.2.2").unwrap();
    right.ping("2001:db8::1").unwrap();
    let address = Address {
        dev: "up0".into(),
        cidr: "192.0.2.2/24".into(),
    };
    assert!(right.addresses().unwrap().contains(&address));
}

#[test]
fn pods_can_be_added_concurrently() {
    let node = Node::new("busy").unwrap();
    std::thread::scope(|scope| {
        for number in 0..8 {
            let node = &node;
            scope.spawn(move || node.pod(&format!("p{number}")).unwrap());
        }
    });
    assert_eq!(
        node.run(["ip", "netns", "list"])
            .unwrap()
            .stdout
            .lines()
            .count(),
        8
    );
}

#[test]
fn a_deleted_pod_is_gone() {
    let node = Node::new("n").unwrap();
    let pod = node.pod("p").unwrap();
    assert!(node.has(pod.netns_path()));
    pod.delete().unwrap();
    assert!(!node.has(pod.netns_path()));
    assert!(pod.run(["true"]).is_err());
}

#[test]
fn dropping_a_node_ends_its_holder() {
    let node = Node::new("short").unwrap();
    let proc = format!("/proc/{}", node.holder_pid());
    assert!(Path::new(&proc).exists());
    drop(node);
    assert!(!Path::new(&proc).exists());
}

#[test]
fn dropping_a_node_ends_its_processes() {
    let node = Node::new("busy").unwrap();
    let (_running, pids) = start_processes(&node);
    assert!(pids.iter().all(|pid| is_alive(pid)));
    drop(node);
    assert!(!pids.iter().any(|pid| is_alive(pid)));
}

/// Set in the child process of the next test.
const VICTIM: &str = "LAB_TEST_VICTIM";

#[test]
fn killing_the_owner_ends_holder_and_processes() {
    if std::env::var_os(VICTIM).is_some() {
        let node = Node::new("victim").unwrap();
        node.pod("p").unwrap();
        let (_running, mut pids) = start_processes(&node);
        pids.push(node.holder_pid().to_string());
        eprintln!("pids {}", pids.join(" "));
        return std::io::stdin().lines().for_each(drop);
    }
    let mut owner = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "killing_the_owner_ends_holder_and_processes",
            "--nocapture",
        ])
        .env(VICTIM, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(owner.stderr.take().unwrap()).lines();
    let pids = output
        .map(|line| line.unwrap())
        .find_map(|line| line.strip_prefix("pids ").map(str::to_owned))
        .unwrap();
    let pids: Vec<_> = pids.split(' ').collect();
    assert_eq!(pids.len(), 4);
    assert!(pids.iter().all(|pid| is_alive(pid)));

    // SIGKILL: the owner cannot clean up.
    owner.kill().unwrap();
    owner.wait().unwrap();
    eventually(Duration::from_secs(10), "all have ended", || {
        (!pids.iter().any(|pid| is_alive(pid))).then_some(())
    })
    .unwrap();
}

/// Set in the child process of the next test.
const BURDENED: &str = "LAB_TEST_BURDENED";
/// Variables of a developer's shell or a CI pod.
const BURDEN: [&str; 12] = [
    BURDENED,
    "HTTPS_PROXY",
    "http_proxy",
    "ALL_PROXY",
    "NO_PROXY",
    "SSL_CERT_FILE",
    "NODE_NAME",
    "NODE_POD_CIDR",
    "HEADCNID_NETWORK_MTU",
    "HEADSCALE_LISTEN_ADDR",
    "TS_DEBUG_FIREWALL_MODE",
    "KUBERNETES_SERVICE_HOST",
];
/// Inherited by every program.
const KEPT: [&str; 6] = ["PATH", "HOME", "TMPDIR", "TERM", "LANG", "RUST_BACKTRACE"];

#[test]
fn programs_inherit_only_harmless_variables() {
    if std::env::var_os(BURDENED).is_some() {
        let node = Node::new("clean").unwrap();
        let pod = node.pod("p").unwrap();
        for mut command in [node.command("env"), pod.command("env")] {
            command.env("NODE_NAME", "set for it");
            let output = lab::run(&mut command).unwrap().stdout;
            assert!(output.contains("NODE_NAME=set for it\n"), "{output}");
            let names = output.lines().filter_map(|line| line.split('=').next());
            let (kept, others): (Vec<_>, Vec<_>) = names.partition(|name| KEPT.contains(name));
            assert_eq!(others, ["NODE_NAME"], "{output}");
            assert!(kept.contains(&"PATH") && kept.contains(&"HOME"), "{output}");
        }
        return;
    }
    let mut burdened = Command::new(std::env::current_exe().unwrap());
    let this = "programs_inherit_only_harmless_variables";
    burdened
        .args(["--exact", this])
        .env("HOME", "/root")
        .envs(BURDEN.map(|name| (name, "http://127.0.0.1:9")));
    let ended = lab::attempt(&mut burdened).unwrap();
    assert!(ended.status.success(), "{}", ended.stdout);
    assert!(ended.stdout.contains("1 passed"), "{}", ended.stdout);
}

/// Starts three processes in other namespaces, the second in another session, the third without a parent.
/// Returns their PIDs.
#[expect(clippy::unwrap_used, reason = "it is a part of tests")]
fn start_processes(node: &Node) -> (Running, Vec<String>) {
    let lone = "(sleep 1000 & echo $! >>/run/pids)";
    let second = format!("setsid sh -c 'echo $$ >>/run/pids; {lone}; exec sleep 1000'");
    let script = format!("echo $$ >/run/pids; {second} & sleep 1000");
    let mut command = node.command("unshare");
    command.args(["--net", "--mount", "sh", "-c", &script]);
    let running = Running::spawn(&mut command, b"").unwrap();
    let pids = eventually(Duration::from_secs(10), "three have settled", || {
        let pids = node.read("/run/pids").ok()?;
        let pids: Vec<_> = pids.lines().map(str::to_owned).collect();
        (pids.len() == 3).then_some(pids)
    });
    (running, pids.unwrap())
}

/// An orphan may stay a zombie if PID 1 does not reap; its namespaces are gone then.
fn is_alive(pid: &str) -> bool {
    fs::read_dir(format!("/proc/{pid}/fd")).is_ok_and(|mut fds| fds.next().is_some())
}
