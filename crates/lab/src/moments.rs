//! Moments in the life of a plugin, and what can happen in them: kill -9, or an error.
//!
//! strace runs the plugin once to tell all of its system calls, and then once for each of them, to
//! kill it there. Only the plugin's first thread counts: threads that move bytes and programs that
//! it executes go their own ways.
//!
//! ```no_run
//! use lab::{Call, Node, Syscalls};
//!
//! # let (node, add, del) = (Node::new("n1")?, Call::new("ADD"), Call::new("DEL"));
//! # let plugin = "/opt/cni/bin/headcni";
//! let trace = add.trace(&node, plugin, Syscalls::KERNEL_MESSAGES)?;
//! trace.outcome.ok()?;
//! for moment in &trace.moments {
//!     del.run(&node, plugin)?.ok()?;
//!     let came = add.kill_at(&node, plugin, moment)?;
//! }
//! # anyhow::Ok(())
//! ```

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Result, bail};

use crate::call::{Call, Outcome};
use crate::netns::Netns;
use crate::node::Node;

/// How much of a string strace shows: enough for a path.
const STRING_BYTES: &str = "200";

/// Which system calls are moments of interest.
#[derive(Debug, Clone, Copy)]
pub enum Syscalls<'a> {
    /// Every one.
    All,
    /// Those of these names, by whatever name each architecture has for them.
    Only(&'a [&'a str]),
}

impl Syscalls<'_> {
    /// What sends to a socket: the only ways to tell the kernel something by netlink.
    pub const KERNEL_MESSAGES: Self = Self::Only(&["sendto", "sendmsg", "sendmmsg"]);

    fn has(self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(names) => names.contains(&name),
        }
    }
}

/// Before the nth time that a process does one system call: strace counts each kind by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moment {
    /// The system call.
    pub name: String,
    /// The call with its arguments and its result, as strace told it.
    pub line: String,
    nth: usize,
}

impl Moment {
    /// SIGKILL at this moment: what the system call would have done is not done.
    pub fn kill(&self) -> Injection {
        self.inject("signal=KILL")
    }

    /// An error at this moment, as in `EIO`: the system call is not done.
    pub fn fail(&self, errno: &str) -> Injection {
        self.inject(&format!("error={errno}"))
    }

    fn inject(&self, what: &str) -> Injection {
        Injection(format!("inject={}:{what}:when={}", self.name, self.nth))
    }
}

/// Something that strace shall do to a plugin. Of two for the same kind of system call, only the
/// later one happens.
#[derive(Debug, Clone)]
pub struct Injection(String);

/// A run that was watched.
#[derive(Debug, Clone)]
pub struct Trace {
    /// How it ended.
    pub outcome: Outcome,
    /// The system calls that were asked for, in order.
    pub moments: Vec<Moment>,
}

impl Call {
    /// Does the call, whatever comes of it, and tells the system calls that the plugin made.
    pub fn trace(&self, node: &Node, plugin: impl AsRef<Path>, which: Syscalls) -> Result<Trace> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        // Beside the layers of the node's file system, which snapshots leave out.
        let file = format!("/run/lab/trace-{count}");
        let mut call = self.clone();
        let line = strace(&file, &std::mem::take(&mut call.injections));
        call.under.extend(line.into_iter().map(Into::into));
        let outcome = call.run(node, plugin)?;
        let text = node.read(&file)?;
        node.run(["rm", &file])?;
        let mut moments = parse(&text);
        moments.retain(|moment| which.has(&moment.name));
        Ok(Trace { outcome, moments })
    }

    /// Does the call and kills the plugin at a moment. Returns whether that moment came: how often
    /// a plugin looks whether a child has ended, say, is not the same each time. If it did not
    /// come, the plugin must have succeeded.
    ///
    /// Only the plugin is killed. The programs that it executed run on, and nobody waits for them
    /// here, because none of them holds the output that we read: there is none.
    pub fn kill_at(&self, node: &Node, plugin: impl AsRef<Path>, moment: &Moment) -> Result<bool> {
        let silent = ["sh", "-c", "exec \"$@\" >/dev/null 2>&1", "sh"];
        let mut call = self.clone().inject(moment.kill());
        call.under.splice(0..0, silent.map(Into::into));
        let outcome = call.run(node, plugin)?;
        let is_killed = outcome.status.signal() == Some(9);
        if !is_killed && !outcome.status.success() {
            bail!("{} instead of kill -9 at {moment:?}", outcome.status);
        }
        Ok(is_killed)
    }

    /// Lets this happen to the plugin in each run.
    #[must_use]
    pub fn inject(mut self, injection: Injection) -> Self {
        self.injections.push(injection);
        self
    }
}

/// How to begin the line of a plugin to which all of this shall happen.
pub(crate) fn strace(output: &str, injections: &[Injection]) -> Vec<String> {
    let mut line = Vec::from(["strace", "-qq", "-s", STRING_BYTES, "-o", output].map(String::from));
    for Injection(what) in injections {
        line.extend(["-e".to_owned(), what.clone()]);
    }
    line
}

fn parse(trace: &str) -> Vec<Moment> {
    let mut counts = BTreeMap::new();
    let moment = |line: &str| {
        // Others tell of signals.
        let (name, _) = line.split_once('(')?;
        if name.contains(' ') {
            return None;
        }
        let nth = counts.entry(name.to_owned()).or_default();
        *nth += 1;
        Some(Moment {
            name: name.to_owned(),
            line: line.to_owned(),
            nth: *nth,
        })
    };
    // With the first one strace starts the plugin, and does not count it.
    trace.lines().skip(1).filter_map(moment).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_system_call_is_counted_by_itself() {
        let trace = "execve(\"/p\", [\"/p\"], 0x7f /* 3 vars */) = 0\n\
                     read(0, \"{}\", 10) = 2\n\
                     --- SIGCHLD {si_signo=SIGCHLD, si_code=CLD_EXITED (1)} ---\n\
                     write(1, \"(\", 1) = 1\n\
                     read(0, \"\", 10) = 0\n";
        let moments = parse(trace);
        let seen: Vec<_> = moments.iter().map(|m| (m.name.as_str(), m.nth)).collect();
        assert_eq!(seen, [("read", 1), ("write", 1), ("read", 2)]);
        assert_eq!(moments[2].kill().0, "inject=read:signal=KILL:when=2");
        assert_eq!(moments[2].fail("EIO").0, "inject=read:error=EIO:when=2");
        assert_eq!(moments[1].line, "write(1, \"(\", 1) = 1");
    }

    #[test]
    fn only_those_asked_for_count() {
        assert!(Syscalls::All.has("read"));
        assert!(Syscalls::KERNEL_MESSAGES.has("sendto"));
        assert!(!Syscalls::KERNEL_MESSAGES.has("recvfrom"));
    }
}
