//! Commands for another terminal, while the demo stays up.

use lab::scenario::MeshCluster;
use lab::{Netns, Node};

use super::pairs::DemoPod;

const READY: &str = "busybox wget -qO- http://127.0.0.1:9844/ready";

pub(super) fn render(cluster: &MeshCluster, pods: &[DemoPod]) -> String {
    let mut lines = vec!["The demo stays up. In another terminal, as root:\n".to_owned()];
    let mut add = |what: String, line: String| lines.push(format!("# {what}\n{line}\n"));
    for member in &cluster.nodes {
        let name = member.node.name();
        add(
            format!("a shell on {name}"),
            format!("{} sh", node(&member.node)),
        );
    }
    for pod in pods.iter().filter(|pod| pod.pod.pod.name() == "a") {
        let ips: Vec<String> = pod.pod.ips.iter().map(ToString::to_string).collect();
        let netns = pod.pod.pod.netns_file();
        add(
            format!("a shell in pod {} ({})", pod.name(), ips.join(" and ")),
            format!(
                "{} sh",
                within(pod.pod.pod.node(), &format!("={}", netns.display()))
            ),
        );
    }
    if let Some(member) = cluster.nodes.first() {
        add(
            "peers of node-1, with the path to each".to_owned(),
            format!("{} {} status", node(&member.node), member.tailscale_cli()),
        );
        add(
            "conditions of its daemon, which logs to /run/headcni-daemon.log".to_owned(),
            format!("{} {READY}", node(&member.node)),
        );
    }
    add(
        "nodes and routes in Headscale".to_owned(),
        format!(
            "{} {} nodes list",
            node(&cluster.topology.server),
            cluster.headscale.cli_command()
        ),
    );
    lines.push("Ctrl-C here ends the demo.".to_owned());
    lines.join("\n")
}

fn node(node: &Node) -> String {
    within(node, "")
}

fn within(node: &Node, netns: &str) -> String {
    let pid = node.holder_pid();
    format!("nsenter --target {pid} --mount --uts --net{netns} --")
}
