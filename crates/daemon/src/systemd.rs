//! `sd_notify`: ready, reloading, stopping and the watchdog. Does nothing without systemd.

use std::time::Duration;

use sd_notify::NotifyState;

const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(5);
const MIN_HEARTBEAT_INTERVAL: Duration = Duration::from_millis(100);

/// At least twice per `WatchdogSec`.
pub fn heartbeat_interval() -> Duration {
    match sd_notify::watchdog_enabled() {
        Some(limit) => HEARTBEAT_INTERVAL
            .min(limit / 2)
            .max(MIN_HEARTBEAT_INTERVAL),
        None => HEARTBEAT_INTERVAL,
    }
}

/// Ends a start or a reload; `systemctl status` shows `status`.
pub fn ready(status: &str) {
    notify(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// `Type=notify-reload` needs the time of the reload in the same message:
/// <https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html>.
pub fn reloading() {
    let states = [NotifyState::Reloading].into_iter();
    let states: Vec<_> = states
        .chain(NotifyState::monotonic_usec_now().ok())
        .collect();
    notify(&states);
}

pub fn watchdog() {
    notify(&[NotifyState::Watchdog]);
}

pub fn stopping() {
    notify(&[NotifyState::Stopping]);
}

fn notify(states: &[NotifyState<'_>]) {
    // The daemon works without systemd.
    let _ = sd_notify::notify(states);
}
