//! The IPAM plugin `headcni-ipam`.

use std::process::ExitCode;

use cni::call_log::{CallLog, LogSettings};
use cni::{Attachment, Call, Error, Keys, NetResult, Plugin, ValidAttachment};
use ipam::Verbs;

/// musl's allocator makes a system call for every other page, which is a tenth of a short call.
#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

const PLUGIN_TYPE: &str = "headcni-ipam";

fn main() -> ExitCode {
    cni::serve_process(&HeadcniIpam)
}

struct HeadcniIpam;

fn logged<T>(
    call: &Call,
    attachment: Option<&Attachment>,
    work: impl FnOnce(Verbs<'_>, &CallLog<'_>) -> Result<T, Error>,
) -> Result<T, Error> {
    let settings = LogSettings::of_call(call)?;
    let log = CallLog::start(PLUGIN_TYPE, &settings, call, attachment);
    let debug = |text: std::fmt::Arguments<'_>| log.debug(|| text.to_string());
    let outcome = work(Verbs::new(call).debug(&debug), &log);
    log.finish(outcome.as_ref().err());
    outcome
}

/// Refuses a configuration for another IPAM plugin. DEL and GC don't: they must be able to release
/// what this plugin leased before the configuration changed.
fn check_type(call: &Call) -> Result<(), Error> {
    let Some(ipam) = Keys::new(call.conf.keys(), "").object("ipam")? else {
        return Ok(());
    };
    let ipam = Keys::new(ipam, "ipam");
    match ipam.text("type")? {
        None | Some(PLUGIN_TYPE) => Ok(()),
        Some(_) => Err(ipam.wrong("type", "headcni-ipam")),
    }
}

impl Plugin for HeadcniIpam {
    fn about(&self) -> String {
        format!(
            "headcni-ipam {} is a CNI IPAM plugin: another plugin executes it with CNI_COMMAND \
             and other variables set, and a network configuration on stdin",
            env!("CARGO_PKG_VERSION")
        )
    }

    fn add(&self, call: &Call, to: &Attachment) -> Result<NetResult, Error> {
        logged(call, Some(to), |verbs, log| {
            check_type(call)?;
            verbs.add(to).inspect(|result| log.record_ips(result))
        })
    }

    fn del(&self, call: &Call, of: &Attachment) -> Result<(), Error> {
        logged(call, Some(of), |verbs, _| verbs.del(of))
    }

    fn check(&self, call: &Call, of: &Attachment) -> Result<(), Error> {
        logged(call, Some(of), |verbs, _| {
            check_type(call)?;
            verbs.check(of)
        })
    }

    fn gc(&self, call: &Call, valid: &[ValidAttachment]) -> Result<(), Error> {
        logged(call, None, |verbs, _| verbs.gc(valid))
    }

    fn status(&self, call: &Call) -> Result<(), Error> {
        logged(call, None, |verbs, _| {
            check_type(call)?;
            verbs.status()
        })
    }
}
