//! The rules that all pods share: who installs them, and what brings them back.

mod crowd;
mod forwarding;
mod masquerade;
mod no_nft;
mod restored;
mod wiped;

use serde_json::{Value, json};

/// A native network of its own name and range.
fn network(name: &str, subnet: &str) -> Value {
    json!({
        "cniVersion": "1.1.0", "name": name, "type": "headcni",
        "ipam": { "type": "headcni-ipam", "subnet": subnet },
    })
}
