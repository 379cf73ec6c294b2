//! `headcni`, the CNI plugin.
//!
//! A call goes `conf` → `plan` → `steps`: the configuration says which plugins are to be executed,
//! the plan completes the configuration of each, and `steps` executes them with a record of every
//! step in `state`, so that a crash at any point can be undone. `notify` posts an event to
//! the daemon.

mod cleanup;
mod conf;
mod delegate;
mod errors;
mod native;
mod netns;
mod notify;
mod plan;
mod shape;
mod steps;

use std::process::ExitCode;

use calllog::CallLog;
use cni::{Attachment, Call, Error, NetResult, Plugin, ValidAttachment, Verb};

use crate::conf::Conf;
use crate::notify::Daemon;
use crate::steps::Run;

/// The allocator of musl asks the kernel for every other page, which is a tenth of a short call.
#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

fn main() -> ExitCode {
    cni::serve_process(&Headcni)
}

struct Headcni;

impl Headcni {
    /// Does one call, logs how it went, and tells the daemon.
    fn logged<T>(
        call: &Call,
        attachment: Option<&Attachment>,
        work: impl FnOnce(&Run<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let settings = calllog::Settings::of_call(call)?;
        let log = CallLog::start("headcni", &settings, call, attachment);
        let daemon = Daemon::of_call(call);
        let conf = match &daemon {
            Ok(_) => Conf::parse(call),
            Err(error) => Err(error.clone()),
        };
        let outcome = conf.and_then(|conf| {
            work(&Run {
                call,
                conf: &conf,
                log: &log,
            })
        });
        let error = outcome.as_ref().err();
        let ended = log.finish(error);
        if let (Ok(daemon), Some(of), Verb::Add | Verb::Del) = (daemon, attachment, call.verb) {
            if let Err(error) = daemon.notify(|| notify::event(call, of, ended, error)) {
                settings.write_error("headcni", call, of, &error);
            }
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
        Self::logged(call, Some(to), |run| run.add(to))
    }

    fn del(&self, call: &Call, of: &Attachment) -> Result<(), Error> {
        Self::logged(call, Some(of), |run| run.del(of))
    }

    fn check(&self, call: &Call, of: &Attachment) -> Result<(), Error> {
        Self::logged(call, Some(of), |run| run.check(of))
    }

    fn gc(&self, call: &Call, valid: &[ValidAttachment]) -> Result<(), Error> {
        Self::logged(call, None, |run| run.gc(valid))
    }

    fn status(&self, call: &Call) -> Result<(), Error> {
        #[expect(
            clippy::redundant_closure_for_method_calls,
            reason = "the method alone is not general enough over the lifetime of Run"
        )]
        Self::logged(call, None, |run| run.status())
    }
}
