//! Which API generation the server speaks.
//!
//! Requests are written so that every generation understands them; the generation only tells what an
//! old server can't do. See README.md for the differences.

use std::fmt;

use serde::Deserialize;

use crate::client::Client;
use crate::error::{self, Error, ErrorKind};
use crate::request::ApiRequest;
use crate::text::{one_line, page_text};
use crate::transport::RawResponse;

/// Releases with the same API, oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Generation {
    /// Routes are approved per node.
    V0_26,
    /// `/version` and `/health` exist.
    V0_27,
    /// Keys are shown once, and tagged keys need no user.
    V0_28,
    /// Policies can be checked.
    V0_29,
    /// Treated like the newest known one.
    Newer,
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V0_26 => "0.26",
            Self::V0_27 => "0.27",
            Self::V0_28 => "0.28",
            Self::V0_29 => "0.29",
            Self::Newer => "0.30",
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerVersion {
    pub generation: Generation,
    /// The version string, if the server reports one.
    pub text: Option<String>,
}

impl Client {
    /// Detects the server's version. Needs no API key, and is cheap for the server.
    pub async fn version(&self) -> Result<ServerVersion, Error> {
        const OPERATION: &str = "detect the version";
        let version = self.send(ApiRequest::public(OPERATION, "/version")).await?;
        if let Some(found) = parse_version(&version) {
            return found.map_err(|kind| self.error(OPERATION, kind));
        }
        // 0.26 has no /version, and a build from a working copy does not know its own; but all serve
        // the description of their API.
        let openapi = self
            .send(ApiRequest::public(OPERATION, "/swagger/v1/openapiv2.json"))
            .await?;
        parse_openapi(&openapi)
            .unwrap_or_else(|| Err(not_headscale(&version)))
            .map_err(|kind| self.error(OPERATION, kind))
    }

    pub async fn generation(&self) -> Result<Generation, Error> {
        Ok(self.version().await?.generation)
    }
}

/// `None` if this is no version of Headscale.
fn parse_version(response: &RawResponse) -> Option<Result<ServerVersion, ErrorKind>> {
    #[derive(Deserialize)]
    struct Body {
        version: String,
    }
    if matches!(response.status, 429 | 500..) {
        return Some(Err(error::of_response(response.status, &response.body)));
    }
    let Body { version } = serde_json::from_slice(&response.body).ok()?;
    let version = version.trim_start_matches('v');
    let text = one_line(version);
    let generation = match major_minor(version)? {
        (0, ..26) => return Some(Err(ErrorKind::TooOld { version: text })),
        (0, 26) => Generation::V0_26,
        (0, 27) => Generation::V0_27,
        (0, 28) => Generation::V0_28,
        (0, 29) => Generation::V0_29,
        _ => Generation::Newer,
    };
    Some(Ok(ServerVersion {
        generation,
        text: Some(text),
    }))
}

/// `0.29.3-beta.1` gives `(0, 29)`.
fn major_minor(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split('.');
    let mut number = || parts.next()?.parse().ok();
    Some((number()?, number()?))
}

/// `None` if this is not Headscale's `OpenAPI` description.
fn parse_openapi(response: &RawResponse) -> Option<Result<ServerVersion, ErrorKind>> {
    #[derive(Deserialize)]
    struct OpenApi {
        info: Info,
        paths: serde_json::Map<String, serde_json::Value>,
    }
    #[derive(Deserialize)]
    struct Info {
        title: String,
    }
    if response.status != 200 {
        return None;
    }
    let OpenApi { info, paths } = serde_json::from_slice(&response.body).ok()?;
    if !info.title.starts_with("headscale/") {
        return None;
    }
    let has = |path: &str| paths.contains_key(path);
    let has_delete = |path: &str| {
        paths
            .get(path)
            .is_some_and(|methods| methods.get("delete").is_some())
    };
    let generation = if has("/api/v1/policy/check") {
        Generation::V0_29
    } else if has_delete("/api/v1/preauthkey") {
        Generation::V0_28
    } else if has("/api/v1/health") {
        Generation::V0_27
    } else if has("/api/v1/node/{nodeId}/approve_routes") {
        Generation::V0_26
    } else {
        let version = "0.25 or older".to_owned();
        return Some(Err(ErrorKind::TooOld { version }));
    };
    Some(Ok(ServerVersion {
        generation,
        text: None,
    }))
}

fn not_headscale(response: &RawResponse) -> ErrorKind {
    let text = one_line(&page_text(&String::from_utf8_lossy(&response.body)));
    let status = response.status;
    let detail = match text.as_str() {
        "" => format!("status {status}"),
        text => format!("status {status}, {text}"),
    };
    ErrorKind::NotHeadscale { detail }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn response(status: u16, body: &str) -> RawResponse {
        RawResponse {
            status,
            location: None,
            body: body.into(),
        }
    }

    #[rstest]
    #[case("v0.29.3", Generation::V0_29)]
    #[case("0.28.0-beta.1+dirty", Generation::V0_28)]
    #[case("v0.27.1", Generation::V0_27)]
    #[case("v0.30.0", Generation::Newer)]
    #[case("v1.0.0", Generation::Newer)]
    fn the_version_gives_the_generation(#[case] version: &str, #[case] generation: Generation) {
        let body = format!(r#"{{"version":"{version}","go":{{}}}}"#);
        let found = parse_version(&response(200, &body));
        assert_eq!(found.unwrap().unwrap().generation, generation);
    }

    #[test]
    fn an_old_version_is_an_error() {
        let found = parse_version(&response(200, r#"{"version":"v0.25.1"}"#)).unwrap();
        assert_eq!(
            found.unwrap_err().to_string(),
            "Headscale 0.25.1 is too old: upgrade it to 0.26 or newer"
        );
    }

    #[rstest]
    #[case(404, "")]
    #[case(200, r#"{"version":"dev"}"#)]
    #[case(200, "<html></html>")]
    fn other_responses_are_no_version(#[case] status: u16, #[case] body: &str) {
        assert_eq!(parse_version(&response(status, body)), None);
    }

    #[rstest]
    #[case(r#""/api/v1/policy/check":{},"/api/v1/health":{}"#, Generation::V0_29)]
    #[case(
        r#""/api/v1/preauthkey":{"delete":{}},"/api/v1/health":{}"#,
        Generation::V0_28
    )]
    #[case(
        r#""/api/v1/preauthkey":{"post":{}},"/api/v1/health":{}"#,
        Generation::V0_27
    )]
    #[case(r#""/api/v1/node/{nodeId}/approve_routes":{}"#, Generation::V0_26)]
    fn the_openapi_description_gives_the_generation(
        #[case] paths: &str,
        #[case] generation: Generation,
    ) {
        let body =
            format!(r#"{{"info":{{"title":"headscale/v1/headscale.proto"}},"paths":{{{paths}}}}}"#);
        let found = parse_openapi(&response(200, &body)).unwrap().unwrap();
        assert_eq!(found.generation, generation);
    }

    #[test]
    fn another_server_is_not_headscale() {
        let body = r#"{"info":{"title":"petstore"},"paths":{}}"#;
        assert_eq!(parse_openapi(&response(200, body)), None);
        let kind = not_headscale(&response(404, "<html><title>nginx</title>"));
        let text = kind.to_string();
        assert!(
            text.contains("not Headscale (status 404, web page: nginx)"),
            "{text}"
        );
    }
}
