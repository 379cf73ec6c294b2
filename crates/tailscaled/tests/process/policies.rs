//! What the server's policy lets through, by tailscaled's own rules.

use serde_json::{Value, json};
use tailscaled::localapi::Reach;

use crate::scene::{TAG, World, member, until};

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
    let world = World::new();
    let server = world.headscale();
    let nodes = format!("{TAG}:*");
    let pods = json!([{ "action": "accept", "src": [TAG, "10.244.0.0/16"],
        "dst": [nodes, "10.244.0.0/16:*"] }]);
    let nodes_only = json!([{ "action": "accept", "src": [TAG], "dst": [nodes] }]);
    let web_only = json!([{ "action": "accept", "src": [TAG, "10.244.0.0/16"],
        "dst": [nodes, "10.244.0.0/16:80"] }]);
    server.set_policy(&policy(&pods)).unwrap();
    let (place, _keep) = member(&world.nodes[0], &server, ROUTE).await;
    let api = place.api();
    let (from, to) = ("10.244.0.0/16".parse().unwrap(), ROUTE.parse().unwrap());

    let cases = [
        (&pods, Reach::Whole),
        (&nodes_only, Reach::Nothing),
        (&web_only, Reach::Part),
        (&pods, Reach::Whole),
    ];
    for (acls, expected) in cases {
        server.set_policy(&policy(acls)).unwrap();
        until(&format!("{acls}: {expected:?}"), async || {
            let filter = api.packet_filter().await.ok()?;
            (filter.reach(&from, &to) == expected).then_some(())
        })
        .await;
    }
}
