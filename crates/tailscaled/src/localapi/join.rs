//! Joining the mesh: everything from a key to a member that runs.

use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, timeout, timeout_at};

use super::LocalApi;
use super::bus::Bus;
use super::error::Error;
use super::key::AuthKey;
use super::prefs::StartPrefs;
use super::status::State;
use super::transport::Call;

/// How to start.
#[derive(Clone, Debug)]
pub struct Start {
    /// The key to log in with, if it has to. Without one, a person has to let the node in.
    pub auth_key: Option<AuthKey>,
    /// All that it is told.
    pub prefs: StartPrefs,
}

impl Start {
    /// No server repeats a key. If one did, it would not be told by us.
    fn hide(&self, text: &str) -> String {
        match &self.auth_key {
            Some(key) if !key.reveal().is_empty() => text.replace(key.reveal(), "<redacted>"),
            _ => text.to_owned(),
        }
    }
}

/// Why a server let nobody in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The key was good for one node, which has it.
    KeyUsed,
    /// The key was good once.
    KeyExpired,
    /// The server knows no such key.
    KeyUnknown,
    /// The node may not have its tags.
    Tags(String),
    /// The server's certificate is not trusted.
    Certificate(String),
    /// Anything else: the server can't be reached, say.
    Other(String),
}

impl Refusal {
    /// What an error of a login means: there are but words to go by.
    pub fn of(text: &str) -> Self {
        let words = text.to_lowercase();
        let has = |part: &str| words.contains(part);
        // A connection that is refused is not used.
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

    /// Whether the server itself said so, about the key or what the node wants to be.
    pub(super) fn is_of_server(&self) -> bool {
        match self {
            Self::KeyUsed | Self::KeyExpired | Self::KeyUnknown | Self::Tags(_) => true,
            Self::Certificate(_) | Self::Other(_) => false,
        }
    }

    /// Whether trying again with the same key and settings is of no use.
    pub fn is_final(&self) -> bool {
        !matches!(self, Self::Other(_))
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::KeyUsed => f.write_str("the key has been used already: give a new one"),
            Self::KeyExpired => f.write_str("the key has expired: give a new one"),
            Self::KeyUnknown => f.write_str("the server knows no such key: give one of its own"),
            Self::Tags(text) => write!(f, "{text}: let the policy's tagOwners own these tags"),
            Self::Certificate(text) => {
                write!(
                    f,
                    "{text}: give the authority that signed the server's certificate"
                )
            }
            Self::Other(text) => f.write_str(text),
        }
    }
}

/// Why a node is no member.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The server said no.
    #[error("join the mesh: {0}")]
    Refused(Refusal),
    /// A person has to let the node in.
    #[error("join the mesh: somebody has to let this node in at {url}, or give a key")]
    NeedsPerson {
        /// Where.
        url: String,
    },
    /// An administrator has to approve.
    #[error("join the mesh: an administrator has to approve this node")]
    NeedsApproval,
    /// It took too long.
    #[error(
        "join the mesh: not within {limit:?}; tailscaled is in state {state}{}",
        .told.as_ref().map(|told| format!(" and says: {told}")).unwrap_or_default()
    )]
    Late {
        /// The time that it had.
        limit: Duration,
        /// How far it has come.
        state: State,
        /// What is wrong, by tailscaled's word.
        told: Option<String>,
    },
    /// tailscaled does not answer as it should.
    #[error(transparent)]
    Local(#[from] Error),
}

impl LocalApi {
    /// Starts with a key and settings. It does not log in by itself.
    pub async fn start(&self, start: &Start) -> Result<(), Error> {
        let key = start
            .auth_key
            .as_ref()
            .map(AuthKey::reveal)
            .unwrap_or_default();
        let body = json!({ "AuthKey": key, "UpdatePrefs": start.prefs.value() });
        let outcome = self.transport.call(Call::post("start").with(&body)).await;
        outcome.map(drop).map_err(|error| error.without(key))
    }

    /// Logs in: with the key that it was started with, or else a person has to come.
    pub async fn login_interactive(&self) -> Result<(), Error> {
        self.transport.call(Call::post("login-interactive")).await?;
        Ok(())
    }

    /// Connects to the server anew, with all that it has, as after a restart; but packets go on. It waits
    /// for an answer for so long at most.
    ///
    /// So a member learns that the server has forgotten it: it is turned away then, and has to log in. One
    /// that is known stays who it is. No key is used.
    pub async fn reconnect(&self, limit: Duration) -> Result<(), Error> {
        let mut bus = self.watch().await?;
        self.transport
            .call(Call::post("start").with(&json!({})))
            .await?;
        let answered = async {
            loop {
                let status = self.status().await?;
                let is_answered = match status.state {
                    State::Running => status.this.is_online,
                    State::NeedsLogin | State::NeedsMachineAuth => true,
                    _ => false,
                };
                if is_answered || status.is_turned_away() {
                    return Ok(());
                }
                bus.recv().await?;
            }
        };
        // After that it goes on trying by itself.
        timeout(limit, answered).await.unwrap_or(Ok(()))
    }

    /// Starts, logs in, and waits until the node is a member.
    ///
    /// After [`JoinError::Late`] tailscaled goes on trying by itself. Look at its state before
    /// another try: it may have used the key by then.
    pub async fn join(&self, start: &Start, limit: Duration) -> Result<(), JoinError> {
        let end = Instant::now() + limit;
        let mut progress = Progress::default();
        let work = self.try_join(start, &mut progress);
        if let Ok(outcome) = timeout_at(end, work).await {
            return outcome;
        }
        self.confirm(start).await?;
        let status = self.status().await?;
        if let (State::NeedsLogin, Some(url)) = (&status.state, &status.auth_url) {
            return Err(JoinError::NeedsPerson { url: url.clone() });
        }
        let told = status.login_error().or(progress.error.as_deref());
        Err(JoinError::Late {
            limit,
            told: told.map(|text| start.hide(text)),
            state: status.state,
        })
    }

    async fn try_join(&self, start: &Start, progress: &mut Progress) -> Result<(), JoinError> {
        // Before anything is done: what is told once is not told again.
        let mut bus = self.watch().await?;
        // How things were before is not our doing.
        let before = bus.recv().await?.state;
        let needs_login = [State::NeedsLogin, State::NeedsMachineAuth];
        progress.must_log_in = before.is_some_and(|state| needs_login.contains(&state));
        let has_node_key = self.status().await?.has_node_key;
        self.start(start).await?;
        // Whoever was logged in once logs in by itself when it is started. Two logins at a time would use
        // the key twice, and it may be good for one.
        if !has_node_key {
            self.login_interactive().await?;
        }
        self.await_member(&mut bus, start, progress).await
    }

    async fn await_member(
        &self,
        bus: &mut Bus,
        start: &Start,
        progress: &mut Progress,
    ) -> Result<(), JoinError> {
        loop {
            let notify = bus.recv().await?;
            progress.is_logged_in |= notify.is_login_finished;
            // With a key, this can be what was left of an earlier try.
            if let (Some(url), None) = (&notify.browse_to, &start.auth_key) {
                return Err(JoinError::NeedsPerson { url: url.clone() });
            }
            match notify.state {
                Some(State::NeedsMachineAuth) if progress.is_logged_in => {
                    return Err(JoinError::NeedsApproval);
                }
                Some(State::Running) => progress.is_running = true,
                Some(_) => (progress.is_running, progress.has_begun_anew) = (false, true),
                None => {}
            }
            if progress.is_running
                && (progress.is_logged_in
                    || (progress.may_be_member() && self.status().await?.this.is_online))
            {
                return Ok(());
            }
            if let Some(text) = notify.login_error().or(notify.error.as_deref()) {
                progress.error = Some(text.to_owned());
                if Refusal::of(text).is_final() {
                    self.confirm(start).await?;
                }
            }
        }
    }

    /// Fails if the last login was refused. What came by the bus can be about an earlier try; what
    /// is the case now is not, because a new try begins with no error.
    async fn confirm(&self, start: &Start) -> Result<(), JoinError> {
        let status = self.status().await?;
        let refusal = status
            .login_error()
            .map(|text| Refusal::of(&start.hide(text)));
        match refusal {
            Some(refusal) if refusal.is_final() => Err(JoinError::Refused(refusal)),
            _ => Ok(()),
        }
    }
}

/// What is known of a join.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a sign of its own, and they come in any order"
)]
#[derive(Debug, Default)]
struct Progress {
    /// It had no way to become a member by itself.
    must_log_in: bool,
    is_logged_in: bool,
    /// It was in a state before the last one since it was started.
    has_begun_anew: bool,
    /// It says that it runs.
    is_running: bool,
    error: Option<String>,
}

impl Progress {
    /// Whether one that does not tell of a login may be a member. One that ran before does not; and it
    /// says that it runs as soon as it has begun anew, by what it knew before, so that it counts when it is
    /// connected to the server.
    fn may_be_member(&self) -> bool {
        !self.must_log_in && self.has_begun_anew
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("authkey already used", Refusal::KeyUsed)]
    #[case("register request: http 401: authkey expired", Refusal::KeyExpired)]
    #[case("AuthKey not found", Refusal::KeyUnknown)]
    #[case("invalid authkey", Refusal::KeyUnknown)]
    #[case("auth-key not found: record not found", Refusal::KeyUnknown)]
    #[case(
        "handling register with auth key: failed to parse auth-key: key too short",
        Refusal::KeyUnknown
    )]
    #[case("requested tags [tag:x] are invalid or not permitted",
        Refusal::Tags("requested tags [tag:x] are invalid or not permitted".to_owned()))]
    #[case("x509: certificate signed by unknown authority",
        Refusal::Certificate("x509: certificate signed by unknown authority".to_owned()))]
    #[case("register with authkey: connection refused",
        Refusal::Other("register with authkey: connection refused".to_owned()))]
    #[case("dial tcp 10.0.0.1:8443: connect: connection refused",
        Refusal::Other("dial tcp 10.0.0.1:8443: connect: connection refused".to_owned()))]
    fn refusals_are_known_by_their_words(#[case] text: &str, #[case] expected: Refusal) {
        assert_eq!(Refusal::of(text), expected);
    }

    #[test]
    fn a_server_that_is_away_may_come_back() {
        assert!(!Refusal::of("connection refused").is_final());
        assert!(Refusal::KeyUsed.is_final());
        assert!(Refusal::KeyUsed.is_of_server());
        assert!(!Refusal::of("x509: certificate has expired").is_of_server());
    }

    #[test]
    fn nothing_shows_the_key() {
        let start = Start {
            auth_key: Some(AuthKey::new("hskey-auth-1-2")),
            prefs: StartPrefs::fresh(&super::super::PrefsEdit::default()),
        };
        assert!(!format!("{start:?}").contains("hskey"));
        assert_eq!(start.hide("no: hskey-auth-1-2"), "no: <redacted>");
    }
}
