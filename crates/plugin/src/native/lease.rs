//! Addresses for a pod: from the store that is linked in, or from an IPAM plugin.

use cni::{
    Attachment, Delegate, DelegateError, Error, Keys, NetResult, PluginType, ValidAttachment, Verb,
    code,
};
use state::boot_id;

use super::Native;

/// Who gives addresses.
pub(crate) enum Source {
    /// The store that is linked in.
    Linked,
    /// A plugin that is executed.
    Executed(PluginType),
}

impl Source {
    /// Who gives addresses by this configuration.
    pub(crate) fn of(conf: Keys<'_>) -> Result<Self, Error> {
        let kind = match conf.object("ipam")? {
            Some(ipam) => Keys::new(ipam, "ipam").text("type")?,
            None => None,
        };
        match kind {
            None | Some("" | "headcni-ipam") => Ok(Self::Linked),
            Some(kind) => PluginType::new("ipam.type", kind).map(Self::Executed),
        }
    }
}

impl Native<'_> {
    /// Leases addresses for an attachment.
    pub(super) fn lease(&self, to: &Attachment) -> Result<NetResult, Error> {
        match self.source()? {
            Source::Linked => self.linked(|ipam| ipam.add(to)),
            Source::Executed(kind) => self.lease_from(&kind, to),
        }
    }

    /// Runs a verb on the linked-in lease store.
    fn linked<T>(
        &self,
        verb: impl FnOnce(ipam::Verbs<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let debug = |text: std::fmt::Arguments<'_>| self.log.note(|| text.to_string());
        let verbs = ipam::Verbs::new(&self.call).boot_id(boot_id());
        verb(verbs.debug(&debug))
    }

    /// Retries like the linked-in store. A DEL in between releases what the failed attempt leased.
    fn lease_from(&self, kind: &PluginType, to: &Attachment) -> Result<NetResult, Error> {
        let plugin = self.plugin(kind);
        let release = |error: DelegateError| {
            if !is_passing(&error) {
                return Err(error);
            }
            self.log
                .warn(format!("{}: retrying", error.into_error().msg));
            self.execute(&plugin, Verb::Del, Some(to))
        };
        ipam::retry(|| self.ask(&plugin, to), release).map_err(DelegateError::into_error)
    }

    /// Releases what an attachment has.
    pub(super) fn release(&self, of: &Attachment) -> Result<(), Error> {
        match self.source()? {
            Source::Linked => self.linked(|ipam| ipam.del(of)),
            Source::Executed(kind) => self.tell(&self.plugin(&kind), Verb::Del, Some(of)),
        }
    }

    /// Fails unless the attachment has what the result of its ADD says.
    pub(super) fn check_lease(&self, of: &Attachment) -> Result<(), Error> {
        match self.source()? {
            Source::Linked => self.linked(|ipam| ipam.check(of)),
            Source::Executed(kind) => self.tell(&self.plugin(&kind), Verb::Check, Some(of)),
        }
    }

    /// Releases what isn't valid.
    pub(super) fn collect_leases(&self, valid: &[ValidAttachment]) -> Result<(), Error> {
        match self.source()? {
            Source::Linked => self.linked(|ipam| ipam.gc(valid)),
            Source::Executed(kind) => self.tell(&self.plugin(&kind), Verb::Gc, None),
        }
    }

    /// Fails if no address could be had.
    pub(super) fn lease_status(&self) -> Result<(), Error> {
        match self.source()? {
            Source::Linked => self.linked(|ipam| ipam.status()),
            Source::Executed(kind) => self.tell(&self.plugin(&kind), Verb::Status, None),
        }
    }

    fn source(&self) -> Result<Source, Error> {
        Source::of(self.keys())
    }

    fn plugin<'b>(&'b self, kind: &'b PluginType) -> Delegate<'b> {
        Delegate {
            kind,
            env: &self.call.env,
            timeout: self.timeout,
        }
    }

    fn ask(&self, plugin: &Delegate<'_>, to: &Attachment) -> Result<NetResult, DelegateError> {
        self.log.step(plugin.kind.as_str(), Verb::Add, || {
            plugin.add(self.call.conf.keys(), self.call.conf.version(), to)
        })
    }

    fn tell(
        &self,
        plugin: &Delegate<'_>,
        verb: Verb,
        of: Option<&Attachment>,
    ) -> Result<(), Error> {
        self.execute(plugin, verb, of)
            .map_err(DelegateError::into_error)
    }

    fn execute(
        &self,
        plugin: &Delegate<'_>,
        verb: Verb,
        of: Option<&Attachment>,
    ) -> Result<(), DelegateError> {
        self.log.step(plugin.kind.as_str(), verb, || {
            plugin.call(verb, self.call.conf.keys(), of)
        })
    }
}

/// Whether a plugin that failed could do better the next time.
fn is_passing(error: &DelegateError) -> bool {
    match error {
        // What it was told is wrong, and stays so.
        DelegateError::Failed { error, .. } => {
            !matches!(error.code, code::INVALID_ENVIRONMENT | code::INVALID_CONFIG)
        }
        DelegateError::Broken { .. } => true,
        _ => false,
    }
}
