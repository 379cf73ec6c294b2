//! Joining the tailnet: start, log in, wait for `Running`.

use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, timeout, timeout_at};

use super::LocalApi;
use super::bus::IpnBus;
use super::error::Error;
use super::key::AuthKey;
use super::prefs::StartPrefs;
use super::status::BackendState;
use super::transport::Call;

/// <https://pkg.go.dev/tailscale.com/ipn#Options>
#[derive(Clone, Debug)]
pub struct StartOptions {
    /// Without a key the login is interactive.
    pub auth_key: Option<AuthKey>,
    pub prefs: StartPrefs,
}

impl StartOptions {
    /// In case a control server repeats the key in an error.
    fn redact(&self, text: &str) -> String {
        match &self.auth_key {
            Some(key) if !key.expose().is_empty() => text.replace(key.expose(), "<redacted>"),
            _ => text.to_owned(),
        }
    }
}

/// Why a login failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoginError {
    #[error("the pre-auth key was already used: configure a new one")]
    KeyUsed,
    #[error("the pre-auth key has expired: configure a new one")]
    KeyExpired,
    #[error("the control server does not know the pre-auth key: configure one of this server")]
    KeyUnknown,
    /// The node may not have its tags.
    #[error("{0}: add the tags to tagOwners in the policy")]
    Tags(String),
    #[error("{0}: configure the CA that signed the server's certificate")]
    Certificate(String),
    /// Anything else, such as an unreachable server.
    #[error("{0}")]
    Other(String),
}

impl LoginError {
    /// tailscaled passes on the text of the control server, without a code.
    pub fn parse(text: &str) -> Self {
        let words = text.to_lowercase();
        let has = |part: &str| words.contains(part);
        // Whole words: "refused" contains "used".
        let has_word = |word: &str| {
            let mut all = words.split(|letter: char| !letter.is_alphanumeric());
            all.any(|one| one == word)
        };
        let is_about_key = has("authkey") || has("auth key") || has("auth-key");
        if is_about_key && has_word("used") {
            Self::KeyUsed
        } else if is_about_key && has_word("expired") {
            Self::KeyExpired
        } else if is_about_key && (has("not found") || has_word("invalid") || has_word("parse")) {
            Self::KeyUnknown
        } else if has_word("tags") && (has_word("permitted") || has_word("invalid")) {
            Self::Tags(text.to_owned())
        } else if has("x509") || has("certificate") {
            Self::Certificate(text.to_owned())
        } else {
            Self::Other(text.to_owned())
        }
    }

    /// Whether the control server rejected the key or the tags.
    pub(super) fn is_from_control(&self) -> bool {
        match self {
            Self::KeyUsed | Self::KeyExpired | Self::KeyUnknown | Self::Tags(_) => true,
            Self::Certificate(_) | Self::Other(_) => false,
        }
    }

    /// Whether a retry with the same key and prefs is useless.
    pub fn is_permanent(&self) -> bool {
        !matches!(self, Self::Other(_))
    }
}

/// Why a node has not joined.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    #[error("failed to join the tailnet: {0}")]
    Login(LoginError),
    #[error("failed to join the tailnet: log in at {url}, or configure a pre-auth key")]
    NeedsInteractiveLogin { url: String },
    #[error("failed to join the tailnet: an administrator has to approve this node")]
    NeedsApproval,
    #[error(
        "failed to join the tailnet within {limit:?}: tailscaled is in state {state}{}",
        .last_error.as_ref().map(|text| format!(" ({text})")).unwrap_or_default()
    )]
    Timeout {
        limit: Duration,
        state: BackendState,
        last_error: Option<String>,
    },
    #[error(transparent)]
    LocalApi(#[from] Error),
}

impl LocalApi {
    /// Sets key and prefs. Without an earlier login this does not log in.
    async fn start(&self, start: &StartOptions) -> Result<(), Error> {
        let key = start
            .auth_key
            .as_ref()
            .map(AuthKey::expose)
            .unwrap_or_default();
        let body = json!({ "AuthKey": key, "UpdatePrefs": start.prefs.to_json() });
        let outcome = self
            .transport
            .call(Call::post("start").with_body(&body))
            .await;
        outcome.map(drop).map_err(|error| error.redact(key))
    }

    /// Logs in with the key of [`start`](Self::start), or else interactively.
    async fn login_interactive(&self) -> Result<(), Error> {
        self.transport.call(Call::post("login-interactive")).await?;
        Ok(())
    }

    /// Reconnects to the control server as after a restart, without an interruption of traffic, and
    /// waits up to `limit` for the result.
    ///
    /// This is how a node learns that the server has deleted it: see
    /// [`Status::is_rejected_by_control`](super::Status::is_rejected_by_control). A node that the server
    /// knows stays the same node, and no key is used.
    pub async fn reconnect(&self, limit: Duration) -> Result<(), Error> {
        let mut bus = self.open_bus().await?;
        self.transport
            .call(Call::post("start").with_body(&json!({})))
            .await?;
        let reconnected = async {
            loop {
                let status = self.status().await?;
                let is_done = match status.state {
                    BackendState::Running => status.self_node.is_online,
                    BackendState::NeedsLogin | BackendState::NeedsMachineAuth => true,
                    _ => false,
                };
                if is_done || status.is_rejected_by_control() {
                    return Ok(());
                }
                bus.recv().await?;
            }
        };
        // tailscaled continues to retry after this.
        timeout(limit, reconnected).await.unwrap_or(Ok(()))
    }

    /// Starts, logs in, and waits until the node has joined.
    ///
    /// After [`JoinError::Timeout`] tailscaled continues to retry. Read its status before another
    /// attempt: it may have used the key by then.
    pub async fn join(&self, start: &StartOptions, limit: Duration) -> Result<(), JoinError> {
        let end = Instant::now() + limit;
        let mut progress = Progress::default();
        let work = self.try_join(start, &mut progress);
        if let Ok(outcome) = timeout_at(end, work).await {
            return outcome;
        }
        self.confirm(start).await?;
        let status = self.status().await?;
        if let (BackendState::NeedsLogin, Some(url)) = (&status.state, &status.auth_url) {
            return Err(JoinError::NeedsInteractiveLogin { url: url.clone() });
        }
        let last_error = status.login_error().or(progress.error.as_deref());
        Err(JoinError::Timeout {
            limit,
            last_error: last_error.map(|text| start.redact(text)),
            state: status.state,
        })
    }

    async fn try_join(
        &self,
        start: &StartOptions,
        progress: &mut Progress,
    ) -> Result<(), JoinError> {
        // Before the start: the bus does not repeat messages.
        let mut bus = self.open_bus().await?;
        // The state before the start.
        let before = bus.recv().await?.state;
        let states = [BackendState::NeedsLogin, BackendState::NeedsMachineAuth];
        progress.needs_login = before.is_some_and(|state| states.contains(&state));
        let has_node_key = self.status().await?.has_node_key;
        self.start(start).await?;
        // A tailscaled with a node key logs in when it is started. A second login at the same time would
        // use a single-use key twice.
        if !has_node_key {
            self.login_interactive().await?;
        }
        self.await_joined(&mut bus, start, progress).await
    }

    async fn await_joined(
        &self,
        bus: &mut IpnBus,
        start: &StartOptions,
        progress: &mut Progress,
    ) -> Result<(), JoinError> {
        loop {
            let notify = bus.recv().await?;
            progress.is_logged_in |= notify.is_login_finished;
            // With a key, this can be from an earlier attempt.
            if let (Some(url), None) = (&notify.browse_to, &start.auth_key) {
                return Err(JoinError::NeedsInteractiveLogin { url: url.clone() });
            }
            match notify.state {
                Some(BackendState::NeedsMachineAuth) if progress.is_logged_in => {
                    return Err(JoinError::NeedsApproval);
                }
                Some(BackendState::Running) => progress.is_running = true,
                Some(_) => (progress.is_running, progress.has_restarted) = (false, true),
                None => {}
            }
            if progress.is_running
                && (progress.is_logged_in
                    || (progress.may_have_joined() && self.status().await?.self_node.is_online))
            {
                return Ok(());
            }
            if let Some(text) = notify.login_error().or(notify.error.as_deref()) {
                progress.error = Some(text.to_owned());
                if LoginError::parse(text).is_permanent() {
                    self.confirm(start).await?;
                }
            }
        }
    }

    /// Fails if the last login failed for good. A message of the bus can be about an earlier attempt; the
    /// status can't, because a new attempt clears the error.
    async fn confirm(&self, start: &StartOptions) -> Result<(), JoinError> {
        let status = self.status().await?;
        let error = status
            .login_error()
            .map(|text| LoginError::parse(&start.redact(text)));
        match error {
            Some(error) if error.is_permanent() => Err(JoinError::Login(error)),
            _ => Ok(()),
        }
    }
}

#[expect(
    clippy::struct_excessive_bools,
    reason = "independent signals that arrive in any order"
)]
#[derive(Debug, Default)]
struct Progress {
    /// The node could not have joined without this login.
    needs_login: bool,
    is_logged_in: bool,
    /// tailscaled left `Running` since the start.
    has_restarted: bool,
    is_running: bool,
    error: Option<String>,
}

impl Progress {
    /// Whether the node may have joined without a `LoginFinished`, which tailscaled does not send if it was
    /// running before. It reports `Running` early, from its stored network map, so the caller also
    /// requires a connection to the control server.
    fn may_have_joined(&self) -> bool {
        !self.needs_login && self.has_restarted
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("authkey already used", LoginError::KeyUsed)]
    #[case("register request: http 401: authkey expired", LoginError::KeyExpired)]
    #[case("AuthKey not found", LoginError::KeyUnknown)]
    #[case("invalid authkey", LoginError::KeyUnknown)]
    #[case("auth-key not found: record not found", LoginError::KeyUnknown)]
    #[case(
        "handling register with auth key: failed to parse auth-key: key too short",
        LoginError::KeyUnknown
    )]
    #[case("requested tags [tag:x] are invalid or not permitted",
        LoginError::Tags("requested tags [tag:x] are invalid or not permitted".to_owned()))]
    #[case("x509: certificate signed by unknown authority",
        LoginError::Certificate("x509: certificate signed by unknown authority".to_owned()))]
    #[case("register with authkey: connection refused",
        LoginError::Other("register with authkey: connection refused".to_owned()))]
    #[case("dial tcp 10.0.0.1:8443: connect: connection refused",
        LoginError::Other("dial tcp 10.0.0.1:8443: connect: connection refused".to_owned()))]
    fn login_errors_are_classified_by_their_text(#[case] text: &str, #[case] expected: LoginError) {
        assert_eq!(LoginError::parse(text), expected);
    }

    #[test]
    fn an_unreachable_server_is_not_a_permanent_error() {
        assert!(!LoginError::parse("connection refused").is_permanent());
        assert!(LoginError::KeyUsed.is_permanent());
        assert!(LoginError::KeyUsed.is_from_control());
        assert!(!LoginError::parse("x509: certificate has expired").is_from_control());
    }

    #[test]
    fn the_key_is_redacted() {
        let start = StartOptions {
            auth_key: Some(AuthKey::new("hskey-auth-1-2")),
            prefs: StartPrefs::new(&super::super::MaskedPrefs::default()),
        };
        assert!(!format!("{start:?}").contains("hskey"));
        assert_eq!(start.redact("no: hskey-auth-1-2"), "no: <redacted>");
    }
}
