//! Ctrl-C and its like: death at once while there is work, and the end of the waiting afterwards.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use anyhow::{Context, Result};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigSet, Signal, raise};

/// One who hears it.
pub(super) struct Interrupt {
    is_awaited: Arc<AtomicBool>,
    heard: Receiver<()>,
}

impl Interrupt {
    /// Must come before there are other threads: they would not know to leave signals to this one.
    pub(super) fn listen() -> Result<Self> {
        // Whoever started this may be killed in a way that it can't pass on.
        set_pdeathsig(Signal::SIGTERM).context("ask for a signal at the parent's end")?;
        let signals: SigSet = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]
            .into_iter()
            .collect();
        signals.thread_block().context("hold signals back")?;
        let is_awaited = Arc::new(AtomicBool::new(false));
        let (sender, heard) = channel();
        let is_wanted = Arc::clone(&is_awaited);
        thread::spawn(move || {
            while let Ok(signal) = signals.wait() {
                if is_wanted.load(Ordering::SeqCst) && sender.send(()).is_ok() {
                    continue;
                }
                // As if nobody had listened. The nodes end with this process.
                if signals.thread_unblock().is_err() || raise(signal).is_err() {
                    return;
                }
            }
        });
        Ok(Self { is_awaited, heard })
    }

    /// Returns when it comes. A second one ends the process.
    pub(super) fn wait(self) {
        self.is_awaited.store(true, Ordering::SeqCst);
        // The other end is never dropped before it has spoken, and if it were, nobody could tell.
        let _ = self.heard.recv();
    }
}
