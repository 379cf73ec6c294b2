//! Executes the plugins of a plan, and undoes what they did.
//!
//! The record is written *before* a plugin is executed. So whatever happens, the record names
//! every plugin that may have made something.

use std::mem::ManuallyDrop;
use std::path::Path;

use api::{SubnetEnv, SubnetEnvError};
use cni::call_log::CallLog;
use cni::{Attachment, Call, Delegate, Error, NetResult, PluginType, Verb, code};
use serde_json::{Map, Value};
use state::netns::{self, Found};
use state::{Held, OWN_TYPE, Progress, Record, RecordedStep, StateError, Store, boot_id};

use crate::conf::Conf;
use crate::delegate::{CompleteError, LoadSubnets};
use crate::native::Native;
use crate::netns::has_interface;
use crate::plan::{Plan, Step, plan};

/// One call, and all that it needs.
pub(crate) struct Run<'a> {
    pub(crate) call: &'a Call,
    pub(crate) conf: &'a Conf,
    pub(crate) log: &'a CallLog<'a>,
}

/// What is on record about an attachment.
pub(crate) enum Known {
    Nothing,
    Record(Box<Record>),
    /// Something, but a power failure tore it.
    Damaged,
}

impl Known {
    /// Whether it is of an ADD that did not come to its end.
    pub(crate) fn is_unfinished(&self) -> bool {
        matches!(self, Self::Record(record) if record.progress == Progress::Started)
    }
}

/// A plugin with the configuration that it is executed with.
#[derive(PartialEq)]
pub(crate) struct Member {
    pub(crate) kind: PluginType,
    pub(crate) conf: Map<String, Value>,
}

impl Run<'_> {
    pub(crate) fn add(&self, to: &Attachment) -> Result<NetResult, Error> {
        let path = to.netns.as_deref();
        let found = path.map_or(Found::Nothing, netns::look);
        if found == Found::SomethingElse {
            return Err(Error::variable(
                "CNI_NETNS",
                format_args!("{:?} is not a network namespace", path.unwrap_or_default()),
            ));
        }
        let prev_result = self.call.conf.prev_result()?;
        // Neither plan nor record is taken apart: the process ends in a moment.
        let plan = ManuallyDrop::new(self.plan().map_err(CompleteError::into_error)?);
        for warning in &plan.warnings {
            self.log.warn(warning.clone());
        }
        for step in &plan.steps {
            self.find_programs(step)?;
        }
        let held = self.store().hold_new(to, self.conf.delegate_timeout)?;
        self.clear_the_way(&held, to)?;
        if let Err(error) = refuse_existing(&plan, prev_result.as_ref(), to) {
            return Err(forgotten(held, error));
        }

        let mut record = ManuallyDrop::new(Record {
            boot: boot_id().to_owned(),
            netns: to.netns.clone(),
            netns_identity: match found {
                Found::Namespace(identity) => Some(identity),
                Found::Nothing | Found::SomethingElse => None,
            },
            args: to.args.as_str().to_owned(),
            progress: Progress::Started,
            steps: Vec::new(),
            result: prev_result,
        });
        match self.run_steps(&plan, &held, &mut record, to) {
            Ok(result) => {
                if plan.steps.iter().all(|step| executed(step).is_none()) {
                    // The process ends in a moment, and its lock with it: nobody else has it.
                    std::mem::forget(held);
                }
                Ok(result)
            }
            Err(error) if is_untouched(&error, &record) => Err(forgotten(held, error)),
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
            let mut result = if step.kind.as_str() == OWN_TYPE {
                let remember = |result: &NetResult| {
                    let mut early = record.clone();
                    early.result = Some(result.clone());
                    held.save(&early).map_err(Error::from)
                };
                self.native(Verb::Add, conf)?.add(to, &remember)?
            } else {
                self.log
                    .step(step.kind.as_str(), Verb::Add, || {
                        self.delegate(&step.kind).add(&conf, version, to)
                    })
                    .map_err(cni::DelegateError::into_error)?
            };
            step.shape.apply(&mut result, to);
            record.result = Some(result);
            record.steps[index].progress = Progress::Done;
        }
        let mut result = record.result.take().unwrap_or_default();
        self.conf.shape.apply(&mut result, to);
        record.result = Some(result.clone());
        record.progress = Progress::Done;
        held.save(record)?;
        self.log.record_ips(&result);
        Ok(result)
    }

    /// Undoes every plugin that was executed; the first error stays the one that is told.
    fn roll_back(&self, error: Error, held: Held, record: &Record, to: &Attachment) -> Error {
        let prev_result = self.recorded_result(record);
        match self.undo(&members(record), prev_result.as_ref(), to) {
            Ok(()) => forgotten(held, error),
            Err(trouble) => error.with_details(&format!(
                "undoing it failed too, DEL or GC will try again: {trouble}"
            )),
        }
    }

    /// Deals with what an earlier ADD for the same container and interface left.
    fn clear_the_way(&self, held: &Held, to: &Attachment) -> Result<(), Error> {
        match self.load(held)? {
            Known::Nothing => Ok(()),
            Known::Record(record) => {
                let is_attached = record.progress == Progress::Done
                    && to
                        .netns
                        .as_deref()
                        .is_some_and(|path| record.is_made_in(path));
                if is_attached {
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
                    .debug(|| "undoing what an earlier ADD left".to_owned());
                let made = record.attachment(to.container.clone(), to.ifname.clone());
                let result = self.recorded_result(&record);
                self.undo(&members(&record), result.as_ref(), &made)
            }
            Known::Damaged => {
                // It may be of an attachment that lives.
                refuse_existing_interface(to)?;
                let leftover = Attachment {
                    netns: None,
                    ..to.clone()
                };
                self.undo(&self.members_without_record(None)?, None, &leftover)
            }
        }
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
        let held = self.store().hold_any(of, self.conf.delegate_timeout)?;
        let known = held
            .as_ref()
            .map_or(Ok(Known::Nothing), |held| self.load(held))?;
        let outcome = self.check_known(&known, prev_result, of);
        match (known, held) {
            // A lock without a record is of no use to anybody.
            (Known::Nothing, Some(held)) => {
                held.remove()?;
                outcome
            }
            _ => outcome,
        }
    }

    fn check_known(
        &self,
        known: &Known,
        prev_result: &Value,
        of: &Attachment,
    ) -> Result<(), Error> {
        if known.is_unfinished() {
            return Err(Error::new(
                code::TRY_AGAIN_LATER,
                format!(
                    "the ADD of container {} did not come to its end",
                    of.container
                ),
            ));
        }
        let members = match known {
            Known::Record(record) => members(record),
            Known::Nothing | Known::Damaged => self.planned().map_err(CompleteError::into_error)?,
        };
        for member in &members {
            self.execute(Verb::Check, member, Some(prev_result), Some(of))?;
        }
        Ok(())
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

    pub(crate) fn execute(
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
        if member.kind.as_str() == OWN_TYPE {
            return self.native(verb, conf)?.call(of);
        }
        self.log
            .step(member.kind.as_str(), verb, || {
                self.delegate(&member.kind).call(verb, &conf, of)
            })
            .map_err(cni::DelegateError::into_error)
    }

    /// A step that is done in this process.
    pub(crate) fn native(&self, verb: Verb, conf: Map<String, Value>) -> Result<Native<'_>, Error> {
        let Conf {
            delegate_timeout,
            data_dir,
            ..
        } = self.conf;
        Native::new(verb, conf, self.call, self.log, *delegate_timeout, data_dir)
    }

    /// Fails unless everything that a step executes is there.
    fn find_programs(&self, step: &Step) -> Result<(), Error> {
        match executed(step) {
            None => Ok(()),
            Some(kind) => self
                .delegate(&kind)
                .find()
                .map(drop)
                .map_err(cni::DelegateError::into_error),
        }
    }

    fn plan(&self) -> Result<Plan, CompleteError> {
        self.plan_with(&|file| self.load_subnets(file))
    }

    pub(crate) fn plan_with(&self, load: LoadSubnets<'_>) -> Result<Plan, CompleteError> {
        for variable in api::subnet_env::KEYS {
            // One that is no text must not be passed over in favour of the file.
            self.call.env.get(variable)?;
        }
        plan(self.call, self.conf, load)
    }

    fn planned(&self) -> Result<Vec<Member>, CompleteError> {
        self.plan().map(into_members)
    }

    fn delegate<'b>(&'b self, kind: &'b PluginType) -> Delegate<'b> {
        Delegate {
            kind,
            env: &self.call.env,
            timeout: self.conf.delegate_timeout,
        }
    }

    pub(crate) fn store(&self) -> Store {
        Store::new(&self.conf.data_dir, self.call.conf.name())
    }

    pub(crate) fn load_subnets(&self, file: &Path) -> Result<SubnetEnv, SubnetEnvError> {
        let variable = |name: &str| self.call.env.get(name).ok().flatten().map(str::to_owned);
        SubnetEnv::load(file, variable)
    }

    /// What is on record, in the version of this call: it may have changed since the ADD, and
    /// what the runtime says of the ADD is in the new one.
    pub(crate) fn load(&self, held: &Held) -> Result<Known, Error> {
        match held.load() {
            Ok(None) => Ok(Known::Nothing),
            Ok(Some(mut record)) => {
                let version = self.call.conf.version().as_str();
                for step in &mut record.steps {
                    step.config.insert("cniVersion".to_owned(), version.into());
                }
                Ok(Known::Record(Box::new(record)))
            }
            Err(error @ StateError::Damaged { .. }) => {
                self.log
                    .warn(format!("{error}: going by the configuration of this call"));
                Ok(Known::Damaged)
            }
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn recorded_result(&self, record: &Record) -> Option<Value> {
        let version = self.call.conf.version();
        record.result.as_ref().map(|result| result.to_json(version))
    }
}

/// The plugins on record, as far as they can be executed again.
pub(crate) fn members(record: &Record) -> Vec<Member> {
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

pub(crate) fn into_members(plan: Plan) -> Vec<Member> {
    plan.steps
        .into_iter()
        .map(|step| Member {
            kind: step.kind,
            conf: step.conf,
        })
        .collect()
}

/// Forgets an attachment that came to nothing; the error is why.
fn forgotten(held: Held, error: Error) -> Error {
    match held.remove() {
        Ok(()) => error,
        Err(trouble) => error.with_details(&format!("undo: {}", Error::from(trouble))),
    }
}

/// The program that a step executes, if it does.
fn executed(step: &Step) -> Option<PluginType> {
    match step.kind.as_str() {
        OWN_TYPE => Native::executed_ipam(&step.conf),
        _ => Some(step.kind.clone()),
    }
}

/// Whether a failed ADD has found what it was to make, and left it alone. Undoing it would harm
/// whoever has it.
fn is_untouched(error: &Error, record: &Record) -> bool {
    error.code == code::ALREADY_ATTACHED
        && matches!(&record.steps[..], [only] if only.kind == OWN_TYPE)
}

/// Refuses an attachment that would harm what is there.
fn refuse_existing(
    plan: &Plan,
    prev_result: Option<&NetResult>,
    to: &Attachment,
) -> Result<(), Error> {
    match plan.steps.first() {
        Some(step) if step.kind.as_str() == OWN_TYPE => Native::refuse_attached(&step.conf, to),
        _ if prev_result.is_some() => Ok(()),
        _ => refuse_existing_interface(to),
    }
}

/// An interface that somebody else made must survive our failing, so we fail before we begin:
/// the undoing of a failed ADD would delete it.
fn refuse_existing_interface(to: &Attachment) -> Result<(), Error> {
    let Some(path) = &to.netns else { return Ok(()) };
    let name = to.ifname.as_str();
    // Every namespace has `lo`, and configuring it is what the loopback plugin does.
    if name == "lo" {
        return Ok(());
    }
    match has_interface(path, name) {
        Ok(Some(true)) => Err(Error::new(
            code::ALREADY_ATTACHED,
            format!("CNI_IFNAME {name} exists already in CNI_NETNS {path}"),
        )),
        Ok(_) => Ok(()),
        Err(error) => Err(Error::io(
            format_args!("come back from CNI_NETNS {path}"),
            &error,
        )),
    }
}
