//! IPAM of the native datapath: the lease store that is linked in, or an IPAM plugin.

use std::thread;
use std::time::Duration;

use attachment::boot_id;
use cni::{
    Attachment, Call, Delegate, DelegateError, Error, NetConf, NetResult, PluginType,
    ValidAttachment, Verb, code,
};

use super::NativeStep;

const MAX_TRIES: u32 = 3;
const FIRST_BACKOFF: Duration = Duration::from_millis(20);

struct LeaseError {
    error: Error,
    is_transient: bool,
}

impl NativeStep<'_> {
    /// Leases addresses, with up to three tries.
    pub(super) fn lease(&self, to: &Attachment) -> Result<NetResult, Error> {
        let mut backoff = FIRST_BACKOFF;
        for _ in 1..MAX_TRIES {
            match self.try_lease(to) {
                Err(failed) if failed.is_transient => {
                    self.log.warn(format!("{}: retrying", failed.error.msg));
                }
                outcome => return outcome.map_err(|failed| failed.error),
            }
            if let Some(kind) = &self.conf.ipam_plugin {
                // A failed ADD may have leased something.
                self.exec_ipam(kind, Verb::Del, Some(to))?;
            }
            thread::sleep(backoff);
            backoff *= 4;
        }
        self.try_lease(to).map_err(|failed| failed.error)
    }

    fn try_lease(&self, to: &Attachment) -> Result<NetResult, LeaseError> {
        let call = self.ipam_call().map_err(LeaseError::permanent)?;
        match &self.conf.ipam_plugin {
            None => ipam::in_boot(boot_id())
                .add(&call, to)
                .map_err(LeaseError::from_store),
            Some(kind) => self
                .log
                .step(kind.as_str(), Verb::Add, || {
                    let conf = &call.conf;
                    self.ipam_plugin(kind).add(conf.keys(), conf.version(), to)
                })
                .map_err(LeaseError::from_plugin),
        }
    }

    pub(super) fn release(&self, of: &Attachment) -> Result<(), Error> {
        match &self.conf.ipam_plugin {
            None => ipam::in_boot(boot_id()).del(&self.ipam_call()?, of),
            Some(kind) => self.exec_ipam(kind, Verb::Del, Some(of)),
        }
    }

    /// Fails unless the attachment has the leases of its result.
    pub(super) fn check_lease(&self, of: &Attachment) -> Result<(), Error> {
        match &self.conf.ipam_plugin {
            None => ipam::check(&self.ipam_call()?, of),
            Some(kind) => self.exec_ipam(kind, Verb::Check, Some(of)),
        }
    }

    /// Releases the leases of all other attachments.
    pub(super) fn gc_leases(&self, valid: &[ValidAttachment]) -> Result<(), Error> {
        match &self.conf.ipam_plugin {
            None => ipam::collect_garbage(&self.ipam_call()?, valid),
            Some(kind) => self.exec_ipam(kind, Verb::Gc, None),
        }
    }

    /// Fails if no address could be leased.
    pub(super) fn ipam_status(&self) -> Result<(), Error> {
        match &self.conf.ipam_plugin {
            None => ipam::status(&self.ipam_call()?),
            Some(kind) => self.exec_ipam(kind, Verb::Status, None),
        }
    }

    /// The call that IPAM gets.
    fn ipam_call(&self) -> Result<Call, Error> {
        let mut keys = self.conf.keys.clone();
        if let Some(result) = &self.prev_result {
            let version = self.call.conf.version();
            keys.insert("prevResult".to_owned(), result.to_json(version));
        }
        Ok(Call {
            verb: self.verb,
            conf: NetConf::from_keys(keys)?,
            env: self.call.env.clone(),
        })
    }

    fn ipam_plugin<'b>(&'b self, kind: &'b PluginType) -> Delegate<'b> {
        Delegate {
            kind,
            env: &self.call.env,
            timeout: self.timeout,
        }
    }

    fn exec_ipam(
        &self,
        kind: &PluginType,
        verb: Verb,
        of: Option<&Attachment>,
    ) -> Result<(), Error> {
        let call = self.ipam_call()?;
        self.log
            .step(kind.as_str(), verb, || {
                self.ipam_plugin(kind).call(verb, call.conf.keys(), of)
            })
            .map_err(DelegateError::into_error)
    }
}

impl LeaseError {
    fn permanent(error: Error) -> Self {
        Self {
            error,
            is_transient: false,
        }
    }

    fn from_store(error: Error) -> Self {
        Self {
            // A busy store has been waited for already.
            is_transient: !matches!(
                error.code,
                code::INVALID_ENVIRONMENT
                    | code::INVALID_CONFIG
                    | code::ALREADY_ATTACHED
                    | code::TRY_AGAIN_LATER
            ),
            error,
        }
    }

    fn from_plugin(error: DelegateError) -> Self {
        let is_transient = match &error {
            DelegateError::Failed { error, .. } => {
                !matches!(error.code, code::INVALID_ENVIRONMENT | code::INVALID_CONFIG)
            }
            DelegateError::Broken { .. } => true,
            _ => false,
        };
        Self {
            error: error.into_error(),
            is_transient,
        }
    }
}
