//! The log of a tailscaled does not fill a disk.

use std::fs;
use std::os::unix::fs::MetadataExt;

use lab::Node;
use tokio::time::timeout;

use crate::scene::{PATIENCE, Place, answers, until};

#[tokio::test]
async fn the_log_is_bounded_while_it_is_written() {
    let node = Node::new("n1").unwrap();
    let mut place = Place::new(&node, None);
    place.settings.log_limit_bytes = 1000;
    let mut supervisor = place.supervisor();
    supervisor.ensure().await.unwrap();
    let api = place.api();
    answers(&api).await;
    let length = |name: &str| fs::metadata(place.state_file(name)).map_or(0, |file| file.len());
    until("it has much to say", async || {
        (length("tailscaled.log") > 1000).then_some(())
    })
    .await;

    // The supervisor's own look.
    let keeping = async {
        loop {
            supervisor.next().await;
        }
    };
    let trimmed = until("the log is put aside", async || {
        (length("tailscaled.log.1") > 0).then_some(())
    });
    let both = async {
        tokio::select! { () = trimmed => {}, () = keeping => {} }
    };
    timeout(PATIENCE, both).await.unwrap();
    assert_eq!(length("tailscaled.log.1"), 1000);
    for name in ["tailscaled.log", "tailscaled.log.1"] {
        let mode = fs::metadata(place.state_file(name)).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }

    // What is said afterwards is at the beginning of the file, and not behind a hole.
    supervisor.trim_log().await.unwrap();
    place.kill();
    supervisor.next().await;
    supervisor.next().await;
    answers(&api).await;
    let log = fs::read(place.state_file("tailscaled.log")).unwrap();
    assert!(!log.is_empty() && !log.contains(&0));
}
