//! Lines on their way to stderr: a pipe may be full, and the daemon must not wait for it.

use std::io::{self, Write};
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// So much is kept for a reader that is slow.
const MAX_BYTES: usize = 256 << 10;
/// So much is held on to when there is nothing to write.
const IDLE_BYTES: usize = 8 << 10;

/// Lines that are not written yet.
#[derive(Debug, Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<u8>,
    is_writing: bool,
    lost: u64,
}

impl Queue {
    /// Takes a line if there is room for it; if so, says how many were lost since the last one.
    pub(super) fn put(&self, line: &str) -> Option<u64> {
        let mut state = self.lock();
        if state.waiting.len() + line.len() > MAX_BYTES {
            state.lost += 1;
            return None;
        }
        state.waiting.extend_from_slice(line.as_bytes());
        self.changed.notify_all();
        Some(mem::take(&mut state.lost))
    }

    /// Waits until all is written, or for so long.
    pub(super) fn flush(&self, patience: Duration) {
        let is_busy = |state: &mut State| state.is_writing || !state.waiting.is_empty();
        // Nothing more can be done about what was not written in time.
        let _ = self
            .changed
            .wait_timeout_while(self.lock(), patience, is_busy);
    }

    /// Writes whatever comes, for ever.
    fn drain(&self, mut to: impl Write) -> ! {
        let mut lines = Vec::new();
        loop {
            let is_idle = |state: &mut State| state.waiting.is_empty();
            let mut state = self
                .changed
                .wait_while(self.lock(), is_idle)
                .unwrap_or_else(PoisonError::into_inner);
            mem::swap(&mut state.waiting, &mut lines);
            state.is_writing = true;
            drop(state);
            // Whoever reads the log is gone; there is nobody to tell.
            let _ = to.write_all(&lines);
            lines.clear();
            lines.shrink_to(IDLE_BYTES);
            self.lock().is_writing = false;
            self.changed.notify_all();
        }
    }

    #[cfg(test)]
    pub(super) fn take(&self) -> String {
        String::from_utf8(mem::take(&mut self.lock().waiting)).unwrap()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes a queue to stderr, on a thread of its own.
pub(super) fn write_to_stderr(queue: Arc<Queue>) -> io::Result<()> {
    thread::Builder::new()
        .name("log".to_owned())
        .stack_size(64 << 10)
        .spawn(move || queue.drain(io::stderr()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_reader_that_stands_still_loses_lines_and_holds_nobody_up() {
        let (mut reader, writer) = io::pipe().unwrap();
        let queue = Arc::new(Queue::default());
        let writing = Arc::clone(&queue);
        thread::spawn(move || writing.drain(writer));

        let line = format!("{}\n", "x".repeat(1023));
        let started = Instant::now();
        // The pipe takes 64 KiB, the queue its own share, and what is being written as much again.
        let told: Vec<u64> = (0..2000).filter_map(|_| queue.put(&line)).collect();
        let taken = told.len();
        assert!(started.elapsed() < Duration::from_secs(5));
        assert!((256..=1000).contains(&taken), "{taken} lines were taken");
        queue.flush(Duration::from_millis(10));

        let mut text = vec![0; taken * line.len()];
        reader.read_exact(&mut text).unwrap();
        assert!(
            text.chunks(line.len())
                .all(|chunk| chunk == line.as_bytes())
        );
        queue.flush(Duration::from_secs(5));
        // Some may have been told before: there is room whenever the other thread begins to write.
        let last = queue.put("last\n").unwrap();
        assert_eq!(told.iter().sum::<u64>() + last, 2000 - taken as u64);
        assert_eq!(queue.put("last\n"), Some(0), "the loss is told once");
    }

    #[test]
    fn a_flush_waits_until_the_last_line_is_out() {
        let (mut reader, writer) = io::pipe().unwrap();
        let queue = Arc::new(Queue::default());
        let writing = Arc::clone(&queue);
        thread::spawn(move || writing.drain(writer));
        queue.put("a line\n");
        queue.flush(Duration::from_secs(5));
        let state = queue.lock();
        assert!(state.waiting.is_empty() && !state.is_writing);
        let mut text = [0; 7];
        reader.read_exact(&mut text).unwrap();
        assert_eq!(&text, b"a line\n");
    }
}
