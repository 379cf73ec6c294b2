//! Executes the plugins of a plan, and undoes what they did.
//!
//! The record is written *before* a plugin is executed. So whatever happens, the record names
//! every plugin that may have made something.

use std::path::Path;

use api::{SubnetEnv, SubnetEnvError};
use calllog::CallLog;
use cni::{
    Attachment, Call, CniArgs, Delegate, Error, NetResult, PluginType, ValidAttachment, Verb, code,
};
use serde_json::{Map, Value};

use crate::conf::{Conf, Mode};
use crate::delegate::{CompleteError, LoadSubnets, subnets_of};
use crate::errors::Errors;
use crate::netns;
use crate::plan::{Plan, plan};
use crate::state::{Held, Progress, Record, RecordedStep, StateError, Store, boot_id};

/// One call, and all that it needs.
pub(crate) struct Run<'a> {
    pub(crate) call: &'a Call,
    pub(crate) conf: &'a Conf,
    pub(crate) log: &'a CallLog<'a>,
}

/// A plugin with the configuration that it is executed with.
struct Member {
    kind: PluginType,
    conf: Map<String, Value>,
}

impl Run<'_> {
    pub(crate) fn add(&self, to: &Attachment) -> Result<NetResult, Error> {
        let prev_result = self.call.conf.prev_result()?;
        let plan = self.plan().map_err(CompleteError::into_error)?;
        for warning in &plan.warnings {
            self.log.warn(warning.clone());
        }
        for step in &plan.steps {
            self.delegate(&step.kind)
                .find()
                .map_err(cni::DelegateError::into_error)?;
        }
        let held = self.store().hold_new(to, self.conf.delegate_timeout)?;
        self.clear_the_way(&held, to)?;
        if prev_result.is_none()
            && let Err(error) = refuse_existing_interface(to)
        {
            return match held.remove() {
                Ok(()) => Err(error),
                Err(trouble) => Err(error.with_details(&Error::from(trouble).to_string())),
            };
        }

        let mut record = Record {
            boot: boot_id(),
            netns: to.netns.clone(),
            netns_identity: to.netns.as_deref().and_then(netns::identity),
            args: to.args.as_str().to_owned(),
            cni_version: self.call.conf.version().to_string(),
            progress: Progress::Started,
            steps: Vec::new(),
            result: prev_result,
        };
        match self.run_steps(&plan, &held, &mut record, to) {
            Ok(result) => Ok(result),
            Err(error) => Err(self.roll_back(error, held, &record, to)),
        }
    }

    fn run_steps(
        &self,
        plan: &Plan,
        held: &Held,
        record: &mut Record,
        to: &Attachment,
    ) -> Result<NetResult, Error> {
        let version = self.call.conf.version();
        for (index, step) in plan.steps.iter().enumerate() {
            record.steps.push(RecordedStep {
                index,
                kind: step.kind.to_string(),
                config: step.conf.clone(),
                progress: Progress::Started,
            });
            if let Err(error) = held.save(record) {
                // It was not executed, so there is nothing of it to undo.
                record.steps.pop();
                return Err(error.into());
            }
            let mut conf = step.conf.clone();
            if let Some(result) = &record.result {
                conf.insert("prevResult".to_owned(), result.to_json(version));
            }
            let mut result = self
                .log
                .step(step.kind.as_str(), Verb::Add, || {
                    self.delegate(&step.kind).add(&conf, version, to)
                })
                .map_err(cni::DelegateError::into_error)?;
            step.shape.apply(&mut result, to);
            record.result = Some(result);
            record.steps[index].progress = Progress::Done;
        }
        let mut result = record.result.take().unwrap_or_default();
        self.conf.shape.apply(&mut result, to);
        record.result = Some(result.clone());
        record.progress = Progress::Done;
        held.save(record)?;
        self.log.gave(&result);
        Ok(result)
    }

    /// Undoes every plugin that was executed; the first error stays the one that is told.
    fn roll_back(&self, error: Error, held: Held, record: &Record, to: &Attachment) -> Error {
        let prev_result = self.recorded_result(record);
        match self.undo(&members(record), prev_result.as_ref(), to) {
            Ok(()) => match held.remove() {
                Ok(()) => error,
                Err(trouble) => error.with_details(&format!("undo: {}", Error::from(trouble))),
            },
            Err(trouble) => error.with_details(&format!(
                "undoing it failed too, DEL or GC will try again: {trouble}"
            )),
        }
    }

    /// Deals with what an earlier ADD for the same container and interface left.
    fn clear_the_way(&self, held: &Held, to: &Attachment) -> Result<(), Error> {
        let Some(record) = self.load(held)? else {
            return Ok(());
        };
        let is_same_namespace = record.netns == to.netns
            && record.netns_identity == to.netns.as_deref().and_then(netns::identity);
        if record.progress == Progress::Done && record.boot == boot_id() && is_same_namespace {
            return Err(Error::new(
                code::ALREADY_ATTACHED,
                format!(
                    "container {} has the interface CNI_IFNAME {} of network {} already: \
                     DEL it first",
                    to.container,
                    to.ifname,
                    self.call.conf.name()
                ),
            ));
        }
        self.log
            .note(|| "undoing what an earlier ADD left".to_owned());
        let leftover = record.attachment(to.container.clone(), to.ifname.clone());
        self.undo(
            &members(&record),
            self.recorded_result(&record).as_ref(),
            &leftover,
        )
    }

    pub(crate) fn del(&self, of: &Attachment) -> Result<(), Error> {
        let held = self.store().hold_existing(of, self.conf.delegate_timeout)?;
        let record = held
            .as_ref()
            .map(|held| self.load(held))
            .transpose()?
            .flatten();
        let stated = self.stated_result();
        let (members, recorded) = match &record {
            Some(record) => (members(record), self.recorded_result(record)),
            None => (self.members_without_record(stated.as_ref())?, None),
        };
        let stated = stated.and(self.call.conf.keys().get("prevResult"));
        self.undo(&members, stated.or(recorded.as_ref()), of)?;
        held.map_or(Ok(()), Held::remove)?;
        Ok(())
    }

    /// What the runtime remembers of the ADD. Nonsense is no reason not to clean up.
    fn stated_result(&self) -> Option<NetResult> {
        self.call.conf.prev_result().unwrap_or_else(|error| {
            self.log.warn(format!("{}: doing without it", error.msg));
            None
        })
    }

    pub(crate) fn check(&self, of: &Attachment) -> Result<(), Error> {
        let Some(prev_result) = self
            .call
            .conf
            .keys()
            .get("prevResult")
            .filter(|v| !v.is_null())
        else {
            return Err(Error::config(
                "prevResult is missing: CHECK compares with it",
            ));
        };
        self.call.conf.prev_result()?;
        let held = self.store().hold_existing(of, self.conf.delegate_timeout)?;
        let record = held
            .as_ref()
            .map(|held| self.load(held))
            .transpose()?
            .flatten();
        let members = match &record {
            Some(record) if record.progress == Progress::Started => {
                return Err(Error::new(
                    code::TRY_AGAIN_LATER,
                    format!(
                        "the ADD of container {} did not come to its end",
                        of.container
                    ),
                ));
            }
            Some(record) => members(record),
            None => self.planned().map_err(CompleteError::into_error)?,
        };
        for member in &members {
            self.execute(Verb::Check, member, Some(prev_result), Some(of))?;
        }
        Ok(())
    }

    pub(crate) fn gc(&self, valid: &[ValidAttachment]) -> Result<(), Error> {
        let store = self.store();
        let mut errors = Errors::default();
        let mut targets = self.members_without_record(None).unwrap_or_else(|error| {
            errors.push(error);
            Vec::new()
        });
        for (container, ifname) in store.attachments()? {
            let is_valid = valid
                .iter()
                .any(|v| v.container_id == container.as_str() && v.ifname == ifname.as_str());
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
        for target in &targets {
            errors.keep(self.execute(Verb::Gc, target, None, None));
        }
        errors.into_result()
    }

    /// Undoes an attachment that is on record and no longer valid.
    fn collect(&self, store: &Store, of: &Attachment) -> Result<(), Error> {
        let Some(held) = store.hold_existing(of, self.conf.delegate_timeout)? else {
            return Ok(());
        };
        if let Some(record) = self.load(&held)? {
            let made = record.attachment(of.container.clone(), of.ifname.clone());
            self.undo(
                &members(&record),
                self.recorded_result(&record).as_ref(),
                &made,
            )?;
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

    pub(crate) fn status(&self) -> Result<(), Error> {
        let unavailable = |error: Error| Error {
            code: code::NOT_AVAILABLE,
            ..error
        };
        let members = self.planned().map_err(|error| match error {
            CompleteError::Subnets(SubnetEnvError::Absent { .. }) => {
                unavailable(error.into_error())
            }
            error => error.into_error(),
        })?;
        self.store()
            .check_writable()
            .map_err(|error| unavailable(error.into()))?;
        for member in &members {
            self.execute(Verb::Status, member, None, None)?;
        }
        Ok(())
    }

    /// Executes DEL of every member, the last one first, whatever the others say.
    fn undo(
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

    fn execute(
        &self,
        verb: Verb,
        member: &Member,
        prev_result: Option<&Value>,
        of: Option<&Attachment>,
    ) -> Result<(), Error> {
        let mut conf = member.conf.clone();
        if let Some(result) = prev_result {
            conf.insert("prevResult".to_owned(), result.clone());
        }
        self.log
            .step(member.kind.as_str(), verb, || {
                self.delegate(&member.kind).call(verb, &conf, of)
            })
            .map_err(cni::DelegateError::into_error)
    }

    fn plan(&self) -> Result<Plan, CompleteError> {
        self.plan_with(&|file| self.load_subnets(file))
    }

    fn plan_with(&self, load: LoadSubnets<'_>) -> Result<Plan, CompleteError> {
        plan(self.call, self.conf, load)
    }

    fn planned(&self) -> Result<Vec<Member>, CompleteError> {
        self.plan().map(into_members)
    }

    /// The members to clean up after when there is no record: as the configuration has them now.
    ///
    /// The subnet file may be gone or torn by now. What the runtime remembers of the ADD stands in
    /// for it; if it remembers nothing, the ADD never came so far as to make something.
    fn members_without_record(&self, result: Option<&NetResult>) -> Result<Vec<Member>, Error> {
        if self.conf.mode == Mode::Native {
            // No ADD in this mode can have made anything yet.
            return Ok(Vec::new());
        }
        let remembered = result.and_then(subnets_of);
        let load = |file: &Path| match (self.load_subnets(file), &remembered) {
            (Err(_), Some(subnets)) => Ok(subnets.clone()),
            (loaded, _) => loaded,
        };
        match self.plan_with(&load) {
            Ok(plan) => Ok(into_members(plan)),
            Err(error @ CompleteError::Subnets(_)) => {
                self.log
                    .note(|| format!("nothing to clean up: {}", error.into_error().msg));
                Ok(Vec::new())
            }
            Err(error) => Err(error.into_error()),
        }
    }

    fn delegate<'b>(&'b self, kind: &'b PluginType) -> Delegate<'b> {
        Delegate {
            kind,
            env: &self.call.env,
            timeout: self.conf.delegate_timeout,
        }
    }

    fn store(&self) -> Store {
        Store::new(&self.conf.data_dir, self.call.conf.name())
    }

    fn load_subnets(&self, file: &Path) -> Result<SubnetEnv, SubnetEnvError> {
        let variable = |name: &str| self.call.env.get(name).ok().flatten().map(str::to_owned);
        SubnetEnv::load(file, variable)
    }

    /// What is on record. A damaged record is as good as none, but worth a warning.
    fn load(&self, held: &Held) -> Result<Option<Record>, Error> {
        match held.load() {
            Ok(record) => Ok(record),
            Err(error @ StateError::Damaged { .. }) => {
                self.log
                    .warn(format!("{error}: going by the configuration of this call"));
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn recorded_result(&self, record: &Record) -> Option<Value> {
        let version = record
            .cni_version
            .parse()
            .unwrap_or(self.call.conf.version());
        record.result.as_ref().map(|result| result.to_json(version))
    }
}

/// The plugins on record, as far as they can be executed again.
fn members(record: &Record) -> Vec<Member> {
    let steps = record.steps.iter();
    steps
        .filter_map(|step| {
            let kind = PluginType::new("type", &step.kind).ok()?;
            Some(Member {
                kind,
                conf: step.config.clone(),
            })
        })
        .collect()
}

fn into_members(plan: Plan) -> Vec<Member> {
    plan.steps
        .into_iter()
        .map(|step| Member {
            kind: step.kind,
            conf: step.conf,
        })
        .collect()
}

/// An interface that somebody else made must survive our failing, so we fail before we begin:
/// the undoing of a failed ADD would delete it.
fn refuse_existing_interface(to: &Attachment) -> Result<(), Error> {
    let Some(path) = &to.netns else { return Ok(()) };
    let name = to.ifname.as_str();
    // Every namespace has `lo`, and configuring it is what the loopback plugin does.
    if name != "lo" && netns::has_interface(path, name) == Some(true) {
        return Err(Error::new(
            code::ALREADY_ATTACHED,
            format!("CNI_IFNAME {name} exists already in CNI_NETNS {path}"),
        ));
    }
    Ok(())
}
