//! A TCP connection between Pods of two nodes.

use std::time::Duration;

use lab::eventually;
use lab::kubernetes::IMAGE;
use lab::scenario::{KubeCluster, pod_ips, pod_object};
use serde_json::{Value, json};

/// The longest pause between TCP retransmissions.
const RETRANSMISSION: Duration = Duration::from_mins(1);

/// One Pod sends numbers, and another records them.
pub(crate) struct TcpStream {
    listener: Value,
}

impl TcpStream {
    /// `family` is the index of the address: 0 is IPv4, 1 is IPv6.
    pub(crate) fn start(cluster: &KubeCluster, from: &str, to: &str, family: usize) -> Self {
        let (listener, sender) = (format!("listener-{family}"), format!("sender-{family}"));
        let spec = |node: &str, line: &str| {
            json!({
                "nodeName": node,
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 0,
                "containers": [{ "name": "c", "image": IMAGE, "command": ["sh", "-c", line] }],
            })
        };
        // nc would close the connection at the end of its stdin.
        let listen = "tail -f /dev/null | nc -l -p 9000 >/tmp/received";
        cluster.apply(&pod_object(&listener, &listener, &spec(to, listen)));
        let [listener] = &cluster.await_pods(&listener, 1)[..] else {
            panic!("one Pod")
        };
        let ip = &pod_ips(listener)[family];
        // The first packets between new peers may be lost.
        let send = format!(
            "until ping -c 1 -W 1 {ip}; do :; done
             i=0; while echo $i; do i=$((i+1)); sleep 0.1; done | exec nc {ip} 9000"
        );
        cluster.apply(&pod_object(&sender, &sender, &spec(from, &send)));
        cluster.await_pods(&sender, 1);
        let stream = Self {
            listener: listener.clone(),
        };
        stream.assert_flows(cluster, "its start");
        stream
    }

    /// Waits for more numbers, of which none is missing.
    pub(crate) fn assert_flows(&self, cluster: &KubeCluster, after: &str) {
        let before = self.received(cluster);
        let what = format!("the TCP stream continues after {after}");
        let more = || (self.received(cluster) > before + 10).then_some(());
        eventually(RETRANSMISSION, &what, more)
            .unwrap_or_else(|error| panic!("{error:#}\n{}", cluster.diagnostics()));
    }

    /// How many numbers were received, each one more than its predecessor.
    fn received(&self, cluster: &KubeCluster) -> u64 {
        // The last line may not be cluster.
        let line = "sed '$d' /tmp/received | awk '$1 != NR - 1 {exit 1} END {print NR}'";
        let output = cluster.exec(&self.listener, line).unwrap();
        output.trim().parse().unwrap()
    }
}
