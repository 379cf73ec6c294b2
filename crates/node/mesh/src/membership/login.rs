//! Logins: which key is used, and when a failed login is retried.
//!
//! A login causes tailscaled events, and events start a reconcile. Without the delay here, a failed login
//! would be retried at once, each time with a new key.

use std::time::{Duration, Instant};

use headscale::PreAuthKey;
use ipnet::IpNet;
use tailscaled::localapi::{AuthKey, JoinError, StartOptions};

use super::{Membership, PLACEHOLDER};
use crate::control_server::{ControlServer, KEY_LIFE};
use crate::inputs::MeshInputs;
use crate::membership::observe;
use crate::membership::plan::{self, Desired, HeadscaleView, Observed};
use node_config::Secrets;
use node_core::backoff::Backoff;
use node_core::error::display_chain;

const LOGIN_TIMEOUT: Duration = Duration::from_mins(1);
const AFTER_FAILURE: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(30)];
/// After a refusal an administrator must act first.
const AFTER_REFUSAL: [Duration; 2] = [Duration::from_secs(1), Duration::from_mins(5)];
/// How soon a new key is used.
const KEY_POLL: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(super) struct LoginAttempts {
    /// The configured keys, read at each reconcile.
    pub(super) keys: Secrets,
    failed: Option<Failed>,
    made: Option<Made>,
}

#[derive(Debug)]
struct Failed {
    message: String,
    times: u32,
    until: Instant,
    keys: Secrets,
}

/// A key created for one login and not used yet.
#[derive(Debug)]
struct Made {
    key: PreAuthKey,
    at: Instant,
}

/// A key to log in with.
struct Key {
    key: AuthKey,
    /// Why none could be created although there is an API key.
    unmade: Option<String>,
}

impl LoginAttempts {
    /// The last failure and the delay, if it is too early for a retry. New keys are tried at once.
    pub(super) fn held(&self, now: Instant) -> Option<(String, Duration)> {
        let failed = self.failed.as_ref()?;
        let left = failed.until.saturating_duration_since(now);
        let is_held = !left.is_zero() && failed.keys == self.keys;
        is_held.then(|| (failed.message.clone(), left.min(KEY_POLL)))
    }

    /// This node is logged in; a created key is used or useless.
    pub(super) fn end(&mut self) {
        (self.failed, self.made) = (None, None);
    }

    fn fail(&mut self, message: &str, waits: [Duration; 2], now: Instant) {
        let before = self.failed.take().filter(|it| it.keys == self.keys);
        let times = before.map_or(1, |before| before.times.saturating_add(1));
        self.failed = Some(Failed {
            message: message.to_owned(),
            times,
            until: now + Backoff::delay(waits, times),
            keys: self.keys.clone(),
        });
    }

    /// The created key, if it is valid for another login.
    fn made(&self, now: Instant) -> Option<AuthKey> {
        let made = self.made.as_ref()?;
        let age = now.saturating_duration_since(made.at);
        (age + LOGIN_TIMEOUT < KEY_LIFE.unsigned_abs()).then(|| AuthKey::new(made.key.key.expose()))
    }
}

impl Membership {
    /// Logs in.
    pub(super) async fn join(
        &mut self,
        desired: &Desired,
        observed: &Observed,
        settings: &MeshInputs,
    ) -> Result<(), String> {
        let own = desired.own.as_ref().ok_or(
            "the host's tailscaled is not managed by the daemon: run \"tailscale up\" on this node",
        )?;
        let key = self.key().await;
        let key = key.inspect_err(|message| {
            self.logins.fail(message, AFTER_FAILURE, Instant::now());
        })?;
        let start = StartOptions {
            auth_key: Some(key.key),
            prefs: observe::start_prefs(own, advertised(desired, observed, settings)),
        };
        let Err(error) = self.tailscaled.join(&start, LOGIN_TIMEOUT).await else {
            self.logins.end();
            return Ok(());
        };
        let mut message = display_chain(&error);
        if let Some(why) = key.unmade {
            message = format!(
                "{message}; used the configured pre-auth key, because none can be created: {why}"
            );
        }
        let waits = match &error {
            JoinError::Login(error) if error.is_permanent() => AFTER_REFUSAL,
            _ => AFTER_FAILURE,
        };
        self.logins.fail(&message, waits, Instant::now());
        if waits == AFTER_REFUSAL
            && let Some(made) = self.logins.made.take()
            && let Some(server) = &self.control.server
        {
            server.expire_key(&made.key).await;
        }
        Err(message)
    }

    /// A key for one login: created by the API if possible, else the configured one.
    async fn key(&mut self) -> Result<Key, String> {
        // Nodes that already joined stay connected.
        if let Some(problem) = self
            .control
            .server
            .as_ref()
            .and_then(ControlServer::too_old)
        {
            return Err(format!("refusing to join: {problem}"));
        }
        if let Some(key) = self.logins.made(Instant::now()) {
            return Ok(Key { key, unmade: None });
        }
        let made = match &self.control.server {
            Some(server) if server.has_key() => Some(server.make_key().await),
            _ => None,
        };
        match (made, &self.logins.keys.pre_auth_key) {
            (Some(Ok(made)), _) => {
                let key = AuthKey::new(made.key.expose());
                let at = Instant::now();
                self.logins.made = Some(Made { key: made, at });
                Ok(Key { key, unmade: None })
            }
            (made, Some(given)) => {
                let unmade = made.and_then(Result::err);
                if let Some(why) = &unmade {
                    tracing::warn!(
                        why,
                        "failed to create a pre-auth key, using the configured one"
                    );
                }
                let key = AuthKey::new(given.secret.expose());
                Ok(Key { key, unmade })
            }
            (made, None) => {
                let why = made.and_then(Result::err).unwrap_or_else(|| {
                    "there is no API key to create one with (headscale.apiKeyFile)".to_owned()
                });
                Err(format!(
                    "no pre-auth key to join with: {why}, and none is configured \
                     (headscale.preAuthKeyFile)"
                ))
            }
        }
    }
}

/// The networks that are advertised with a login.
fn advertised(desired: &Desired, observed: &Observed, settings: &MeshInputs) -> Vec<IpNet> {
    // Only Headscale's list shows conflicts before the login.
    if observed.server == HeadscaleView::Unknown {
        return Vec::new();
    }
    if settings.pod_cidrs.is_some() {
        return plan::allowed(desired, observed);
    }
    // While the pod CIDRs are unknown, the advertised routes stay.
    let present = observed.prefs.advertised.iter().copied();
    let kept = Desired {
        routes: present.filter(|net| *net != PLACEHOLDER).collect(),
        ..desired.clone()
    };
    plan::allowed(&kept, observed)
}

#[cfg(test)]
mod tests {
    use headscale::Secret;

    use super::*;
    use node_config::{FoundSecret, SecretSource};

    fn keys(key: &str) -> Secrets {
        Secrets {
            pre_auth_key: Some(FoundSecret {
                secret: Secret::new(key),
                source: SecretSource::Variable("KEY"),
            }),
            ..Secrets::default()
        }
    }

    /// When there was another login, of looks made each second.
    fn seconds(waits: [Duration; 2], of: u64) -> Vec<u64> {
        let (mut logins, start) = (LoginAttempts::default(), Instant::now());
        let mut tried = Vec::new();
        for second in 0..of {
            let now = start + Duration::from_secs(second);
            if logins.held(now).is_none() {
                tried.push(second);
                logins.fail("no", waits, now);
            }
        }
        tried
    }

    #[test]
    fn a_failed_login_is_retried_less_and_less_often() {
        assert_eq!(
            seconds(AFTER_FAILURE, 130),
            [0, 1, 3, 7, 15, 31, 61, 91, 121]
        );
        let refused = seconds(AFTER_REFUSAL, 1200);
        assert_eq!(refused, [0, 1, 3, 7, 15, 31, 63, 127, 255, 511, 811, 1111]);
    }

    #[test]
    fn a_new_key_is_tried_at_once() {
        let (mut logins, now) = (LoginAttempts::default(), Instant::now());
        logins.keys = keys("used");
        for _ in 0..20 {
            logins.fail("used already", AFTER_REFUSAL, now);
        }
        // It is looked for all the while.
        assert_eq!(
            logins.held(now),
            Some(("used already".to_owned(), KEY_POLL))
        );
        logins.keys = keys("new");
        assert_eq!(logins.held(now), None);
        // And has not failed as often.
        logins.fail("no such key", AFTER_REFUSAL, now);
        let (_, wait) = logins.held(now).unwrap();
        assert_eq!(wait, AFTER_REFUSAL[0]);
    }
}
