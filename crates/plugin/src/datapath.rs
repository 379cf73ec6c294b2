//! The native datapath: pods are attached by this process, without a delegate.
//!
//! A platform is a module that implements these methods of [`NativeStep`]: `attach`, `detach`,
//! `check`, `gc`, `delete_stale_links`, `refuse_existing` and `status`, and the function
//! `has_interface`. `linux` makes a routed veth per pod. Windows (HNS) would be
//! `datapath/windows.rs`. IPAM and the status of tailscaled are common to all platforms.

mod ipam;
#[cfg(target_os = "linux")]
mod linux;
mod tailscaled;

use std::path::Path;
use std::time::Duration;

use attachment::NativeConf;
use cni::call_log::CallLog;
use cni::{Attachment, Call, Error, NetResult, Verb, code};

#[cfg(target_os = "linux")]
pub(crate) use linux::has_interface;

/// A step of a call that runs on the native datapath.
pub(crate) struct NativeStep<'a> {
    pub(crate) call: &'a Call,
    /// The verb of the step: a failed ADD is rolled back by a DEL.
    pub(crate) verb: Verb,
    pub(crate) conf: &'a NativeConf,
    pub(crate) prev_result: Option<NetResult>,
    pub(crate) log: &'a CallLog<'a>,
    pub(crate) timeout: Duration,
    pub(crate) data_dir: &'a Path,
}

impl NativeStep<'_> {
    /// Runs any verb but ADD.
    pub(crate) fn run(&self, of: Option<&Attachment>) -> Result<(), Error> {
        match (self.verb, of) {
            (Verb::Del, Some(of)) => self.detach(of),
            (Verb::Check, Some(of)) => self.check(of),
            (Verb::Gc, _) => self.gc(&self.call.conf.valid_attachments()?),
            (Verb::Status, _) => self.status(),
            (verb, _) => Err(Error::config(format!("{verb} is not a verb of a step"))),
        }
    }
}

/// The error of STATUS for something that an ADD needs.
fn unavailable(msg: impl Into<String>) -> Error {
    Error::new(code::NOT_AVAILABLE, msg)
}
