//! Finds out which networks the node's pods get, and does so again: files may come, and change.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::conditions::{Condition, Conditions};
use crate::config::Config;
use crate::podcidr::{self, Discovery, Question};
use crate::settings::Settings;

/// How soon the sources are looked at again if they say nothing.
const SOON: Duration = Duration::from_secs(5);
/// And if they do.
const LATER: Duration = Duration::from_mins(1);

/// Looks at the sources now; blocks.
pub fn look(settings: &Settings) -> Discovery {
    podcidr::discover(&Question {
        root: Path::new("/"),
        node: &settings.node,
        network: &settings.config.network,
        variable: std::env::var_os(podcidr::VARIABLE).as_deref(),
        kubernetes: settings.kubernetes.of(&settings.node),
    })
}

/// Looks once, and takes what is found into the settings: for those who begin.
pub async fn begin(settings: &watch::Sender<Settings>, conditions: &Conditions) {
    let current = settings.borrow().clone();
    // A panic is met again by whoever keeps on looking.
    if let Ok(found) = tokio::task::spawn_blocking(move || look(&current)).await {
        report(&found, conditions);
        settings.send_if_modified(|settings| note(settings, found));
    }
}

/// Keeps the networks in the settings until it is told to end.
pub async fn keep(
    settings: watch::Sender<Settings>,
    conditions: Arc<Conditions>,
    end: CancellationToken,
) {
    let mut changes = settings.subscribe();
    loop {
        let current = changes.borrow_and_update().clone();
        let asked = current.clone();
        let Ok(found) = tokio::task::spawn_blocking(move || look(&asked)).await else {
            // A panic ends the process; this is its end.
            return;
        };
        // By an older configuration: it has been looked at by the new one already.
        if !Arc::ptr_eq(&settings.borrow().config, &current.config) {
            continue;
        }
        let is_known = report(&found, &conditions);
        settings.send_if_modified(|settings| note(settings, found));
        // What we have just said ourselves is no news; what Kubernetes has said meanwhile is.
        if settings.borrow().has_sources_of(&current) {
            changes.mark_unchanged();
        }
        let wait = if is_known { LATER } else { SOON };
        tokio::select! {
            () = end.cancelled() => return,
            alive = changes.changed() => if alive.is_err() { return },
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Takes a configuration and what was found by it into the settings, both at once: nobody is to go by
/// a new configuration and old networks.
pub fn replace(
    settings: &watch::Sender<Settings>,
    conditions: &Conditions,
    config: Arc<Config>,
    found: Discovery,
) {
    report(&found, conditions);
    settings.send_modify(|settings| {
        settings.config = config;
        note(settings, found);
    });
}

/// Takes what was found into the settings; whether that changes anything.
fn note(settings: &mut Settings, found: Discovery) -> bool {
    let before = settings.networks.clone();
    if let Ok(networks) = &found.outcome {
        let is_other = |known: &Arc<_>| **known != *networks;
        if before.as_ref().is_none_or(is_other) {
            if let Some(known) = &before
                && known.local != networks.local
            {
                tracing::warn!(
                    before = %list(&known.local),
                    now = %list(&networks.local),
                    "this node's networks have changed: pods that run keep their addresses until \
                     they are made anew"
                );
            }
            settings.networks = Some(Arc::new(networks.clone()));
        }
    }
    settings.discovery = Some(Arc::new(found));
    let is_same = match (&before, &settings.networks) {
        (Some(before), Some(now)) => before == now,
        (before, now) => before.is_none() && now.is_none(),
    };
    !is_same
}

fn report(found: &Discovery, conditions: &Conditions) -> bool {
    match &found.outcome {
        Ok(networks) => {
            let mut message = format!("{} by {}", list(&networks.local), networks.source);
            for warning in &found.warnings {
                message = format!("{message}; {warning}");
            }
            conditions.holds(Condition::PodCidrKnown, message);
            true
        }
        Err(error) => {
            conditions.fails(Condition::PodCidrKnown, error);
            false
        }
    }
}

fn list(networks: &[ipnet::IpNet]) -> String {
    let texts: Vec<String> = networks.iter().map(ToString::to_string).collect();
    texts.join(", ")
}
