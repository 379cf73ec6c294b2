//! A user of the API server: a kubeconfig for programs, and requests for tests.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::client::{Body, Client};
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use serde_json::Value;

use super::certificates::{Authority, KeyAndCertificate};
use super::kubeconfig::{self, Credential};
use super::objects::path_of;
use crate::files;
use crate::http::Response;
use crate::netns::Netns;
use crate::node::Node;

const TIMEOUT: Duration = Duration::from_mins(1);
const JSON: &str = "application/json";

/// Requests are sent from the control plane's node.
#[derive(Clone, Debug)]
pub struct User {
    node: Node,
    kubeconfig: PathBuf,
}

impl User {
    /// A user with a client certificate, which is returned as well.
    pub(super) fn with_certificate(
        node: &Node,
        server: SocketAddr,
        authority: &Authority,
        name: &str,
        group: Option<&str>,
    ) -> Result<(Self, KeyAndCertificate)> {
        let dir = authority.user_dir()?;
        let certificate = authority.certify_user(&dir, name, group)?;
        let user = Self::new(
            node,
            &dir,
            server,
            authority,
            &Credential::Certificate(&certificate),
        )?;
        Ok((user, certificate))
    }

    pub(super) fn with_token(
        node: &Node,
        server: SocketAddr,
        authority: &Authority,
        token: &str,
    ) -> Result<Self> {
        let dir = authority.user_dir()?;
        Self::new(node, &dir, server, authority, &Credential::Token(token))
    }

    fn new(
        node: &Node,
        dir: &Path,
        server: SocketAddr,
        authority: &Authority,
        credential: &Credential<'_>,
    ) -> Result<Self> {
        let path = dir.join("kubeconfig");
        let rendered = kubeconfig::render(server, authority.file(), credential);
        files::put(&path, rendered.to_string())
            .with_context(|| format!("write {}", path.display()))?;
        Ok(Self {
            node: node.clone(),
            kubeconfig: path,
        })
    }

    /// A file for programs on any node of the lab. It is removed with the control plane.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Gets an object or a list, such as `/api/v1/nodes?labelSelector=a%3Db`.
    pub fn get(&self, path: &str) -> Result<Value> {
        self.request("GET", path, JSON, "")
    }

    /// Server-side apply. An object without a namespace is cluster-scoped. A status is not applied: see
    /// [`patch`](Self::patch).
    pub fn apply(&self, object: &Value) -> Result<Value> {
        self.apply_with(object, "")
    }

    /// Server-side apply as a dry run that refuses unknown fields.
    pub fn dry_run(&self, object: &Value) -> Result<Value> {
        self.apply_with(object, "&dryRun=All&fieldValidation=Strict")
    }

    fn apply_with(&self, object: &Value, parameters: &str) -> Result<Value> {
        let path = path_of(object)? + "?fieldManager=lab&force=true" + parameters;
        let kind = "application/apply-patch+yaml";
        self.request("PATCH", &path, kind, &object.to_string())
    }

    /// Merge patch of the object at a path, which may be its status: `/api/v1/nodes/node-1/status`.
    pub fn patch(&self, path: &str, merged: &Value) -> Result<Value> {
        let kind = "application/merge-patch+json";
        self.request("PATCH", path, kind, &merged.to_string())
    }

    /// For what cannot be applied, such as a token or an eviction.
    pub fn post(&self, path: &str, object: &Value) -> Result<Value> {
        self.request("POST", path, JSON, &object.to_string())
    }

    /// An object with finalizers may stay for a while.
    pub fn delete(&self, path: &str) -> Result<Value> {
        self.request("DELETE", path, JSON, "")
    }

    /// The response to a request without a body, whatever its status.
    pub fn ask(&self, method: &str, path: &str) -> Result<Response> {
        self.send(method, path, JSON, "")
    }

    fn request(&self, method: &str, path: &str, kind: &str, body: &str) -> Result<Value> {
        let response = self.send(method, path, kind, body)?;
        ensure!(
            (200..300).contains(&response.status),
            "{method} {path}: {} {}",
            response.status,
            status_message(&response.body)
        );
        serde_json::from_str(&response.body)
            .with_context(|| format!("{method} {path}: parse {:?}", response.body))
    }

    fn send(&self, method: &str, path: &str, kind: &str, body: &str) -> Result<Response> {
        let send = async {
            let kubeconfig = Kubeconfig::read_from(&self.kubeconfig)?;
            let options = KubeConfigOptions::default();
            let config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
            let request = ureq::http::Request::builder()
                .method(method)
                .uri(path)
                .header("Content-Type", kind)
                .header("Accept", JSON)
                .body(Body::from(body.as_bytes().to_vec()))?;
            let response = Client::try_from(config)?.send(request).await?;
            let status = response.status().as_u16();
            let body = response.into_body().collect_bytes().await?;
            let body = String::from_utf8_lossy(&body).into_owned();
            anyhow::Ok(Response { status, body })
        };
        let send = || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().build()?;
            runtime.block_on(async { tokio::time::timeout(TIMEOUT, send).await? })
        };
        self.node
            .enter(send)?
            .with_context(|| format!("{method} {path}"))
    }
}

/// The message of a `Status` object, unless the response comes from in front of the API.
fn status_message(body: &str) -> String {
    let status: Value = serde_json::from_str(body).unwrap_or_default();
    status["message"].as_str().unwrap_or(body).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_the_message_of_the_status_object() {
        let status = r#"{"kind": "Status", "message": "nodes \"n1\" not found"}"#;
        assert_eq!(status_message(status), "nodes \"n1\" not found");
        assert_eq!(status_message("too busy\n"), "too busy");
    }
}
