//! Somebody who is known to the API server: a kubeconfig for programs, and calls for tests.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::certificates::{Authority, Certified};
use super::client::{Body, Client};
use super::kubeconfig::{self, Proof};
use super::objects::path_of;
use crate::files;
use crate::http::Response;
use crate::node::Node;

/// Somebody with a name, and as many rights as that has. Calls are made in the control plane's node.
pub struct User<'a> {
    client: Client<'a>,
    kubeconfig: PathBuf,
}

impl<'a> User<'a> {
    /// Somebody with a certificate, whose files are also returned.
    pub(super) fn certified(
        node: &'a Node,
        server: SocketAddr,
        authority: &Authority,
        name: &str,
        group: Option<&str>,
    ) -> Result<(Self, Certified)> {
        let dir = authority.dir_for_one()?;
        let certified = authority.user(&dir, name, group)?;
        let proof = Proof::Certificate {
            certificate: &certified.certificate,
            key: &certified.key,
        };
        let user = Self {
            client: Client::certified(node, server, authority, &certified)?,
            kubeconfig: write_kubeconfig(&dir, server, authority, proof)?,
        };
        Ok((user, certified))
    }

    /// Somebody with a token.
    pub(super) fn with_token(
        node: &'a Node,
        server: SocketAddr,
        authority: &Authority,
        token: &str,
    ) -> Result<Self> {
        let dir = authority.dir_for_one()?;
        Ok(Self {
            client: Client::with_token(node, server, authority, token)?,
            kubeconfig: write_kubeconfig(&dir, server, authority, Proof::Token(token))?,
        })
    }

    /// A file for programs, on whatever node of the lab. It goes with the control plane.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Gets an object, or a list, as in `/api/v1/nodes?labelSelector=a%3Db`.
    pub fn get(&self, path: &str) -> Result<Value> {
        self.call("GET", path, None)
    }

    /// Makes an object, or makes it say what this one says, as `kubectl apply --server-side` does.
    ///
    /// An object without a namespace is the cluster's. A status is not applied: see
    /// [`patch`](Self::patch).
    pub fn apply(&self, object: &Value) -> Result<Value> {
        self.apply_by(object, "")
    }

    /// What would come of it, with nothing done. A field that nobody knows is an error here.
    pub fn dry_run(&self, object: &Value) -> Result<Value> {
        self.apply_by(object, "&dryRun=All&fieldValidation=Strict")
    }

    fn apply_by(&self, object: &Value, more: &str) -> Result<Value> {
        let path = path_of(object)? + "?fieldManager=lab&force=true" + more;
        let body = Body {
            content_type: "application/apply-patch+yaml",
            text: &object.to_string(),
        };
        self.call("PATCH", &path, Some(body))
    }

    /// Merges into the object at a path, which may be its status, as in `/api/v1/nodes/node-1/status`.
    pub fn patch(&self, path: &str, merged: &Value) -> Result<Value> {
        let body = Body {
            content_type: "application/merge-patch+json",
            text: &merged.to_string(),
        };
        self.call("PATCH", path, Some(body))
    }

    /// Posts to a path, for what is made but not applied, such as a token or an eviction.
    pub fn post(&self, path: &str, object: &Value) -> Result<Value> {
        let body = Body {
            content_type: "application/json",
            text: &object.to_string(),
        };
        self.call("POST", path, Some(body))
    }

    /// Deletes an object. It may stay for a while if somebody has to finish first.
    pub fn delete(&self, path: &str) -> Result<Value> {
        self.call("DELETE", path, None)
    }

    /// What the server answers to a request without a body, even if that is a refusal.
    pub fn ask(&self, method: &str, path: &str) -> Result<Response> {
        self.client.send(method, path, None)
    }

    fn call(&self, method: &str, path: &str, body: Option<Body>) -> Result<Value> {
        let answer = self.client.send(method, path, body)?;
        ensure!(
            (200..300).contains(&answer.status),
            "{method} {path}: {} {}",
            answer.status,
            reason(&answer.body)
        );
        serde_json::from_str(&answer.body)
            .with_context(|| format!("{method} {path}: read {:?}", answer.body))
    }
}

/// Tells where the file is, and not what is in it.
impl fmt::Debug for User<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("User").field(&self.kubeconfig).finish()
    }
}

fn write_kubeconfig(
    dir: &Path,
    server: SocketAddr,
    authority: &Authority,
    proof: Proof,
) -> Result<PathBuf> {
    let path = dir.join("kubeconfig");
    let rendered = kubeconfig::render(server, authority.file(), proof);
    files::put(&path, rendered.to_string()).with_context(|| format!("write {}", path.display()))?;
    Ok(path)
}

/// A refusal is a `Status` with a message, unless it comes from somewhere before the API.
fn reason(body: &str) -> String {
    let status: Value = serde_json::from_str(body).unwrap_or_default();
    status["message"].as_str().unwrap_or(body).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_in_the_servers_words() {
        let status = r#"{"kind": "Status", "message": "nodes \"n1\" not found"}"#;
        assert_eq!(reason(status), "nodes \"n1\" not found");
        assert_eq!(reason("too busy\n"), "too busy");
    }
}
