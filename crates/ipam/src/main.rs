//! `headcni-ipam`, the IPAM plugin: a thin program around the library.

use std::process::ExitCode;

use cni::call_log::{CallLog, LogSettings};
use cni::{Attachment, Call, Error, NetResult, Plugin, ValidAttachment};

/// The allocator of musl asks the kernel for every other page, which is a tenth of a short call.
#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

fn main() -> ExitCode {
    cni::serve_process(&HeadcniIpam)
}

struct HeadcniIpam;

/// Does one call, and logs how it went.
fn logged<T>(
    call: &Call,
    attachment: Option<&Attachment>,
    work: impl FnOnce(&CallLog<'_>) -> Result<T, Error>,
) -> Result<T, Error> {
    let settings = LogSettings::of_call(call)?;
    let log = CallLog::start("headcni-ipam", &settings, call, attachment);
    let outcome = work(&log);
    log.finish(outcome.as_ref().err());
    outcome
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
        logged(call, Some(to), |log| {
            ipam::add(call, to).inspect(|result| log.record_ips(result))
        })
    }

    fn del(&self, call: &Call, of: &Attachment) -> Result<(), Error> {
        logged(call, Some(of), |_| ipam::del(call, of))
    }

    fn check(&self, call: &Call, of: &Attachment) -> Result<(), Error> {
        logged(call, Some(of), |_| ipam::check(call, of))
    }

    fn gc(&self, call: &Call, valid: &[ValidAttachment]) -> Result<(), Error> {
        logged(call, None, |_| ipam::collect_garbage(call, valid))
    }

    fn status(&self, call: &Call) -> Result<(), Error> {
        logged(call, None, |_| ipam::status(call))
    }
}
