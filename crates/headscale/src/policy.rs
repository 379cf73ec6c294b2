//! The policy (ACLs, tag owners, auto-approvers), in `HuJSON`.

use serde::Deserialize;
use serde_json::json;

use crate::client::Client;
use crate::error::{Error, ErrorKind};
use crate::generation::Generation;
use crate::request::ApiRequest;
use crate::wire::{self, Empty};

/// Headscale's message if no policy was ever set.
const NO_POLICY: &str = "acl policy not found";

#[derive(Deserialize)]
struct PolicyJson {
    #[serde(default, deserialize_with = "wire::or_default")]
    policy: String,
}

impl Client {
    /// `None` if no policy is set; then everything is allowed.
    pub async fn policy(&self) -> Result<Option<String>, Error> {
        let request = ApiRequest::get("read the policy", "/api/v1/policy");
        match self.call::<PolicyJson>(request).await {
            Ok(found) => Ok(Some(found.policy).filter(|text| !text.trim().is_empty())),
            Err(error) if is_no_policy(error.kind()) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether Headscale would accept a policy. Since 0.29.
    pub async fn check_policy(&self, policy: &str) -> Result<(), Error> {
        const OPERATION: &str = "check a policy";
        let body = json!({ "policy": policy });
        let request = ApiRequest::post(OPERATION, "/api/v1/policy/check", body);
        match self.call::<Empty>(request).await {
            Err(error) if error.is_not_found() => Err(self.error(
                OPERATION,
                ErrorKind::Unsupported {
                    feature: "policy check",
                    since: Generation::V0_29,
                    remedy: None,
                },
            )),
            checked => checked.map(|_| ()),
        }
    }

    /// Replaces the policy. Fails if Headscale reads it from a file (`policy.mode: file`).
    pub async fn set_policy(&self, policy: &str) -> Result<(), Error> {
        let body = json!({ "policy": policy });
        let request = ApiRequest::put("set the policy", "/api/v1/policy", body);
        self.call::<PolicyJson>(request).await?;
        Ok(())
    }
}

fn is_no_policy(kind: &ErrorKind) -> bool {
    match kind {
        ErrorKind::NotFound { message } | ErrorKind::Refused { message, .. } => {
            message.contains(NO_POLICY)
        }
        _ => false,
    }
}
