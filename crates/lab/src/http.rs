//! Plain HTTP from within a netns.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use ureq::Agent;

use crate::netns::Netns;

const TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    pub status: u16,
    pub body: String,
}

pub fn http_get(place: &impl Netns, server: SocketAddr, path: &str) -> Result<Response> {
    let get = || -> Result<Response> {
        let config = Agent::config_builder()
            .timeout_global(Some(TIMEOUT))
            .http_status_as_error(false)
            .proxy(None)
            .build();
        let agent = Agent::new_with_config(config);
        let mut response = agent.get(format!("http://{server}{path}")).call()?;
        Ok(Response {
            status: response.status().as_u16(),
            body: response.body_mut().read_to_string()?,
        })
    };
    place
        .enter(get)?
        .with_context(|| format!("GET {path} from {server}"))
}
