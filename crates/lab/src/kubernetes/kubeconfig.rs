//! Kubeconfig files.

use std::net::SocketAddr;
use std::path::Path;

use serde_json::{Value, json};

use super::certificates::KeyAndCertificate;

pub(super) enum Credential<'a> {
    Certificate(&'a KeyAndCertificate),
    Token(&'a str),
}

/// A kubeconfig with one cluster and one user. It refers to files by their paths.
pub(super) fn render(server: SocketAddr, authority: &Path, credential: &Credential<'_>) -> Value {
    let user = match credential {
        Credential::Certificate(files) => {
            json!({ "client-certificate": files.certificate, "client-key": files.key })
        }
        Credential::Token(token) => json!({ "token": token }),
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

pub(super) fn url(server: SocketAddr) -> String {
    format!("https://{server}")
}
