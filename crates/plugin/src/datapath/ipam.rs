//! IPAM of the native datapath: the lease store that is linked in, or an IPAM plugin.

use attachment::boot_id;
use cni::{
    Attachment, Call, Delegate, DelegateError, Error, NetConf, NetResult, PluginType,
    ValidAttachment, Verb, code,
};

use super::NativeStep;

impl NativeStep<'_> {
    /// Leases addresses; transient failures are retried.
    pub(super) fn lease(&self, to: &Attachment) -> Result<NetResult, Error> {
        match &self.conf.ipam_plugin {
            None => self.linked(|ipam| ipam.add(to)),
            Some(kind) => self.lease_from(kind, to),
        }
    }

    /// Runs a verb on the linked-in lease store.
    fn linked<T>(
        &self,
        verb: impl FnOnce(ipam::Verbs<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let call = self.ipam_call()?;
        let debug = |text: std::fmt::Arguments<'_>| self.log.debug(|| text.to_string());
        let verbs = ipam::Verbs::new(&call).boot_id(boot_id());
        verb(verbs.debug(&debug))
    }

    /// Retries like the linked-in store. A DEL in between releases what the failed attempt leased.
    fn lease_from(&self, kind: &PluginType, to: &Attachment) -> Result<NetResult, Error> {
        let call = self.ipam_call()?;
        let conf = &call.conf;
        let attempt = || {
            self.log.step(kind.as_str(), Verb::Add, || {
                self.ipam_plugin(kind).add(conf.keys(), conf.version(), to)
            })
        };
        let release = |error: DelegateError| {
            if !is_transient(&error) {
                return Err(error);
            }
            self.log
                .warn(format!("{}: retrying", error.into_error().msg));
            self.exec_ipam(&call, kind, Verb::Del, Some(to))
        };
        ipam::retry(attempt, release).map_err(DelegateError::into_error)
    }

    pub(super) fn release(&self, of: &Attachment) -> Result<(), Error> {
        match &self.conf.ipam_plugin {
            None => self.linked(|ipam| ipam.del(of)),
            Some(kind) => self.exec(kind, Verb::Del, Some(of)),
        }
    }

    /// Fails unless the attachment has the leases of its result.
    pub(super) fn check_lease(&self, of: &Attachment) -> Result<(), Error> {
        match &self.conf.ipam_plugin {
            None => self.linked(|ipam| ipam.check(of)),
            Some(kind) => self.exec(kind, Verb::Check, Some(of)),
        }
    }

    /// Releases the leases of all other attachments.
    pub(super) fn gc_leases(&self, valid: &[ValidAttachment]) -> Result<(), Error> {
        match &self.conf.ipam_plugin {
            None => self.linked(|ipam| ipam.gc(valid)),
            Some(kind) => self.exec(kind, Verb::Gc, None),
        }
    }

    /// Fails if no address could be leased.
    pub(super) fn ipam_status(&self) -> Result<(), Error> {
        match &self.conf.ipam_plugin {
            None => self.linked(|ipam| ipam.status()),
            Some(kind) => self.exec(kind, Verb::Status, None),
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

    fn exec(&self, kind: &PluginType, verb: Verb, of: Option<&Attachment>) -> Result<(), Error> {
        self.exec_ipam(&self.ipam_call()?, kind, verb, of)
            .map_err(DelegateError::into_error)
    }

    fn exec_ipam(
        &self,
        call: &Call,
        kind: &PluginType,
        verb: Verb,
        of: Option<&Attachment>,
    ) -> Result<(), DelegateError> {
        self.log.step(kind.as_str(), verb, || {
            self.ipam_plugin(kind).call(verb, call.conf.keys(), of)
        })
    }
}

/// Whether a plugin that failed could succeed the next time.
fn is_transient(error: &DelegateError) -> bool {
    match error {
        DelegateError::Failed { error, .. } => {
            !matches!(error.code, code::INVALID_ENVIRONMENT | code::INVALID_CONFIG)
        }
        DelegateError::Broken { .. } => true,
        _ => false,
    }
}
