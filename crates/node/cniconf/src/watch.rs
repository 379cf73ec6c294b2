//! Watches the files and their parent directories by inotify.
//!
//! Every directory from the root down is watched, so that a moved, deleted or recreated one is noticed.
//! Mounts cause no event, so the watches are renewed periodically.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, PipeReader, PipeWriter};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use tokio::sync::Notify;

use super::others::is_config;
use node_config::{Dirs, SUBNET_ENV};

const RENEWAL: Duration = Duration::from_secs(10);
/// Events within this time are merged.
const COALESCENCE: Duration = Duration::from_millis(50);
const BUFFER_BYTES: usize = 4096;
const STACK_BYTES: usize = 256 * 1024;

/// Events of a parent directory.
const ON_THE_WAY: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::MASK_ADD)
    .union(WatchFlags::ONLYDIR);
/// Events of files.
const AT_THE_END: WatchFlags = ON_THE_WAY
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::ATTRIB);
/// The watch is invalid, or events were lost.
const BROKEN: ReadFlags = ReadFlags::DELETE_SELF
    .union(ReadFlags::MOVE_SELF)
    .union(ReadFlags::UNMOUNT)
    .union(ReadFlags::IGNORED)
    .union(ReadFlags::QUEUE_OVERFLOW);

/// Watches until it is dropped.
#[derive(Debug)]
pub struct Watch {
    /// Closing it ends the thread.
    _open: PipeWriter,
}

/// Notifies `changed` when a file or another CNI configuration may have changed.
///
/// If the kernel has no watches left, it retries; meanwhile the periodic reconcile finds changes.
pub fn watch(dirs: &Dirs, changed: Arc<Notify>) -> io::Result<Watch> {
    let (end, open) = io::pipe()?;
    let targets = targets(dirs);
    // A thread, because directories may be on slow disks.
    let thread = thread::Builder::new().name("cniconf-watch".to_owned());
    thread
        .stack_size(STACK_BYTES)
        .spawn(move || watch_on(&targets, &changed, &end))?;
    Ok(Watch { _open: open })
}

fn watch_on(targets: &[Target], changed: &Notify, end: &PipeReader) {
    let mut is_logged = false;
    loop {
        match watch_until_ended(targets, changed, end) {
            Ok(Ended) => return,
            Err(error) if is_logged => tracing::debug!(%error, "can't watch the CNI configuration"),
            Err(error) => tracing::warn!(
                %error,
                "can't watch the CNI configuration: raise fs.inotify.max_user_instances and \
                 fs.inotify.max_user_watches; until then changes are found later"
            ),
        }
        is_logged = true;
        if matches!(wait(end, None, RENEWAL), Ok(Wake::End) | Err(_)) {
            return;
        }
    }
}

#[derive(Clone, Debug)]
struct Target {
    dir: PathBuf,
    counts: fn(&OsStr) -> bool,
}

fn targets(dirs: &Dirs) -> Vec<Target> {
    let is_subnet_env = |name: &OsStr| name == SUBNET_ENV;
    vec![
        Target {
            dir: dirs.conf_dir.clone(),
            counts: is_config,
        },
        Target {
            dir: dirs.run_dir.clone(),
            counts: is_subnet_env,
        },
        Target {
            dir: dirs.state_dir.clone(),
            counts: is_subnet_env,
        },
    ]
}

#[derive(Debug)]
enum Interest {
    /// The next directory of the path.
    Step(OsString),
    Files(fn(&OsStr) -> bool),
}

/// Watches by descriptor.
type Watches = HashMap<i32, Vec<Interest>>;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum News {
    #[default]
    None,
    Files,
    /// A parent directory may have changed.
    Way,
}

struct Ended;

/// Watches until `end` is closed.
fn watch_until_ended(targets: &[Target], changed: &Notify, end: &PipeReader) -> io::Result<Ended> {
    let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
    let mut watches = Watches::new();
    let (mut news, mut renewal) = (News::Way, Instant::now() + RENEWAL);
    loop {
        if news == News::Way {
            let renewed = add_watches(&inotify, targets)?;
            for stale in watches.keys().filter(|known| !renewed.contains_key(*known)) {
                // The kernel may have removed the watch already.
                let _ = inotify::remove_watch(&inotify, *stale);
            }
            watches = renewed;
        }
        if news != News::None {
            changed.notify_one();
            // Limits the cost of a continuous writer.
            if let Wake::End = wait(end, None, COALESCENCE)? {
                return Ok(Ended);
            }
        }
        // By the clock: events may arrive continuously.
        let rest = renewal.saturating_duration_since(Instant::now());
        news = if rest.is_zero() {
            renewal = Instant::now() + RENEWAL;
            let renewed = add_watches(&inotify, targets)?;
            let is_known = |watch| watches.contains_key(watch);
            let is_same = renewed.len() == watches.len() && renewed.keys().all(is_known);
            if is_same { News::None } else { News::Way }
        } else {
            match wait(end, Some(&inotify), rest)? {
                Wake::End => return Ok(Ended),
                Wake::Events => read(&inotify, &watches)?,
                Wake::Time => News::None,
            }
        };
    }
}

enum Wake {
    End,
    Events,
    Time,
}

/// Waits for the end, for events, or for a time to pass.
fn wait(end: &PipeReader, events: Option<&OwnedFd>, time: Duration) -> io::Result<Wake> {
    let time = Timespec::try_from(time).map_err(io::Error::other)?;
    let mut all = vec![PollFd::new(end, PollFlags::IN)];
    all.extend(events.map(|events| PollFd::new(events, PollFlags::IN)));
    let woken = match poll(&mut all, Some(&time)) {
        Err(Errno::INTR) => 0,
        woken => woken?,
    };
    // Closing the pipe is a hang-up.
    Ok(match (woken, all[0].revents().is_empty()) {
        (0, _) => Wake::Time,
        (_, false) => Wake::End,
        _ => Wake::Events,
    })
}

/// Watches every directory of each target path, from the root down.
fn add_watches(inotify: &OwnedFd, targets: &[Target]) -> io::Result<Watches> {
    let mut watches = Watches::new();
    for target in targets {
        let mut way: Vec<&Path> = target.dir.ancestors().collect();
        way.reverse();
        for (index, dir) in way.iter().enumerate() {
            let next = way.get(index + 1).and_then(|next| next.file_name());
            let (flags, interest) = match next {
                Some(name) => (ON_THE_WAY, Interest::Step(name.to_owned())),
                None => (AT_THE_END, Interest::Files(target.counts)),
            };
            match inotify::add_watch(inotify, *dir, flags) {
                Ok(watch) => watches.entry(watch).or_default().push(interest),
                // No watches or no memory left.
                Err(error @ (Errno::NOSPC | Errno::NOMEM)) => return Err(error.into()),
                // Missing or not a directory: its parents are watched.
                Err(_) => break,
            }
        }
    }
    Ok(watches)
}

fn read(inotify: &OwnedFd, watches: &Watches) -> io::Result<News> {
    let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
    let mut reader = inotify::Reader::new(inotify, &mut buffer);
    let mut news = News::None;
    loop {
        let event = reader.next()?;
        let (flags, watch) = (event.events(), event.wd());
        let name = event.file_name();
        let name = name.map(|name| OsStr::from_bytes(name.to_bytes()));
        let told = match watches.get(&watch) {
            _ if flags.contains(ReadFlags::QUEUE_OVERFLOW) => News::Way,
            Some(interests) => meaning(interests, name, flags),
            // Removed meanwhile.
            None => News::None,
        };
        news = news.max(told);
        if reader.is_buffer_empty() {
            return Ok(news);
        }
    }
}

fn meaning(interests: &[Interest], name: Option<&OsStr>, events: ReadFlags) -> News {
    if events.intersects(BROKEN) {
        return News::Way;
    }
    let of_one = |interest: &Interest| match (interest, name) {
        (Interest::Step(next), Some(name)) if next == name => News::Way,
        (Interest::Files(counts), Some(name)) if counts(name) => News::Files,
        // Permissions of the directory itself.
        (Interest::Files(_), None) => News::Files,
        _ => News::None,
    };
    interests.iter().map(of_one).max().unwrap_or_default()
}
