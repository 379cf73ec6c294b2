//! Undoes attachments: DEL for one, GC for all that are no longer valid.
//!
//! What is on record counts; the configuration of the call is for where there is no record.

use std::collections::BTreeSet;
use std::path::Path;

use cni::{Attachment, CniArgs, Error, NetResult, PluginType, ValidAttachment, Verb, code};
use serde_json::Value;
use state::netns::{self, Found, Identity};
use state::{Held, OWN_TYPE, STAMP_VARIABLE, Store};

use crate::delegate::{CompleteError, subnets_of};
use crate::errors::Errors;
use crate::steps::{Known, Member, Run, into_members, members};

impl Run<'_> {
    pub(crate) fn del(&self, of: &Attachment) -> Result<(), Error> {
        let held = self.store().hold_any(of, self.conf.delegate_timeout)?;
        let known = held
            .as_ref()
            .map_or(Ok(Known::Nothing), |held| self.load(held))?;
        let outcome = match self.refuse_changed(held.as_ref(), of) {
            Err(error) if !matches!(known, Known::Nothing) => return Err(error),
            Err(error) => Err(error),
            Ok(()) => self.undo_known(&known, of),
        };
        // What is on record is kept for as long as anything real remains.
        if outcome.is_ok() || matches!(known, Known::Nothing) {
            let forgotten = held.map_or(Ok(()), Held::remove);
            return outcome.and(forgotten.map_err(Error::from));
        }
        outcome
    }

    /// Refuses a DEL for a state of the record that is past: the container may have been attached
    /// anew since somebody looked.
    fn refuse_changed(&self, held: Option<&Held>, of: &Attachment) -> Result<(), Error> {
        let Some(expected) = self.call.env.get(STAMP_VARIABLE)? else {
            return Ok(());
        };
        let stamp = held.map(Held::stamp).transpose()?;
        if stamp.is_some_and(|stamp| stamp.is(expected)) {
            return Ok(());
        }
        Err(Error::new(
            code::TRY_AGAIN_LATER,
            format!(
                "the record of container {} interface {} is not the one that was to be undone",
                of.container, of.ifname
            ),
        ))
    }

    fn undo_known(&self, known: &Known, of: &Attachment) -> Result<(), Error> {
        let stated = self.stated_result();
        let (members, recorded) = match known {
            Known::Record(record) => (members(record), self.recorded_result(record)),
            Known::Nothing | Known::Damaged => {
                (self.members_without_record(stated.as_ref())?, None)
            }
        };
        let mut of = of.clone();
        of.netns = of
            .netns
            .filter(|path| netns::look(path) != Found::SomethingElse);
        if let Known::Record(record) = known {
            // A path that leads to another namespace by now: what is in there isn't ours.
            of.netns = of
                .netns
                .filter(|path| Identity::of(path).is_none() || record.is_made_in(path));
        }
        let stated = stated.and(self.call.conf.keys().get("prevResult"));
        let prev_result = stated.or(recorded.as_ref());
        match self.undo(&members, prev_result, &of) {
            Err(error) if known.is_unfinished() => {
                self.undo_mended(error, &members, prev_result, &of)
            }
            outcome => outcome,
        }
    }

    /// Undoes a failed ADD by the configuration of this call, where that is another one.
    ///
    /// A delegate that refused its configuration from the start refuses it on DEL too. Somebody has
    /// mended it since, and going by the old one would fail for ever.
    fn undo_mended(
        &self,
        error: Error,
        recorded: &[Member],
        prev_result: Option<&Value>,
        of: &Attachment,
    ) -> Result<(), Error> {
        match self.members_without_record(None) {
            Ok(mended) if mended != recorded => {
                self.undo(&mended, prev_result, of).map_err(|_| error)
            }
            _ => Err(error),
        }
    }

    /// What the runtime remembers of the ADD. Nonsense is no reason not to clean up.
    fn stated_result(&self) -> Option<NetResult> {
        self.call.conf.prev_result().unwrap_or_else(|error| {
            self.log.warn(format!("{}: doing without it", error.msg));
            None
        })
    }

    pub(crate) fn gc(&self, valid: &[ValidAttachment]) -> Result<(), Error> {
        let store = self.store();
        let mut errors = Errors::default();
        let mut targets = self.members_without_record(None).unwrap_or_else(|error| {
            errors.push(error);
            Vec::new()
        });
        if let [only] = &targets[..]
            && only.kind.as_str() == OWN_TYPE
        {
            // At once: one by one, each takes 20 ms.
            let step = self.native(Verb::Gc, only.conf.clone());
            errors.keep(step.and_then(|step| step.unlink_invalid()));
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
                errors.keep(self.collect(&store, &of));
            } else if let Some(record) = store.peek(&of) {
                self.add_targets(&mut targets, members(&record));
            }
        }
        store.tidy();
        targets.extend(own_ipam(&targets));
        for target in &targets {
            errors.keep(self.execute(Verb::Gc, target, None, None));
        }
        errors.into_result()
    }

    /// Undoes an attachment that is on record and no longer valid.
    fn collect(&self, store: &Store, of: &Attachment) -> Result<(), Error> {
        let Some(held) = store.hold_any(of, self.conf.delegate_timeout)? else {
            return Ok(());
        };
        match self.load(&held)? {
            Known::Nothing => {}
            Known::Record(record) => {
                let made = record.attachment(of.container.clone(), of.ifname.clone());
                let result = self.recorded_result(&record);
                self.undo(&members(&record), result.as_ref(), &made)?;
            }
            Known::Damaged => self.undo(&self.members_without_record(None)?, None, of)?,
        }
        held.remove()?;
        Ok(())
    }

    /// Adds plugins whose configuration is on record but no longer in the call's own.
    fn add_targets(&self, targets: &mut Vec<Member>, recorded: Vec<Member>) {
        for mut member in recorded {
            // What is said of one pod has no place in a question about all of them.
            for key in ["runtimeConfig", "args"] {
                member.conf.remove(key);
            }
            let of_call = self.call.conf.keys().iter();
            member.conf.extend(
                of_call
                    .filter(|(key, _)| *key == "cniVersion" || key.starts_with("cni.dev/"))
                    .map(|(key, value)| (key.clone(), value.clone())),
            );
            if !targets.iter().any(|target| target.conf == member.conf) {
                targets.push(member);
            }
        }
    }

    /// Executes DEL of every member, the last one first, whatever the others say.
    pub(crate) fn undo(
        &self,
        members: &[Member],
        prev_result: Option<&Value>,
        of: &Attachment,
    ) -> Result<(), Error> {
        let mut errors = Errors::default();
        for member in members.iter().rev() {
            errors.keep(self.execute(Verb::Del, member, prev_result, Some(of)));
        }
        errors.into_result()
    }

    /// The members to clean up after when there is no record: as the configuration has them now.
    ///
    /// The subnet file may be gone or torn by now. What the runtime remembers of the ADD stands in
    /// for it; if it remembers nothing, the ADD never came so far as to make something.
    pub(crate) fn members_without_record(
        &self,
        result: Option<&NetResult>,
    ) -> Result<Vec<Member>, Error> {
        let remembered = result.and_then(subnets_of);
        let load = |file: &Path| match (self.load_subnets(file), &remembered) {
            (Err(_), Some(subnets)) => Ok(subnets.clone()),
            (loaded, _) => loaded,
        };
        match self.plan_with(&load) {
            Ok(plan) => Ok(into_members(plan)),
            Err(error @ CompleteError::Subnets(_)) => {
                self.log
                    .debug(|| format!("nothing to clean up: {}", error.into_error().msg));
                Ok(Vec::new())
            }
            Err(error) => Err(error.into_error()),
        }
    }
}

/// Our own IPAM plugin where a member uses it: no reference plugin passes a GC on to its IPAM.
fn own_ipam(targets: &[Member]) -> Vec<Member> {
    let kind = |target: &Member| {
        // Its addresses are from the store that is linked in.
        if target.kind.as_str() == OWN_TYPE {
            return None;
        }
        let name = target.conf.get("ipam")?.get("type")?.as_str()?;
        PluginType::new("ipam.type", name)
            .ok()
            .filter(|kind| kind.as_str() == "headcni-ipam")
    };
    targets
        .iter()
        .filter_map(|target| {
            Some(Member {
                kind: kind(target)?,
                conf: target.conf.clone(),
            })
        })
        .collect()
}
