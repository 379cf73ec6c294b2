//! The file by which clients find the API server, and say who they are.

use std::net::SocketAddr;
use std::path::Path;

use serde_json::{Value, json};

/// How somebody proves who he is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Proof<'a> {
    /// The files of a certificate and its key.
    Certificate {
        certificate: &'a Path,
        key: &'a Path,
    },
    /// A secret.
    Token(&'a str),
}

/// A kubeconfig with one cluster and one user. It names files, so it goes with those.
pub(super) fn render(server: SocketAddr, authority: &Path, proof: Proof) -> Value {
    let user = match proof {
        Proof::Certificate { certificate, key } => {
            json!({ "client-certificate": certificate, "client-key": key })
        }
        Proof::Token(token) => json!({ "token": token }),
    };
    let cluster = json!({ "server": url(server), "certificate-authority": authority });
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "lab", "cluster": cluster }],
        "users": [{ "name": "lab", "user": user }],
        "contexts": [{ "name": "lab", "context": { "cluster": "lab", "user": "lab" } }],
        "current-context": "lab",
    })
}

/// Where clients find the server.
pub(super) fn url(server: SocketAddr) -> String {
    format!("https://{server}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubeconfig_says_where_and_who() {
        let server = "[fd99::b]:6443".parse().unwrap();
        let rendered = render(server, Path::new("/ca.pem"), Proof::Token("secret"));
        let cluster = &rendered["clusters"][0]["cluster"];
        assert_eq!(cluster["server"], "https://[fd99::b]:6443");
        assert_eq!(cluster["certificate-authority"], "/ca.pem");
        assert_eq!(rendered["users"][0]["user"], json!({ "token": "secret" }));
    }
}
