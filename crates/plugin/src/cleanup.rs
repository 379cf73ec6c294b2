//! DEL and GC: undo one attachment, or all that are no longer valid.
//!
//! The record decides what to undo. Without one, the configuration of the call does.

use std::collections::BTreeSet;
use std::path::Path;

use attachment::netns::{self, NetnsId, NetnsPath};
use attachment::{LockedRecord, RecordContent, RecordStore, RecordedPlugin, STAMP_VARIABLE};
use cni::{Attachment, CniArgs, Error, NetResult, PluginType, ValidAttachment, Verb, code};
use serde_json::Value;

use crate::delegate::{CompleteError, subnets_of};
use crate::errors::Errors;
use crate::executor::{Invocation, RecordState, recorded_plugins};
use crate::plan::Plan;

impl Invocation<'_> {
    pub(crate) fn del(&self, of: &Attachment) -> Result<(), Error> {
        let locked = self.store().lock(of, self.conf.delegate_timeout)?;
        let state = locked
            .as_ref()
            .map_or(Ok(RecordState::Absent), |locked| self.load(locked))?;
        let outcome = match self.refuse_changed_record(locked.as_ref(), of) {
            Err(error) if !matches!(state, RecordState::Absent) => return Err(error),
            Err(error) => Err(error),
            Ok(()) => self.undo_recorded(&state, of),
        };
        // The record stays until everything is undone.
        if outcome.is_ok() || matches!(state, RecordState::Absent) {
            let removed = locked.map_or(Ok(()), LockedRecord::remove);
            return outcome.and(removed.map_err(Error::from));
        }
        outcome
    }

    /// Refuses a DEL of the daemon if the record has changed since the daemon read it: the
    /// container may have been attached again.
    fn refuse_changed_record(
        &self,
        locked: Option<&LockedRecord>,
        of: &Attachment,
    ) -> Result<(), Error> {
        let Some(expected) = self.call.env.get(STAMP_VARIABLE)? else {
            return Ok(());
        };
        let stamp = locked.map(LockedRecord::stamp).transpose()?;
        if stamp.is_some_and(|stamp| stamp.is(expected)) {
            return Ok(());
        }
        Err(Error::new(
            code::TRY_AGAIN_LATER,
            format!(
                "the record of container {} interface {} has changed since it was read",
                of.container, of.ifname
            ),
        ))
    }

    fn undo_recorded(&self, state: &RecordState, of: &Attachment) -> Result<(), Error> {
        let stated = self.stated_result();
        let (plugins, recorded) = match state {
            RecordState::Present(record) => {
                (recorded_plugins(record), self.recorded_result(record))
            }
            RecordState::Absent | RecordState::Damaged => {
                (self.plugins_without_record(stated.as_ref())?, None)
            }
        };
        let mut of = of.clone();
        of.netns = of
            .netns
            .filter(|path| netns::inspect(path) != NetnsPath::NotNetns);
        if let RecordState::Present(record) = state {
            // The path may lead to another netns by now, which must not be touched.
            of.netns = of
                .netns
                .filter(|path| NetnsId::of(path).is_none() || record.was_made_in(path));
        }
        let stated = stated.and(self.call.conf.keys().get("prevResult"));
        let prev_result = stated.or(recorded.as_ref());
        match self.undo(&plugins, prev_result, &of) {
            Err(error) if state.is_unfinished() => {
                self.undo_with_current_config(error, &plugins, prev_result, &of)
            }
            outcome => outcome,
        }
    }

    /// Undoes a failed ADD with the configuration of this call, if it has changed.
    ///
    /// A delegate that rejected its configuration on ADD rejects it on DEL too, and would do so for
    /// ever after the configuration was fixed.
    fn undo_with_current_config(
        &self,
        error: Error,
        recorded: &[RecordedPlugin],
        prev_result: Option<&Value>,
        of: &Attachment,
    ) -> Result<(), Error> {
        match self.plugins_without_record(None) {
            Ok(current) if current != recorded => {
                self.undo(&current, prev_result, of).map_err(|_| error)
            }
            _ => Err(error),
        }
    }

    /// The `prevResult` of the runtime. Clean-up ignores an invalid one.
    fn stated_result(&self) -> Option<NetResult> {
        self.call.conf.prev_result().unwrap_or_else(|error| {
            self.log.warn(format!("{}: ignoring it", error.msg));
            None
        })
    }

    pub(crate) fn gc(&self, valid: &[ValidAttachment]) -> Result<(), Error> {
        let store = self.store();
        let mut errors = Errors::default();
        let mut targets = self.plugins_without_record(None).unwrap_or_else(|error| {
            errors.push(error);
            Vec::new()
        });
        if let [RecordedPlugin::Native(conf)] = &targets[..] {
            // In one batch: one by one, each takes 20 ms.
            let step = self.native(Verb::Gc, conf, None);
            errors.collect(step.delete_stale_links());
        }
        let attachments = store.attachments().unwrap_or_else(|error| {
            errors.push(error.into());
            Vec::new()
        });
        let valid: BTreeSet<(&str, &str)> = valid
            .iter()
            .map(|v| (v.container_id.as_str(), v.ifname.as_str()))
            .collect();
        for (container, ifname) in attachments {
            let is_valid = valid.contains(&(container.as_str(), ifname.as_str()));
            let of = Attachment {
                container,
                ifname,
                netns: None,
                args: CniArgs::default(),
            };
            if !is_valid {
                errors.collect(self.undo_invalid(&store, &of));
            } else if let Ok(Some(snapshot)) = store.snapshot(&of)
                && let RecordContent::Whole(record) = snapshot.content
            {
                self.add_targets(&mut targets, recorded_plugins(&record));
            }
        }
        store.remove_if_empty();
        targets.extend(own_ipam_plugins(&targets));
        for target in &targets {
            errors.collect(self.execute(Verb::Gc, target, None, None));
        }
        errors.into_result()
    }

    /// Undoes a recorded attachment that is no longer valid.
    fn undo_invalid(&self, store: &RecordStore, of: &Attachment) -> Result<(), Error> {
        let Some(locked) = store.lock(of, self.conf.delegate_timeout)? else {
            return Ok(());
        };
        match self.load(&locked)? {
            RecordState::Absent => {}
            RecordState::Present(record) => {
                let recorded = record.attachment(of.container.clone(), of.ifname.clone());
                let result = self.recorded_result(&record);
                self.undo(&recorded_plugins(&record), result.as_ref(), &recorded)?;
            }
            RecordState::Damaged => self.undo(&self.plugins_without_record(None)?, None, of)?,
        }
        locked.remove()?;
        Ok(())
    }

    /// Adds plugins with a recorded configuration that the call doesn't have any more.
    fn add_targets(&self, targets: &mut Vec<RecordedPlugin>, recorded: Vec<RecordedPlugin>) {
        for mut plugin in recorded {
            let config = plugin.config_mut();
            // These are of one pod, and GC is about all.
            for key in ["runtimeConfig", "args"] {
                config.remove(key);
            }
            let of_call = self.call.conf.keys().iter();
            config.extend(
                of_call
                    .filter(|(key, _)| *key == "cniVersion" || key.starts_with("cni.dev/"))
                    .map(|(key, value)| (key.clone(), value.clone())),
            );
            let is_known = |target: &RecordedPlugin| target.config() == plugin.config();
            if !targets.iter().any(is_known) {
                targets.push(plugin);
            }
        }
    }

    /// Executes DEL of all plugins in reverse order, and continues after errors.
    pub(crate) fn undo(
        &self,
        plugins: &[RecordedPlugin],
        prev_result: Option<&Value>,
        of: &Attachment,
    ) -> Result<(), Error> {
        let mut errors = Errors::default();
        for plugin in plugins.iter().rev() {
            errors.collect(self.execute(Verb::Del, plugin, prev_result, Some(of)));
        }
        errors.into_result()
    }

    /// The plugins to undo without a record: those of the current configuration.
    ///
    /// If the subnet file is missing or invalid, the subnets are those of the runtime's
    /// `prevResult`. Without that, the ADD has created nothing.
    pub(crate) fn plugins_without_record(
        &self,
        result: Option<&NetResult>,
    ) -> Result<Vec<RecordedPlugin>, Error> {
        let of_result = result.and_then(subnets_of);
        let load = |file: &Path| match (self.load_subnets(file), &of_result) {
            (Err(_), Some(subnets)) => Ok(subnets.clone()),
            (loaded, _) => loaded,
        };
        match self.plan_with(&load) {
            Ok(plan) => Ok(Plan::into_plugins(plan)),
            Err(error @ CompleteError::Subnets(_)) => {
                self.log
                    .debug(|| format!("nothing to clean up: {}", error.into_error().msg));
                Ok(Vec::new())
            }
            Err(error) => Err(error.into_error()),
        }
    }
}

/// The plugin `headcni-ipam`, where a delegate uses it: no reference plugin forwards GC to IPAM.
fn own_ipam_plugins(targets: &[RecordedPlugin]) -> Vec<RecordedPlugin> {
    let own_ipam = |target: &RecordedPlugin| {
        let RecordedPlugin::Delegate { config, .. } = target else {
            // The native datapath does it itself.
            return None;
        };
        let name = config.get("ipam")?.get("type")?.as_str()?;
        let kind = PluginType::new("ipam.type", name).ok()?;
        (kind.as_str() == "headcni-ipam").then(|| RecordedPlugin::Delegate {
            kind,
            config: config.clone(),
        })
    };
    targets.iter().filter_map(own_ipam).collect()
}
