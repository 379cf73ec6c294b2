//! Which Headscale it is. Every call that we make is worded so that all generations understand it;
//! this is for what an old one can't do.

use std::fmt;

use serde::Deserialize;

use super::ask::Ask;
use super::client::Client;
use super::error::Error;
use super::problem::Problem;
use super::refusal::{one_line, readable};
use super::transport::Answer;

/// What speaks one API, oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Generation {
    /// 0.26: routes are approved per node.
    V0_26,
    /// 0.27: it tells its version.
    V0_27,
    /// 0.28: keys are shown once, and tagged ones need no user.
    V0_28,
    /// 0.29: policies can be checked.
    V0_29,
    /// What comes after them; it is taken to be like the last that we know.
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

/// Which server it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// What it can do.
    pub generation: Generation,
    /// Its own word, if it has one.
    pub text: Option<String>,
}

impl Client {
    /// Asks the server which one it is. It needs no key, and costs the server little.
    pub async fn version(&self) -> Result<Version, Error> {
        const OPERATION: &str = "ask for the version";
        let said = self.ask(Ask::open(OPERATION, "/version")).await?;
        if let Some(found) = of_version(&said) {
            return found.map_err(|problem| self.error(OPERATION, problem));
        }
        // 0.26 has no version to tell, and one that was built from a working copy does not know it;
        // but all describe their API.
        let api = self
            .ask(Ask::open(OPERATION, "/swagger/v1/openapiv2.json"))
            .await?;
        let found = of_description(&api).unwrap_or_else(|| Err(stranger(&said)));
        found.map_err(|problem| self.error(OPERATION, problem))
    }

    /// Asks the server what it can do.
    pub async fn generation(&self) -> Result<Generation, Error> {
        Ok(self.version().await?.generation)
    }
}

#[derive(Deserialize)]
struct Said {
    version: String,
}

/// What `/version` says, if it says anything.
fn of_version(answer: &Answer) -> Option<Result<Version, Problem>> {
    if matches!(answer.status, 429 | 500..) {
        return Some(Err(super::refusal::problem(answer.status, &answer.body)));
    }
    let said: Said = serde_json::from_slice(&answer.body).ok()?;
    let (major, minor) = numbers(&said.version)?;
    let text = one_line(said.version.trim_start_matches('v'));
    let generation = match (major, minor) {
        (0, ..26) => return Some(Err(Problem::TooOld { version: text })),
        (0, 26) => Generation::V0_26,
        (0, 27) => Generation::V0_27,
        (0, 28) => Generation::V0_28,
        (0, 29) => Generation::V0_29,
        _ => Generation::Newer,
    };
    Some(Ok(Version {
        generation,
        text: Some(text),
    }))
}

/// Of `v0.29.3-beta.1` the `0` and the `29`.
fn numbers(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.trim_start_matches('v').split('.');
    let mut number = || parts.next()?.parse().ok();
    Some((number()?, number()?))
}

#[derive(Deserialize)]
struct Description {
    info: About,
    paths: serde_json::Map<String, serde_json::Value>,
}

#[derive(Deserialize)]
struct About {
    title: String,
}

/// What the description of the API tells, if it is Headscale's.
fn of_description(answer: &Answer) -> Option<Result<Version, Problem>> {
    if answer.status != 200 {
        return None;
    }
    let described: Description = serde_json::from_slice(&answer.body).ok()?;
    if !described.info.title.starts_with("headscale/") {
        return None;
    }
    let paths = &described.paths;
    let has = |path: &str| paths.contains_key(path);
    let is_deletable = |path: &str| {
        paths
            .get(path)
            .is_some_and(|ways| ways.get("delete").is_some())
    };
    let generation = if has("/api/v1/policy/check") {
        Generation::V0_29
    } else if is_deletable("/api/v1/preauthkey") {
        Generation::V0_28
    } else if has("/api/v1/health") {
        Generation::V0_27
    } else if has("/api/v1/node/{nodeId}/approve_routes") {
        Generation::V0_26
    } else {
        let version = "0.25 or older".to_owned();
        return Some(Err(Problem::TooOld { version }));
    };
    Some(Ok(Version {
        generation,
        text: None,
    }))
}

fn stranger(answer: &Answer) -> Problem {
    let text = String::from_utf8_lossy(&answer.body);
    let said = one_line(&readable(&text));
    let status = answer.status;
    let detail = match said.as_str() {
        "" => format!("status {status}"),
        said => format!("status {status}, {said}"),
    };
    Problem::NotHeadscale { detail }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn answer(status: u16, body: &str) -> Answer {
        Answer {
            status,
            location: None,
            body: body.to_owned().into(),
        }
    }

    #[rstest]
    #[case("v0.29.3", Generation::V0_29)]
    #[case("0.28.0-beta.1+dirty", Generation::V0_28)]
    #[case("v0.27.1", Generation::V0_27)]
    #[case("v0.30.0", Generation::Newer)]
    #[case("v1.0.0", Generation::Newer)]
    fn a_version_tells_the_generation(#[case] version: &str, #[case] generation: Generation) {
        let found = of_version(&answer(
            200,
            &format!(r#"{{"version":"{version}","go":{{}}}}"#),
        ));
        assert_eq!(found.unwrap().unwrap().generation, generation);
    }

    #[test]
    fn an_old_one_is_named() {
        let found = of_version(&answer(200, r#"{"version":"v0.25.1"}"#)).unwrap();
        assert_eq!(
            found.unwrap_err().to_string(),
            "Headscale 0.25.1 is too old: upgrade it to 0.26 or newer"
        );
    }

    #[rstest]
    #[case(404, "")]
    #[case(200, r#"{"version":"dev"}"#)]
    #[case(200, "<html></html>")]
    fn no_version_is_no_answer(#[case] status: u16, #[case] body: &str) {
        assert_eq!(of_version(&answer(status, body)), None);
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
    fn a_description_tells_the_generation(#[case] paths: &str, #[case] generation: Generation) {
        let body =
            format!(r#"{{"info":{{"title":"headscale/v1/headscale.proto"}},"paths":{{{paths}}}}}"#);
        let found = of_description(&answer(200, &body)).unwrap().unwrap();
        assert_eq!(found.generation, generation);
    }

    #[test]
    fn others_describe_other_things() {
        let body = r#"{"info":{"title":"petstore"},"paths":{}}"#;
        assert_eq!(of_description(&answer(200, body)), None);
        let problem = stranger(&answer(404, "<html><title>nginx</title>"));
        assert!(
            problem
                .to_string()
                .contains("not Headscale (status 404, a page: nginx)")
        );
    }
}
