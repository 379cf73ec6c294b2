//! A connection between Pods of two nodes that is used all the time.

use std::time::Duration;

use lab::scenario::{KubeCluster, pod_ips, pod_object};
use lab::eventually;
use lab::kubernetes::IMAGE;
use serde_json::{Value, json};


/// What is sent again after a pause of the network comes after this, at the latest.
const LATE: Duration = Duration::from_mins(1);

/// One Pod counts, and another writes down what it hears.
pub(crate) struct Stream {
    listener: Value,
}

impl Stream {
    /// Connects by the address of one family: 0 is IPv4, 1 is IPv6.
    pub(crate) fn start(cluster: &KubeCluster, from: &str, to: &str, family: usize) -> Self {
        let (listener, talker) = (format!("listener-{family}"), format!("talker-{family}"));
        let spec = |node: &str, line: &str| {
            json!({
                "nodeName": node,
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 0,
                "containers": [{ "name": "c", "image": IMAGE, "command": ["sh", "-c", line] }],
            })
        };
        // It would hang up if it had nothing more to say itself.
        let listen = "tail -f /dev/null | nc -l -p 9000 >/tmp/heard";
        cluster.apply(&pod_object(&listener, &listener, &spec(to, listen)));
        let [listener] = &cluster.await_pods(&listener, 1)[..] else {
            panic!("one Pod")
        };
        let ip = &pod_ips(listener)[family];
        // The first packets between nodes that have just met may be lost.
        let talk = format!(
            "until ping -c 1 -W 1 {ip}; do :; done
             i=0; while echo $i; do i=$((i+1)); sleep 0.1; done | exec nc {ip} 9000"
        );
        cluster.apply(&pod_object(&talker, &talker, &spec(from, &talk)));
        cluster.await_pods(&talker, 1);
        let stream = Self {
            listener: listener.clone(),
        };
        stream.flows(cluster, "it was begun");
        stream
    }

    /// Waits for more to be heard, of which nothing is missing.
    pub(crate) fn flows(&self, cluster: &KubeCluster, after: &str) {
        let before = self.heard(cluster);
        let what = format!("a stream goes on after {after}");
        let more = || (self.heard(cluster) > before + 10).then_some(());
        eventually(LATE, &what, more).unwrap_or_else(|error| panic!("{error:#}\n{}", cluster.diagnostics()));
    }

    /// How many numbers were heard; each is one more than the one before it.
    fn heard(&self, cluster: &KubeCluster) -> u64 {
        // The last line may not be cluster.
        let line = "sed '$d' /tmp/heard | awk '$1 != NR - 1 {exit 1} END {print NR}'";
        let said = cluster.exec(&self.listener, line).unwrap();
        said.trim().parse().unwrap()
    }
}
