//! What systemd is told: that we are ready, reload, end, and that the loop turns. Without systemd
//! nobody is told, which is no error.

use std::time::Duration;

use sd_notify::NotifyState;

/// How often the loop shows that it turns.
const BEAT: Duration = Duration::from_secs(5);
/// No watchdog makes it show that more often.
const QUICKEST_BEAT: Duration = Duration::from_millis(100);

/// How often the loop shows that it turns: twice as often as systemd's watchdog asks for.
pub fn beat() -> Duration {
    match sd_notify::watchdog_enabled() {
        Some(limit) => BEAT.min(limit / 2).max(QUICKEST_BEAT),
        None => BEAT,
    }
}

/// The start, or a reload, is over; `status` is what `systemctl status` shows.
pub fn ready(status: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// A reload begins. Units of `Type=notify-reload` want to know when it began, in the same message:
/// <https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html>.
pub fn reloading() {
    let states = [NotifyState::Reloading].into_iter();
    let states: Vec<_> = states
        .chain(NotifyState::monotonic_usec_now().ok())
        .collect();
    tell(&states);
}

/// The loop turns.
pub fn turning() {
    tell(&[NotifyState::Watchdog]);
}

/// The end begins.
pub fn stopping() {
    tell(&[NotifyState::Stopping]);
}

fn tell(states: &[NotifyState<'_>]) {
    // There is nothing to do about a systemd that doesn't listen.
    let _ = sd_notify::notify(states);
}
