//! tailscaled outlives its supervisor, and is adopted by the next.

use std::fs::File;
use std::io::Write;
use std::process::Command;
use std::time::Duration;

use lab::{Netns, Node, Running};
use tailscaled::localapi;
use tailscaled::supervisor::{Drift, ProcessOrigin, RunningProcess, Supervisor, SupervisorEvent};
use tokio::time::timeout;

use crate::harness::{DEADLINE, TailscaledFixture, await_ready, await_stopped, spec, until};

async fn running(supervisor: &mut Supervisor) -> RunningProcess {
    match timeout(DEADLINE, supervisor.next()).await.unwrap() {
        SupervisorEvent::Running(ensured) => ensured,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn tailscaled_outlives_its_supervisor_and_is_adopted() {
    let node = Node::new("n1").unwrap();
    let mut tailscaled = TailscaledFixture::new(&node, None);
    let mut first = tailscaled.supervisor();
    let started = running(&mut first).await;
    assert_eq!(started.origin, ProcessOrigin::Started);
    await_ready(&tailscaled.api()).await;
    assert_eq!(node.links().unwrap(), ["headcni01"]);
    drop(first);

    let mut second = tailscaled.supervisor();
    let adopted = running(&mut second).await;
    let expected = RunningProcess {
        origin: ProcessOrigin::Adopted,
        ..started.clone()
    };
    assert_eq!(adopted, expected);

    // Without a record, and with an invalid one.
    for text in ["", "nonsense", r#"{"pid":1,"started":5}"#] {
        let mut record = File::create(tailscaled.state_file("tailscaled.pid")).unwrap();
        record.write_all(text.as_bytes()).unwrap();
        let adopted = tailscaled.supervisor().ensure().await.unwrap();
        assert_eq!(adopted, expected, "{text:?}");
    }

    // Drift is reported, and removed by a restart.
    tailscaled.spec.port = 41700;
    tailscaled.spec.ca_file = Some("/etc/other-ca.pem".into());
    let mut third = tailscaled.supervisor();
    let adopted = third.ensure().await.unwrap();
    assert_eq!(adopted.pid, started.pid);
    let expected = [
        Drift::Arguments(vec!["--port=41700".into()]),
        Drift::Variable("SSL_CERT_FILE".into()),
    ];
    assert_eq!(adopted.drift, expected);
    let restarted = third.restart().await.unwrap();
    assert_eq!(restarted.origin, ProcessOrigin::Started);
    assert_ne!(restarted.pid, started.pid);
    await_ready(&tailscaled.api()).await;
    assert_eq!(third.ensure().await.unwrap().drift, []);

    third.stop().await.unwrap();
    assert_eq!(tailscaled.pids(), [0; 0]);
    assert!(!tailscaled.state_file("tailscaled.pid").exists());
    let error = tailscaled.api().status().await.unwrap_err();
    assert!(error.is_not_running(), "{error}");
    // A second stop is no error, with or without files.
    third.stop().await.unwrap();
    std::fs::remove_dir_all(&tailscaled.spec.state_dir).unwrap();
    third.stop().await.unwrap();
    assert!(!tailscaled.spec.state_dir.exists());
}

#[tokio::test]
async fn a_process_with_another_state_directory_and_executable_is_adopted() {
    let node = Node::new("n1").unwrap();
    let mut tailscaled = TailscaledFixture::new(&node, None);
    let before = tailscaled.spec.clone();
    let started = running(&mut tailscaled.supervisor()).await;
    await_ready(&tailscaled.api()).await;

    let sibling = |name: &str| before.socket.with_file_name(name);
    std::fs::copy(&before.program, sibling("mesh-daemon")).unwrap();
    tailscaled.spec.program = sibling("mesh-daemon");
    tailscaled.spec.state_dir = sibling("elsewhere");
    let mut supervisor = tailscaled.supervisor();
    let adopted = running(&mut supervisor).await;
    assert_eq!(
        (adopted.pid, adopted.origin),
        (started.pid, ProcessOrigin::Adopted)
    );
    let flag = format!("--statedir={}", tailscaled.spec.state_dir.display());
    let expected = [
        Drift::Program,
        Drift::Arguments(vec![flag.into()]),
        Drift::Variable("TS_LOGS_DIR".into()),
    ];
    assert_eq!(adopted.drift, expected);
    assert_eq!(
        tailscaled.spec.running_state_dir(),
        Some(before.state_dir.clone())
    );

    let restarted = supervisor.restart().await.unwrap();
    let pid = i32::try_from(restarted.pid).unwrap();
    assert_eq!(
        (restarted.origin, tailscaled.pids()),
        (ProcessOrigin::Started, vec![pid])
    );
    await_ready(&tailscaled.api()).await;
    assert_eq!(supervisor.ensure().await.unwrap().drift, []);
    assert!(tailscaled.state_file("tailscaled.state").exists());

    // A stop with yet another state directory finds the process, and creates no directory.
    let mut last = before.clone();
    last.state_dir = sibling("nowhere");
    Supervisor::new(last.clone()).stop().await.unwrap();
    assert_eq!(tailscaled.pids(), [0; 0]);
    assert!(!last.state_dir.exists());
    assert_eq!(last.running_state_dir(), None);
}

#[tokio::test]
async fn no_process_is_started_if_another_listens_on_the_socket() {
    let node = Node::new("n1").unwrap();
    let tailscaled = TailscaledFixture::new(&node, None);
    let state_dir = tailscaled.spec.socket.with_file_name("foreign");
    let mut command = node.command("sh");
    command
        .args(["-c", "exec \"$0\" \"$@\" >/dev/null 2>&1"])
        .arg(&tailscaled.spec.program)
        .args(["--no-logs-no-support", "--port=0", "--tun=foreign0"])
        .arg("--statedir")
        .arg(&state_dir)
        .arg("--socket")
        .arg(&tailscaled.spec.socket)
        .env("TS_LOGS_DIR", &state_dir);
    let foreign = Running::spawn(&mut command, b"").unwrap();
    await_ready(&tailscaled.api()).await;

    let mut supervisor = tailscaled.supervisor();
    let event = supervisor.next().await;
    let SupervisorEvent::Failed { error, .. } = event else {
        panic!("{event:?}")
    };
    let [pid] = tailscaled.pids()[..] else {
        panic!("{:?}", tailscaled.pids())
    };
    let expected = format!(
        "process {pid} listens on {}",
        tailscaled.spec.socket.display()
    );
    assert!(error.to_string().contains(&expected), "{error}");
    // A stop does not touch it either.
    supervisor.stop().await.unwrap();
    await_ready(&tailscaled.api()).await;

    foreign.kill();
    foreign.wait(DEADLINE).unwrap();
    assert_eq!(
        running(&mut supervisor).await.origin,
        ProcessOrigin::Started
    );
    await_ready(&tailscaled.api()).await;
}

/// The paths for [`another_daemon`].
const PATHS: &str = "TAILSCALED_TEST_PATHS";

#[tokio::test]
async fn tailscaled_outlives_a_daemon_that_is_killed() {
    let node = Node::new("n1").unwrap();
    let tailscaled = TailscaledFixture::new(&node, None);
    let mut command = Command::new(std::env::current_exe().unwrap());
    let paths = [&tailscaled.spec.state_dir, &tailscaled.spec.socket];
    let paths = paths.map(|path| path.to_str().unwrap().to_owned());
    let netns = node.netns_file().to_str().unwrap().to_owned();
    command
        .args(["--exact", "--ignored", "supervisor::another_daemon"])
        .env(PATHS, [&paths[..], &[netns]].concat().join("\n"));
    let daemon = Running::spawn(&mut command, b"").unwrap();
    let record = tailscaled.state_file("tailscaled.pid");
    until("the other daemon has started tailscaled", async || {
        record.exists().then_some(())
    })
    .await;
    daemon.kill_group();
    daemon.wait(DEADLINE).unwrap();

    let mut supervisor = tailscaled.supervisor();
    let adopted = running(&mut supervisor).await;
    assert_eq!(
        (adopted.origin, adopted.drift),
        (ProcessOrigin::Adopted, vec![])
    );
    await_ready(&tailscaled.api()).await;
    // It is not a child of this process, so there is no exit status.
    tailscaled.kill();
    let event = timeout(DEADLINE, supervisor.next()).await.unwrap();
    let SupervisorEvent::Exited { pid, status, .. } = event else {
        panic!("{event:?}")
    };
    assert_eq!((pid, status), (adopted.pid, None));
}

#[ignore = "a child process of another test"]
#[tokio::test]
async fn another_daemon() {
    let Ok(tailscaled) = std::env::var(PATHS) else {
        return;
    };
    let [state_dir, socket, netns] = tailscaled.lines().collect::<Vec<_>>()[..] else {
        panic!("{tailscaled}")
    };
    let mut supervisor = Supervisor::new(spec(state_dir, socket, netns));
    loop {
        supervisor.next().await;
    }
}

#[tokio::test]
async fn concurrent_supervisors_start_one_process() {
    let node = Node::new("n1").unwrap();
    let tailscaled = TailscaledFixture::new(&node, None);
    let mut supervisors: Vec<_> = (0..4).map(|_| tailscaled.supervisor()).collect();
    let mut all = tokio::task::JoinSet::new();
    for mut supervisor in supervisors.drain(..) {
        all.spawn(async move { supervisor.ensure().await.unwrap() });
    }
    let ensured = all.join_all().await;
    let started = ensured
        .iter()
        .filter(|one| one.origin == ProcessOrigin::Started);
    assert_eq!(started.count(), 1, "{ensured:?}");
    assert_eq!(tailscaled.pids().len(), 1);
}

#[tokio::test]
async fn a_killed_tailscaled_is_restarted_and_the_bus_is_reopened() {
    let node = Node::new("n1").unwrap();
    let tailscaled = TailscaledFixture::new(&node, None);
    let mut supervisor = tailscaled.supervisor();
    let started = running(&mut supervisor).await;
    // Another supervisor sees the exit as well.
    let mut other = tailscaled.supervisor();
    running(&mut other).await;
    await_ready(&tailscaled.api()).await;
    let mut watch = tailscaled.api().watch_bus();
    let mut seen = Vec::new();
    let mut recv = async || match timeout(DEADLINE, watch.recv()).await.unwrap() {
        localapi::BusEvent::Connected => "connected",
        localapi::BusEvent::Notify(_) => "notify",
        localapi::BusEvent::Lost(_) => "lost",
    };
    for _ in 0..2 {
        seen.push(recv().await);
    }
    assert_eq!(seen, ["connected", "notify"]);

    tailscaled.kill();
    let exited = |event| match event {
        SupervisorEvent::Exited {
            pid,
            status,
            restart_in,
        } => (pid, status, restart_in),
        other => panic!("{other:?}"),
    };
    let (pid, status, restart_in) = exited(timeout(DEADLINE, supervisor.next()).await.unwrap());
    assert_eq!((pid, status.as_deref()), (started.pid, Some("signal 9")));
    assert_eq!(restart_in, Duration::from_secs(1));
    exited(timeout(DEADLINE, other.next()).await.unwrap());
    await_stopped(&tailscaled);
    let again = running(&mut supervisor).await;
    assert_eq!(again.origin, ProcessOrigin::Started);
    let adopted = running(&mut other).await;
    assert_eq!(
        (adopted.pid, adopted.origin),
        (again.pid, ProcessOrigin::Adopted)
    );

    while recv().await != "lost" {}
    while recv().await != "connected" {}
    assert_eq!(recv().await, "notify");
    assert_eq!(tailscaled.pids().len(), 1);
}

#[tokio::test]
async fn a_failed_start_is_reported_and_retried() {
    let node = Node::new("n1").unwrap();
    let mut tailscaled = TailscaledFixture::new(&node, None);
    let program = tailscaled.spec.program.clone();
    tailscaled.spec.program = "/nowhere/tailscaled".into();
    let mut supervisor = tailscaled.supervisor();
    let event = supervisor.next().await;
    let SupervisorEvent::Failed { error, retry_in } = event else {
        panic!("{event:?}")
    };
    assert!(error.to_string().contains("/nowhere/tailscaled"), "{error}");
    assert_eq!(retry_in, Duration::from_secs(1));
    tailscaled.spec.program = program;
    tailscaled.spec.netns = Some("/nowhere/netns".into());
    supervisor.set_spec(tailscaled.spec.clone());
    let event = supervisor.next().await;
    let SupervisorEvent::Failed { error, retry_in } = event else {
        panic!("{event:?}")
    };
    assert!(error.to_string().contains("/nowhere/netns"), "{error}");
    assert_eq!(retry_in, Duration::from_secs(2));
    tailscaled.spec.netns = Some(node.netns_file());
    supervisor.set_spec(tailscaled.spec.clone());
    running(&mut supervisor).await;
}
