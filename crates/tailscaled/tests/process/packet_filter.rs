//! The packet filter follows the policy of Headscale.

use serde_json::{Value, json};
use tailscaled::localapi::Coverage;

use crate::harness::{Lab, TAG, join_node, until};

const ROUTE: &str = "10.244.1.0/24";

fn policy(acls: &Value) -> Value {
    json!({
        "tagOwners": { TAG: [] },
        "autoApprovers": { "routes": { "10.244.0.0/16": [TAG] } },
        "acls": acls,
    })
}

#[tokio::test]
async fn the_filter_follows_the_policy() {
    let lab = Lab::new();
    let server = lab.headscale();
    let nodes = format!("{TAG}:*");
    let pods = json!([{ "action": "accept", "src": [TAG, "10.244.0.0/16"],
        "dst": [nodes, "10.244.0.0/16:*"] }]);
    let nodes_only = json!([{ "action": "accept", "src": [TAG], "dst": [nodes] }]);
    let web_only = json!([{ "action": "accept", "src": [TAG, "10.244.0.0/16"],
        "dst": [nodes, "10.244.0.0/16:80"] }]);
    server.set_policy(&policy(&pods)).unwrap();
    let (tailscaled, _supervisor) = join_node(&lab.nodes[0], &server, ROUTE).await;
    let api = tailscaled.api();
    let (from, to) = ("10.244.0.0/16".parse().unwrap(), ROUTE.parse().unwrap());

    let cases = [
        (&pods, Coverage::Full),
        (&nodes_only, Coverage::None),
        (&web_only, Coverage::Partial),
        (&pods, Coverage::Full),
    ];
    for (acls, expected) in cases {
        server.set_policy(&policy(acls)).unwrap();
        until(&format!("{acls}: {expected:?}"), async || {
            let filter = api.packet_filter().await.ok()?;
            (filter.coverage(&from, &to) == expected).then_some(())
        })
        .await;
    }
}
