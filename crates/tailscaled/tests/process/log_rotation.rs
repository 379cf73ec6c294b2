//! The log of tailscaled has a limit.

use std::fs;
use std::os::unix::fs::MetadataExt;

use lab::Node;
use tokio::time::timeout;

use crate::harness::{DEADLINE, TailscaledFixture, await_ready, until};

#[tokio::test]
async fn the_log_is_rotated_while_tailscaled_writes_it() {
    let node = Node::new("n1").unwrap();
    let mut tailscaled = TailscaledFixture::new(&node, None);
    tailscaled.spec.log_limit_bytes = 1000;
    let mut supervisor = tailscaled.supervisor();
    supervisor.ensure().await.unwrap();
    let api = tailscaled.api();
    await_ready(&api).await;
    let length =
        |name: &str| fs::metadata(tailscaled.state_file(name)).map_or(0, |file| file.len());
    until("the log exceeds the limit", async || {
        (length("tailscaled.log") > 1000).then_some(())
    })
    .await;

    // The supervisor's own check.
    let running = async {
        loop {
            supervisor.next().await;
        }
    };
    let trimmed = until("the log is rotated", async || {
        (length("tailscaled.log.1") > 0).then_some(())
    });
    let both = async {
        tokio::select! { () = trimmed => {}, () = running => {} }
    };
    timeout(DEADLINE, both).await.unwrap();
    assert_eq!(length("tailscaled.log.1"), 1000);
    for name in ["tailscaled.log", "tailscaled.log.1"] {
        let mode = fs::metadata(tailscaled.state_file(name)).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }

    // Later lines are at the start of the file, without a hole before them.
    supervisor.rotate_log().await.unwrap();
    tailscaled.kill();
    supervisor.next().await;
    supervisor.next().await;
    await_ready(&api).await;
    let log = fs::read(tailscaled.state_file("tailscaled.log")).unwrap();
    assert!(!log.is_empty() && !log.contains(&0));
}
