//! The life of a tailscaled, which is longer than its supervisor's.

use std::fs::File;
use std::io::Write;
use std::process::Command;
use std::time::Duration;

use lab::{Netns, Node, Running};
use tailscaled::localapi;
use tailscaled::supervisor::{Difference, Ensured, Event, Origin, Supervisor};
use tokio::time::timeout;

use crate::scene::{PATIENCE, Place, answers, nobody_runs, settings, until};

async fn running(supervisor: &mut Supervisor) -> Ensured {
    match timeout(PATIENCE, supervisor.next()).await.unwrap() {
        Event::Running(ensured) => ensured,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn it_outlives_its_supervisor_and_is_adopted() {
    let node = Node::new("n1").unwrap();
    let mut place = Place::new(&node, None);
    let mut first = place.supervisor();
    let started = running(&mut first).await;
    assert_eq!(started.origin, Origin::Started);
    answers(&place.api()).await;
    assert_eq!(node.links().unwrap(), ["headcni01"]);
    drop(first);

    let mut second = place.supervisor();
    let adopted = running(&mut second).await;
    let expected = Ensured {
        origin: Origin::Adopted,
        ..started.clone()
    };
    assert_eq!(adopted, expected);

    // Somebody who died before it was written down, and what nobody understands.
    for text in ["", "nonsense", r#"{"pid":1,"started":5}"#] {
        let mut record = File::create(place.state_file("tailscaled.pid")).unwrap();
        record.write_all(text.as_bytes()).unwrap();
        let adopted = place.supervisor().ensure().await.unwrap();
        assert_eq!(adopted, expected, "{text:?}");
    }

    // What only a restart can change is told, and done on request.
    place.settings.port = 41700;
    place.settings.ca_file = Some("/etc/other-ca.pem".into());
    let mut third = place.supervisor();
    let adopted = third.ensure().await.unwrap();
    assert_eq!(adopted.pid, started.pid);
    let expected = [
        Difference::Arguments(vec!["--port=41700".into()]),
        Difference::Variable("SSL_CERT_FILE".into()),
    ];
    assert_eq!(adopted.differences, expected);
    let restarted = third.restart().await.unwrap();
    assert_eq!(restarted.origin, Origin::Started);
    assert_ne!(restarted.pid, started.pid);
    answers(&place.api()).await;
    assert_eq!(third.ensure().await.unwrap().differences, []);

    third.stop().await.unwrap();
    assert_eq!(place.pids(), [0; 0]);
    assert!(!place.state_file("tailscaled.pid").exists());
    let error = place.api().status().await.unwrap_err();
    assert!(error.is_absence(), "{error}");
    // Once more is no error, with or without files.
    third.stop().await.unwrap();
    std::fs::remove_dir_all(&place.settings.state_dir).unwrap();
    third.stop().await.unwrap();
    assert!(!place.settings.state_dir.exists());
}

#[tokio::test]
async fn with_another_state_directory_and_program_there_is_still_one() {
    let node = Node::new("n1").unwrap();
    let mut place = Place::new(&node, None);
    let before = place.settings.clone();
    let started = running(&mut place.supervisor()).await;
    answers(&place.api()).await;

    let beside = |name: &str| before.socket.with_file_name(name);
    std::fs::copy(&before.program, beside("mesh-daemon")).unwrap();
    place.settings.program = beside("mesh-daemon");
    place.settings.state_dir = beside("elsewhere");
    let mut supervisor = place.supervisor();
    let adopted = running(&mut supervisor).await;
    assert_eq!(
        (adopted.pid, adopted.origin),
        (started.pid, Origin::Adopted)
    );
    let flag = format!("--statedir={}", place.settings.state_dir.display());
    let expected = [
        Difference::Program,
        Difference::Arguments(vec![flag.into()]),
        Difference::Variable("TS_LOGS_DIR".into()),
    ];
    assert_eq!(adopted.differences, expected);
    assert_eq!(
        place.settings.state_dir_in_use(),
        Some(before.state_dir.clone())
    );

    let restarted = supervisor.restart().await.unwrap();
    let pid = i32::try_from(restarted.pid).unwrap();
    assert_eq!(
        (restarted.origin, place.pids()),
        (Origin::Started, vec![pid])
    );
    answers(&place.api()).await;
    assert_eq!(supervisor.ensure().await.unwrap().differences, []);
    assert!(place.state_file("tailscaled.state").exists());

    // Whoever is to end it by yet another configuration finds it, and makes no directory for that.
    let mut last = before.clone();
    last.state_dir = beside("nowhere");
    Supervisor::new(last.clone()).stop().await.unwrap();
    assert_eq!(place.pids(), [0; 0]);
    assert!(!last.state_dir.exists());
    assert_eq!(last.state_dir_in_use(), None);
}

#[tokio::test]
async fn beside_a_stranger_at_the_socket_none_is_started() {
    let node = Node::new("n1").unwrap();
    let place = Place::new(&node, None);
    let state_dir = place.settings.socket.with_file_name("strangers");
    let mut command = node.command("sh");
    command
        .args(["-c", "exec \"$0\" \"$@\" >/dev/null 2>&1"])
        .arg(&place.settings.program)
        .args(["--no-logs-no-support", "--port=0", "--tun=theirs"])
        .arg("--statedir")
        .arg(&state_dir)
        .arg("--socket")
        .arg(&place.settings.socket)
        .env("TS_LOGS_DIR", &state_dir);
    let stranger = Running::spawn(&mut command, b"").unwrap();
    answers(&place.api()).await;

    let mut supervisor = place.supervisor();
    let event = supervisor.next().await;
    let Event::Failed { error, .. } = event else {
        panic!("{event:?}")
    };
    let [pid] = place.pids()[..] else {
        panic!("{:?}", place.pids())
    };
    let words = format!(
        "process {pid} listens at {}",
        place.settings.socket.display()
    );
    assert!(error.to_string().contains(&words), "{error}");
    // It is not ours to end either.
    supervisor.stop().await.unwrap();
    answers(&place.api()).await;

    stranger.kill();
    stranger.wait(PATIENCE).unwrap();
    assert_eq!(running(&mut supervisor).await.origin, Origin::Started);
    answers(&place.api()).await;
}

/// Names where the files are, for [`another_daemon`].
const PLACE: &str = "TAILNET_TEST_PLACE";

#[tokio::test]
async fn it_outlives_a_daemon_that_is_killed() {
    let node = Node::new("n1").unwrap();
    let place = Place::new(&node, None);
    let mut command = Command::new(std::env::current_exe().unwrap());
    let paths = [&place.settings.state_dir, &place.settings.socket];
    let paths = paths.map(|path| path.to_str().unwrap().to_owned());
    let netns = node.netns_file().to_str().unwrap().to_owned();
    command
        .args(["--exact", "--ignored", "life::another_daemon"])
        .env(PLACE, [&paths[..], &[netns]].concat().join("\n"));
    let daemon = Running::spawn(&mut command, b"").unwrap();
    let record = place.state_file("tailscaled.pid");
    until("the other one has started it", async || {
        record.exists().then_some(())
    })
    .await;
    daemon.kill_group();
    daemon.wait(PATIENCE).unwrap();

    let mut supervisor = place.supervisor();
    let adopted = running(&mut supervisor).await;
    assert_eq!(
        (adopted.origin, adopted.differences),
        (Origin::Adopted, vec![])
    );
    answers(&place.api()).await;
    // It is no child of ours: its end is seen, but not how.
    place.kill();
    let event = timeout(PATIENCE, supervisor.next()).await.unwrap();
    let Event::Ended { pid, how, .. } = event else {
        panic!("{event:?}")
    };
    assert_eq!((pid, how), (adopted.pid, None));
}

#[ignore = "it is a process of its own in another test"]
#[tokio::test]
async fn another_daemon() {
    let Ok(place) = std::env::var(PLACE) else {
        return;
    };
    let [state_dir, socket, netns] = place.lines().collect::<Vec<_>>()[..] else {
        panic!("{place}")
    };
    let mut supervisor = Supervisor::new(settings(state_dir, socket, netns));
    loop {
        supervisor.next().await;
    }
}

#[tokio::test]
async fn two_supervisors_at_once_start_one() {
    let node = Node::new("n1").unwrap();
    let place = Place::new(&node, None);
    let mut supervisors: Vec<_> = (0..4).map(|_| place.supervisor()).collect();
    let mut all = tokio::task::JoinSet::new();
    for mut supervisor in supervisors.drain(..) {
        all.spawn(async move { supervisor.ensure().await.unwrap() });
    }
    let ensured = all.join_all().await;
    let started = ensured.iter().filter(|one| one.origin == Origin::Started);
    assert_eq!(started.count(), 1, "{ensured:?}");
    assert_eq!(place.pids().len(), 1);
}

#[tokio::test]
async fn killed_it_is_started_again_and_the_bus_comes_back() {
    let node = Node::new("n1").unwrap();
    let place = Place::new(&node, None);
    let mut supervisor = place.supervisor();
    let started = running(&mut supervisor).await;
    // One that did not start it sees its end as well.
    let mut other = place.supervisor();
    running(&mut other).await;
    answers(&place.api()).await;
    let mut watch = place.api().watch_always();
    let mut seen = Vec::new();
    let mut recv = async || match timeout(PATIENCE, watch.recv()).await.unwrap() {
        localapi::Event::Connected => "connected",
        localapi::Event::Notify(_) => "notify",
        localapi::Event::Lost(_) => "lost",
    };
    for _ in 0..2 {
        seen.push(recv().await);
    }
    assert_eq!(seen, ["connected", "notify"]);

    place.kill();
    let ended = |event| match event {
        Event::Ended { pid, how, again_in } => (pid, how, again_in),
        other => panic!("{other:?}"),
    };
    let (pid, how, again_in) = ended(timeout(PATIENCE, supervisor.next()).await.unwrap());
    assert_eq!((pid, how.as_deref()), (started.pid, Some("signal 9")));
    assert_eq!(again_in, Duration::from_secs(1));
    ended(timeout(PATIENCE, other.next()).await.unwrap());
    nobody_runs(&place);
    let again = running(&mut supervisor).await;
    assert_eq!(again.origin, Origin::Started);
    let adopted = running(&mut other).await;
    assert_eq!((adopted.pid, adopted.origin), (again.pid, Origin::Adopted));

    while recv().await != "lost" {}
    while recv().await != "connected" {}
    assert_eq!(recv().await, "notify");
    assert_eq!(place.pids().len(), 1);
}

#[tokio::test]
async fn what_can_not_start_is_told_and_tried_again() {
    let node = Node::new("n1").unwrap();
    let mut place = Place::new(&node, None);
    let program = place.settings.program.clone();
    place.settings.program = "/nowhere/tailscaled".into();
    let mut supervisor = place.supervisor();
    let event = supervisor.next().await;
    let Event::Failed { error, again_in } = event else {
        panic!("{event:?}")
    };
    assert!(error.to_string().contains("/nowhere/tailscaled"), "{error}");
    assert_eq!(again_in, Duration::from_secs(1));
    place.settings.program = program;
    place.settings.netns = Some("/nowhere/netns".into());
    supervisor.set(place.settings.clone());
    let event = supervisor.next().await;
    let Event::Failed { error, again_in } = event else {
        panic!("{event:?}")
    };
    assert!(error.to_string().contains("/nowhere/netns"), "{error}");
    assert_eq!(again_in, Duration::from_secs(2));
    place.settings.netns = Some(node.netns_file());
    supervisor.set(place.settings.clone());
    running(&mut supervisor).await;
}
