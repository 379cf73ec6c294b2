//! Ctrl-C, SIGTERM and SIGHUP: they end the process while it works, and only the waiting afterwards.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use anyhow::{Context, Result};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigSet, Signal, raise};

pub(super) struct Interrupt {
    is_waiting: Arc<AtomicBool>,
    received: Receiver<()>,
}

impl Interrupt {
    /// Call before other threads start: they inherit the blocked signals.
    pub(super) fn listen() -> Result<Self> {
        // The parent may be killed by a signal that it can't pass on.
        set_pdeathsig(Signal::SIGTERM).context("set the parent death signal")?;
        let signals: SigSet = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]
            .into_iter()
            .collect();
        signals.thread_block().context("block signals")?;
        let is_waiting = Arc::new(AtomicBool::new(false));
        let (sender, received) = channel();
        let waits = Arc::clone(&is_waiting);
        thread::spawn(move || {
            while let Ok(signal) = signals.wait() {
                if waits.load(Ordering::SeqCst) && sender.send(()).is_ok() {
                    continue;
                }
                // The default action. The nodes end with this process.
                if signals.thread_unblock().is_err() || raise(signal).is_err() {
                    return;
                }
            }
        });
        Ok(Self {
            is_waiting,
            received,
        })
    }

    /// Waits for the first signal. A second one ends the process.
    pub(super) fn wait(self) {
        self.is_waiting.store(true, Ordering::SeqCst);
        // An error means that the thread ended, so there is nothing to wait for.
        let _ = self.received.recv();
    }
}
