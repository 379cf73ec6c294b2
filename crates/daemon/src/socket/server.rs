//! Lets clients in, and keeps socket and spool in sight.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use api::messages::SPOOL_NAME;
use rustix::process::geteuid;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Notify;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::bind::{Place, bind};
use super::connection::{Connection, FirstLook};
use super::slots::Slots;
use super::{Ends, MAX_CLIENTS, News, Settings, spool};
use crate::jam::{self, Accepted, Jam};
use node_core::conditions::Condition;
use node_core::error::display_chain;

/// How long to wait after the kernel refused to let a client in: it is out of something.
const PAUSE: Duration = Duration::from_millis(100);

/// Listens until it is told to end, whatever happens to the socket.
pub async fn serve(settings: Settings, ends: Ends, end: CancellationToken) {
    let told = Notify::new();
    tokio::select! {
        () = end.cancelled() => {}
        () = keep_open(&settings, &ends, &told, &end) => {}
        () = keep_spool_empty(&settings, &ends, &told) => {}
    }
}

/// Opens the socket, and again when somebody has taken it away.
async fn keep_open(settings: &Settings, ends: &Ends, told: &Notify, end: &CancellationToken) {
    let slots = Slots::new(MAX_CLIENTS);
    let shown = settings.path.display();
    loop {
        match open(&settings.path).await {
            Ok((listener, place)) => {
                let message = format!("listening at {shown}");
                ends.conditions.holds(Condition::SocketOpen, &message);
                tokio::select! {
                    () = accept(&listener, ends, &message, told, &slots, end) => {}
                    () = displaced(&place, settings.look_every) => {}
                }
                tracing::warn!(path = %shown, "the socket was taken away: opening it again");
                // Where there is no socket, the plugin takes it that there is no daemon. It fails
                // only if all is about to end.
                let _ = ends.news.send(News::Missed).await;
            }
            Err(message) => ends.conditions.fails(Condition::SocketOpen, message),
        }
        sleep(PAUSE.max(settings.look_every / 10)).await;
    }
}

async fn open(path: &Path) -> Result<(UnixListener, Place), String> {
    let path = path.to_owned();
    let bound = tokio::task::spawn_blocking(move || bind(&path)).await;
    let bound = bound.map_err(|error| error.to_string())?;
    let (listener, place) = bound.map_err(|error| display_chain(&error))?;
    let listener = UnixListener::from_std(listener).map_err(|error| error.to_string())?;
    Ok((listener, place))
}

/// Ends when whoever connects does not come to us any more.
async fn displaced(place: &Place, look_every: Duration) {
    let mut looks = interval(look_every);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while place.is_taken() {
        looks.tick().await;
    }
}

/// Lets clients in, one after the other.
async fn accept(
    listener: &UnixListener,
    ends: &Ends,
    open: &str,
    told: &Notify,
    slots: &Slots,
    end: &CancellationToken,
) {
    let mut jam = Jam::new(jam::CALM);
    loop {
        let stream = match jam.accept(listener.accept()).await {
            Accepted::Client((stream, _)) => stream,
            Accepted::Refused { error, .. } => {
                ends.metrics.accept_errors.inc();
                let remedy = jam::remedy(&error);
                ends.conditions.fails(
                    Condition::SocketOpen,
                    format_args!("let a client of the socket in: {error} ({remedy})"),
                );
                sleep(PAUSE).await;
                continue;
            }
            Accepted::Over => {
                ends.conditions.holds(Condition::SocketOpen, open);
                continue;
            }
        };
        if !is_trusted(&stream) {
            ends.metrics.refused_clients.inc();
            continue;
        }
        told.notify_one();
        if let FirstLook::More(connection) = Connection::first_look(stream, ends) {
            let slot = slots.take().await;
            let (ends, end) = (ends.clone(), end.clone());
            tokio::spawn(async move {
                tokio::select! {
                    () = end.cancelled() => {}
                    () = connection.attend(slot, ends) => {}
                }
            });
        }
    }
}

/// Whether a client is root, or who we are.
fn is_trusted(stream: &UnixStream) -> bool {
    match stream.peer_cred() {
        Ok(peer) if peer.uid() == 0 || peer.uid() == geteuid().as_raw() => true,
        Ok(peer) => {
            let (uid, pid) = (peer.uid(), peer.pid());
            tracing::warn!(uid, pid, "sent a client of the socket away: it is not root");
            false
        }
        Err(error) => {
            tracing::warn!(%error, "sent a client of the socket away: nobody knows who it is");
            false
        }
    }
}

/// Reads the spool whenever there is something in it: at start, from time to time, and when the
/// plugin has told something, because it may have had to leave something else before.
async fn keep_spool_empty(settings: &Settings, ends: &Ends, told: &Notify) {
    let path = settings.path.with_file_name(SPOOL_NAME);
    let path: Arc<Path> = path.into();
    let mut trouble = String::new();
    loop {
        // What is in memory, as /run is, needs no thread to be looked at.
        if std::fs::symlink_metadata(&path).is_ok_and(|found| found.len() > 0) {
            let read = Arc::clone(&path);
            let taken = tokio::task::spawn_blocking(move || spool::take(&read)).await;
            let now = match taken.map_err(io::Error::other).flatten() {
                Ok(spooled) => {
                    if let Some(spooled) = spooled {
                        pass_on(&spooled, ends).await;
                    }
                    String::new()
                }
                // The plugin is just adding a line.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => String::new(),
                Err(error) => error.to_string(),
            };
            if now != trouble && !now.is_empty() {
                tracing::warn!(path = %path.display(), error = %now, "read the spool");
            }
            trouble = now;
        }
        // Either is a reason to look.
        let _ = timeout(settings.look_every, told.notified()).await;
    }
}

async fn pass_on(spooled: &spool::Spooled, ends: &Ends) {
    let mut damaged = 0_u32;
    for news in spooled.lines() {
        if let Ok(news) = news {
            ends.count_event("spool");
            // Fails only if all is about to end.
            let _ = ends.news.send(news).await;
        } else {
            ends.count_event("damaged");
            damaged += 1;
        }
    }
    if damaged > 0 {
        tracing::warn!(damaged, "the spool had lines that can't be understood");
    }
    if spooled.is_full || damaged > 0 {
        let _ = ends.news.send(News::Missed).await;
    }
}
