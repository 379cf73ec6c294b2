//! Who may reach what: the server's policy, JSON with comments.

use serde::Deserialize;
use serde_json::json;

use super::ask::Ask;
use super::client::Client;
use super::error::Error;
use super::generation::Generation;
use super::problem::Problem;
use super::wire::{self, Done};

/// How the server says that nobody has set one.
const NONE: &str = "acl policy not found";

#[derive(Deserialize)]
struct Policy {
    #[serde(default, deserialize_with = "wire::or_default")]
    policy: String,
}

impl Client {
    /// The policy, if one was set: without one, everybody may reach everything.
    pub async fn policy(&self) -> Result<Option<String>, Error> {
        let found: Result<Policy, Error> = self
            .call(Ask::get("read the policy", "/api/v1/policy"))
            .await;
        match found {
            Ok(found) => Ok(Some(found.policy).filter(|text| !text.trim().is_empty())),
            Err(error) if says_none(error.problem()) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Asks whether a policy would be taken, since 0.29.
    pub async fn check_policy(&self, text: &str) -> Result<(), Error> {
        const OPERATION: &str = "check a policy";
        let body = json!({ "policy": text });
        let checked: Result<Done, Error> = self
            .call(Ask::post(OPERATION, "/api/v1/policy/check", body))
            .await;
        match checked {
            Err(error) if error.is_not_found() => Err(self.error(
                OPERATION,
                Problem::Unsupported {
                    what: "check of policies",
                    since: Generation::V0_29,
                    remedy: None,
                },
            )),
            checked => checked.map(|_| ()),
        }
    }

    /// Replaces the policy. A server that has it in a file refuses.
    pub async fn set_policy(&self, text: &str) -> Result<(), Error> {
        let body = json!({ "policy": text });
        let ask = Ask::put("set the policy", "/api/v1/policy", body);
        let _: Policy = self.call(ask).await?;
        Ok(())
    }
}

fn says_none(problem: &Problem) -> bool {
    match problem {
        Problem::NotFound { message } | Problem::Refused { message, .. } => message.contains(NONE),
        _ => false,
    }
}
