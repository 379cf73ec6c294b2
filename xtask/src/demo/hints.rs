//! How a person looks around in what is left up.

use lab::scenario::{MeshCluster};
use lab::{Netns, Node};

use super::reach::Inhabitant;

const READY: &str = "busybox wget -qO- http://127.0.0.1:9844/ready";

/// Lines to be pasted into another terminal of root.
pub(super) fn text(cluster: &MeshCluster, pods: &[Inhabitant]) -> String {
    let mut lines = vec!["It stays up. In another terminal, as root:\n".to_owned()];
    let mut hint = |what: String, line: String| lines.push(format!("# {what}\n{line}\n"));
    for member in &cluster.nodes {
        let name = member.node.name();
        hint(
            format!("a shell on {name}"),
            format!("{} sh", node(&member.node)),
        );
    }
    for pod in pods.iter().filter(|pod| pod.pod.pod.name() == "a") {
        let ips: Vec<String> = pod.pod.ips.iter().map(ToString::to_string).collect();
        let netns = pod.pod.pod.netns_file();
        hint(
            format!(
                "a shell in pod {}, which is {}",
                pod.name(),
                ips.join(" and ")
            ),
            format!(
                "{} sh",
                within(pod.pod.pod.node(), &format!("={}", netns.display()))
            ),
        );
    }
    if let Some(member) = cluster.nodes.first() {
        hint(
            "whom node-1 knows, and by which path".to_owned(),
            format!("{} {} status", node(&member.node), member.tailscale_cli()),
        );
        hint(
            "what its daemon says of itself; it logs to /run/headcni-daemon.log there".to_owned(),
            format!("{} {READY}", node(&member.node)),
        );
    }
    hint(
        "what Headscale knows".to_owned(),
        format!(
            "{} {} nodes list",
            node(&cluster.topology.server),
            cluster.headscale.cli_command()
        ),
    );
    lines.push("Ctrl-C here ends all of it.".to_owned());
    lines.join("\n")
}

fn node(node: &Node) -> String {
    within(node, "")
}

fn within(node: &Node, network: &str) -> String {
    let pid = node.holder_pid();
    format!("nsenter --target {pid} --mount --uts --net{network} --")
}
