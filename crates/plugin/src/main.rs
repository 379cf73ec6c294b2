//! `headcni`, the CNI plugin.
//!
//! A call goes `conf` → `plan` → `executor`: the plan has the plugins to execute with the complete
//! configuration of each, and the executor records every step before it runs it, so that a crash at
//! any point can be undone. `cleanup` is DEL and GC, `datapath` the native datapath, and `notify`
//! sends the outcome to the daemon.

mod cleanup;
mod conf;
mod datapath;
mod delegate;
mod errors;
mod executor;
mod native_conf;
mod notify;
mod plan;
mod result_overrides;

use std::process::ExitCode;

use cni::call_log::{CallLog, LogSettings};
use cni::{Attachment, Call, Error, NetResult, Plugin, ValidAttachment, Verb};

use crate::conf::Conf;
use crate::executor::Invocation;
use crate::notify::Daemon;

/// musl's allocator makes so many system calls that they are a tenth of a short call.
#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

fn main() -> ExitCode {
    cni::serve_process(&Headcni)
}

struct Headcni;

impl Headcni {
    /// Runs one call, logs it, and sends its event to the daemon.
    fn logged<T>(
        call: &Call,
        attachment: Option<&Attachment>,
        work: impl FnOnce(&Invocation<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let settings = LogSettings::of_call(call)?;
        let log = CallLog::start("headcni", &settings, call, attachment);
        let daemon = Daemon::of_call(call);
        let conf = match &daemon {
            Ok(_) => Conf::parse(call),
            Err(error) => Err(error.clone()),
        };
        let outcome = conf.and_then(|conf| {
            work(&Invocation {
                call,
                conf: &conf,
                log: &log,
            })
        });
        let error = outcome.as_ref().err();
        let ended = log.finish(error);
        if let (Ok(daemon), Some(of), Verb::Add | Verb::Del) = (daemon, attachment, call.verb)
            && let Err(error) = daemon.notify(|| notify::event(call, of, ended, error))
        {
            settings.write_error("headcni", call, of, &error);
        }
        outcome
    }
}

impl Plugin for Headcni {
    fn about(&self) -> String {
        format!(
            "headcni {} is a CNI plugin: a container runtime executes it with CNI_COMMAND and \
             other variables set, and a network configuration on stdin",
            env!("CARGO_PKG_VERSION")
        )
    }

    fn add(&self, call: &Call, to: &Attachment) -> Result<NetResult, Error> {
        Self::logged(call, Some(to), |invocation| invocation.add(to))
    }

    fn del(&self, call: &Call, of: &Attachment) -> Result<(), Error> {
        Self::logged(call, Some(of), |invocation| invocation.del(of))
    }

    fn check(&self, call: &Call, of: &Attachment) -> Result<(), Error> {
        Self::logged(call, Some(of), |invocation| invocation.check(of))
    }

    fn gc(&self, call: &Call, valid: &[ValidAttachment]) -> Result<(), Error> {
        Self::logged(call, None, |invocation| invocation.gc(valid))
    }

    fn status(&self, call: &Call) -> Result<(), Error> {
        #[expect(
            clippy::redundant_closure_for_method_calls,
            reason = "the method alone is not general enough over the lifetime of Invocation"
        )]
        Self::logged(call, None, |invocation| invocation.status())
    }
}
