//! The rules that all pods share: who installs them, and what brings them back.

mod concurrent_adds;
mod flushed;
mod forwarding;
mod masquerade;
mod no_nft;
mod restored;

use serde_json::{Value, json};

/// A native network of its own name and range.
fn network(name: &str, subnet: &str) -> Value {
    json!({
        "cniVersion": "1.1.0", "name": name, "type": "headcni",
        "ipam": { "type": "headcni-ipam", "subnet": subnet },
    })
}
