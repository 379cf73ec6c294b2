//! IPAM of the native datapath: the lease store that is linked in, or an IPAM plugin.

use attachment::boot_id;
use cni::{
    Attachment, Call, Delegate, DelegateError, Error, NetConf, NetResult, PluginType,
    ValidAttachment, Verb, code,
};
use ipam::Verbs;

use super::NativeStep;

impl NativeStep<'_> {
    /// Leases addresses, with up to three attempts.
    pub(super) fn lease(&self, to: &Attachment) -> Result<NetResult, Error> {
        match &self.conf.ipam_plugin {
            None => self.linked(|verbs| verbs.add(to)),
            Some(kind) => self.lease_from(kind, to),
        }
    }

    /// Retries like the linked-in store. A DEL in between releases what a failed ADD leased.
    fn lease_from(&self, kind: &PluginType, to: &Attachment) -> Result<NetResult, Error> {
        let call = self.ipam_call()?;
        let add = || {
            let conf = &call.conf;
            self.log.step(kind.as_str(), Verb::Add, || {
                self.ipam_plugin(kind).add(conf.keys(), conf.version(), to)
            })
        };
        let release = |error: DelegateError| {
            if !is_transient(&error) {
                return Err(error);
            }
            let message = error.into_error().msg;
            self.log.warn(format!("{message}: retrying"));
            self.run_ipam(&call, kind, Verb::Del, Some(to))
        };
        ipam::retry(add, release).map_err(DelegateError::into_error)
    }

    /// Runs a verb on the linked-in lease store.
    fn linked<T>(&self, run: impl FnOnce(Verbs<'_>) -> Result<T, Error>) -> Result<T, Error> {
        let call = self.ipam_call()?;
        let debug = |text: std::fmt::Arguments<'_>| self.log.debug(|| text.to_string());
        run(Verbs::new(&call).boot_id(boot_id()).debug(&debug))
    }

    pub(super) fn release(&self, of: &Attachment) -> Result<(), Error> {
        match &self.conf.ipam_plugin {
            None => self.linked(|verbs| verbs.del(of)),
            Some(kind) => self.exec_ipam(kind, Verb::Del, Some(of)),
        }
    }

    /// Fails unless the attachment has the leases of its result.
    pub(super) fn check_lease(&self, of: &Attachment) -> Result<(), Error> {
        match &self.conf.ipam_plugin {
            None => self.linked(|verbs| verbs.check(of)),
            Some(kind) => self.exec_ipam(kind, Verb::Check, Some(of)),
        }
    }

    /// Releases the leases of all other attachments.
    pub(super) fn gc_leases(&self, valid: &[ValidAttachment]) -> Result<(), Error> {
        match &self.conf.ipam_plugin {
            None => self.linked(|verbs| verbs.gc(valid)),
            Some(kind) => self.exec_ipam(kind, Verb::Gc, None),
        }
    }

    /// Fails if no address could be leased.
    pub(super) fn ipam_status(&self) -> Result<(), Error> {
        match &self.conf.ipam_plugin {
            None => self.linked(|verbs| verbs.status()),
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
        self.run_ipam(&self.ipam_call()?, kind, verb, of)
            .map_err(DelegateError::into_error)
    }

    fn run_ipam(
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

/// Whether a retry of the plugin can succeed.
fn is_transient(error: &DelegateError) -> bool {
    match error {
        DelegateError::Failed { error, .. } => {
            !matches!(error.code, code::INVALID_ENVIRONMENT | code::INVALID_CONFIG)
        }
        DelegateError::Broken { .. } => true,
        _ => false,
    }
}
