//! Executes the plugins of a plan: ADD with roll-back, CHECK and STATUS.
//!
//! A step is recorded *before* its plugin is executed, so that the record names every plugin that
//! may have created something.

use std::mem::ManuallyDrop;
use std::path::Path;

use api::{SubnetEnv, SubnetEnvError};
use attachment::netns::{self, NetnsPath};
use attachment::{
    LockedRecord, Progress, Record, RecordError, RecordStore, RecordedPlugin, RecordedStep, boot_id,
};
use cni::call_log::CallLog;
use cni::{Attachment, Call, Delegate, DelegateError, Error, NetResult, PluginType, Verb, code};
use serde_json::Value;

use crate::conf::Conf;
use crate::datapath::{NativeStep, has_interface};
use crate::delegate::{CompleteError, LoadSubnets};
use crate::plan::{Plan, plan};
use crate::result_overrides::ResultOverrides;

/// One call with its configuration and its log.
pub(crate) struct Invocation<'a> {
    pub(crate) call: &'a Call,
    pub(crate) conf: &'a Conf,
    pub(crate) log: &'a CallLog<'a>,
}

/// The record of an attachment, as far as it can be read.
pub(crate) enum RecordState {
    Absent,
    Present(Box<Record>),
    /// Unreadable after a power failure.
    Damaged,
}

impl RecordState {
    /// Whether it is of an ADD that has not ended.
    pub(crate) fn is_unfinished(&self) -> bool {
        matches!(self, Self::Present(record) if record.progress == Progress::Started)
    }
}

impl Invocation<'_> {
    pub(crate) fn add(&self, to: &Attachment) -> Result<NetResult, Error> {
        let path = to.netns.as_deref();
        let found = path.map_or(NetnsPath::Missing, netns::inspect);
        if found == NetnsPath::NotNetns {
            return Err(Error::variable(
                "CNI_NETNS",
                format_args!("{:?} is not a network namespace", path.unwrap_or_default()),
            ));
        }
        let prev_result = self.call.conf.prev_result()?;
        // Plan and record are not dropped: the process ends soon, and freeing memory takes time.
        let plan = ManuallyDrop::new(self.plan().map_err(CompleteError::into_error)?);
        for warning in &plan.warnings {
            self.log.warn(warning.clone());
        }
        for step in &plan.steps {
            self.find_program(&step.plugin)?;
        }
        let locked = self.store().lock_for_add(to, self.conf.delegate_timeout)?;
        self.undo_earlier_add(&locked, to)?;
        if let Err(error) = self.refuse_existing(&plan, prev_result.as_ref(), to) {
            return Err(remove_record(locked, error));
        }

        let mut record = ManuallyDrop::new(Record {
            boot: boot_id().to_owned(),
            netns: to.netns.clone(),
            netns_identity: match found {
                NetnsPath::Netns(id) => Some(id),
                NetnsPath::Missing | NetnsPath::NotNetns => None,
            },
            args: to.args.as_str().to_owned(),
            progress: Progress::Started,
            steps: Vec::new(),
            result: prev_result,
        });
        match self.run_steps(&plan, &locked, &mut record, to) {
            Ok(result) => {
                if plan
                    .steps
                    .iter()
                    .all(|step| program_of(&step.plugin).is_none())
                {
                    // No program has inherited the lock, so that it ends with this process.
                    std::mem::forget(locked);
                }
                Ok(result)
            }
            Err(error) if found_existing_interface(&error, &record) => {
                Err(remove_record(locked, error))
            }
            Err(error) => Err(self.roll_back(error, locked, &record, to)),
        }
    }

    fn run_steps(
        &self,
        plan: &Plan,
        locked: &LockedRecord,
        record: &mut Record,
        to: &Attachment,
    ) -> Result<NetResult, Error> {
        let version = self.call.conf.version();
        for (index, step) in plan.steps.iter().enumerate() {
            record.steps.push(RecordedStep {
                index,
                plugin: step.plugin.clone(),
                progress: Progress::Started,
            });
            if let Err(error) = locked.save(record) {
                // It is not executed, so there is nothing to undo.
                record.steps.pop();
                return Err(error.into());
            }
            let mut result = match &step.plugin {
                RecordedPlugin::Native(conf) => {
                    let save_result = |result: &NetResult| {
                        let mut early = record.clone();
                        early.result = Some(result.clone());
                        locked.save(&early).map_err(Error::from)
                    };
                    self.native(Verb::Add, conf, record.result.clone())
                        .attach(to, &save_result)?
                }
                RecordedPlugin::Delegate { kind, config } => {
                    let mut config = config.clone();
                    if let Some(result) = &record.result {
                        config.insert("prevResult".to_owned(), result.to_json(version));
                    }
                    self.log
                        .step(kind.as_str(), Verb::Add, || {
                            self.delegate(kind).add(&config, version, to)
                        })
                        .map_err(DelegateError::into_error)?
                }
            };
            self.apply_overrides(&step.overrides, &mut result, to)?;
            record.result = Some(result);
            record.steps[index].progress = Progress::Done;
        }
        let mut result = record.result.take().unwrap_or_default();
        self.apply_overrides(&self.conf.overrides, &mut result, to)?;
        record.result = Some(result.clone());
        record.progress = Progress::Done;
        locked.save(record)?;
        self.log.record_ips(&result);
        Ok(result)
    }

    fn apply_overrides(
        &self,
        overrides: &ResultOverrides,
        result: &mut NetResult,
        to: &Attachment,
    ) -> Result<(), Error> {
        overrides.apply_mtu(result, to);
        match &overrides.magic_dns {
            None => Ok(()),
            Some(magic_dns) => self.log.step("dns", Verb::Add, || {
                magic_dns.apply(result);
                Ok(())
            }),
        }
    }

    /// Undoes every executed plugin and returns the error of the ADD.
    fn roll_back(
        &self,
        error: Error,
        locked: LockedRecord,
        record: &Record,
        to: &Attachment,
    ) -> Error {
        let prev_result = self.recorded_result(record);
        match self.undo(&recorded_plugins(record), prev_result.as_ref(), to) {
            Ok(()) => remove_record(locked, error),
            Err(undo) => error.with_details(&format!(
                "the roll-back failed too, DEL or GC will retry it: {undo}"
            )),
        }
    }

    /// Undoes what an earlier ADD for the same container and interface has left.
    fn undo_earlier_add(&self, locked: &LockedRecord, to: &Attachment) -> Result<(), Error> {
        match self.load(locked)? {
            RecordState::Absent => Ok(()),
            RecordState::Present(record) => {
                let is_attached = record.progress == Progress::Done
                    && to
                        .netns
                        .as_deref()
                        .is_some_and(|path| record.was_made_in(path));
                if is_attached {
                    return Err(Error::new(
                        code::ALREADY_ATTACHED,
                        format!(
                            "container {} already has the interface CNI_IFNAME {} of network {}: \
                             DEL it first",
                            to.container,
                            to.ifname,
                            self.call.conf.name()
                        ),
                    ));
                }
                self.log.debug(|| "undoing an earlier ADD".to_owned());
                let earlier = record.attachment(to.container.clone(), to.ifname.clone());
                let result = self.recorded_result(&record);
                self.undo(&recorded_plugins(&record), result.as_ref(), &earlier)
            }
            RecordState::Damaged => {
                // It may be of an attachment that is in use.
                refuse_existing_interface(to)?;
                let earlier = Attachment {
                    netns: None,
                    ..to.clone()
                };
                self.undo(&self.plugins_without_record(None)?, None, &earlier)
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
        let locked = self.store().lock(of, self.conf.delegate_timeout)?;
        let state = locked
            .as_ref()
            .map_or(Ok(RecordState::Absent), |locked| self.load(locked))?;
        let outcome = self.check_recorded(&state, prev_result, of);
        if let (RecordState::Absent, Some(locked)) = (state, locked) {
            locked.remove()?;
        }
        outcome
    }

    fn check_recorded(
        &self,
        state: &RecordState,
        prev_result: &Value,
        of: &Attachment,
    ) -> Result<(), Error> {
        if state.is_unfinished() {
            return Err(Error::new(
                code::TRY_AGAIN_LATER,
                format!("the ADD of container {} has not finished", of.container),
            ));
        }
        let plugins = match state {
            RecordState::Present(record) => recorded_plugins(record),
            RecordState::Absent | RecordState::Damaged => {
                self.planned_plugins().map_err(CompleteError::into_error)?
            }
        };
        for plugin in &plugins {
            self.execute(Verb::Check, plugin, Some(prev_result), Some(of))?;
        }
        Ok(())
    }

    pub(crate) fn status(&self) -> Result<(), Error> {
        let unavailable = |error: Error| Error {
            code: code::NOT_AVAILABLE,
            ..error
        };
        let plugins = self.planned_plugins().map_err(|error| match error {
            CompleteError::Subnets(SubnetEnvError::Absent { .. }) => {
                unavailable(error.into_error())
            }
            error => error.into_error(),
        })?;
        self.store()
            .check_writable()
            .map_err(|error| unavailable(error.into()))?;
        for plugin in &plugins {
            self.execute(Verb::Status, plugin, None, None)?;
        }
        Ok(())
    }

    /// Executes any verb but ADD.
    pub(crate) fn execute(
        &self,
        verb: Verb,
        plugin: &RecordedPlugin,
        prev_result: Option<&Value>,
        of: Option<&Attachment>,
    ) -> Result<(), Error> {
        match plugin {
            RecordedPlugin::Native(conf) => {
                let version = self.call.conf.version();
                let parsed =
                    prev_result.and_then(|json| NetResult::from_json(json.clone(), version).ok());
                self.native(verb, conf, parsed).run(of)
            }
            RecordedPlugin::Delegate { kind, config } => {
                let mut config = config.clone();
                if let Some(result) = prev_result {
                    config.insert("prevResult".to_owned(), result.clone());
                }
                self.log
                    .step(kind.as_str(), verb, || {
                        self.delegate(kind).call(verb, &config, of)
                    })
                    .map_err(DelegateError::into_error)
            }
        }
    }

    pub(crate) fn native<'b>(
        &'b self,
        verb: Verb,
        conf: &'b attachment::NativeConf,
        prev_result: Option<NetResult>,
    ) -> NativeStep<'b> {
        NativeStep {
            call: self.call,
            verb,
            conf,
            prev_result,
            log: self.log,
            timeout: self.conf.delegate_timeout,
            data_dir: &self.conf.data_dir,
        }
    }

    /// Fails unless the program of a step is in `CNI_PATH`.
    fn find_program(&self, plugin: &RecordedPlugin) -> Result<(), Error> {
        match program_of(plugin) {
            None => Ok(()),
            Some(kind) => self
                .delegate(kind)
                .find()
                .map(drop)
                .map_err(DelegateError::into_error),
        }
    }

    fn plan(&self) -> Result<Plan, CompleteError> {
        self.plan_with(&|file| self.load_subnets(file))
    }

    pub(crate) fn plan_with(&self, load: LoadSubnets<'_>) -> Result<Plan, CompleteError> {
        for variable in api::subnet_env::KEYS {
            // A variable that is not UTF-8 is an error; the file must not replace it.
            self.call.env.get(variable)?;
        }
        plan(self.call, self.conf, load)
    }

    fn planned_plugins(&self) -> Result<Vec<RecordedPlugin>, CompleteError> {
        self.plan().map(Plan::into_plugins)
    }

    fn delegate<'b>(&'b self, kind: &'b PluginType) -> Delegate<'b> {
        Delegate {
            kind,
            env: &self.call.env,
            timeout: self.conf.delegate_timeout,
        }
    }

    pub(crate) fn store(&self) -> RecordStore {
        RecordStore::new(&self.conf.data_dir, self.call.conf.name())
    }

    pub(crate) fn load_subnets(&self, file: &Path) -> Result<SubnetEnv, SubnetEnvError> {
        let variable = |name: &str| self.call.env.get(name).ok().flatten().map(str::to_owned);
        SubnetEnv::load(file, variable)
    }

    /// Loads a record. Its configurations get the `cniVersion` of this call, which may be another
    /// one than that of the ADD, because the runtime's `prevResult` has it too.
    pub(crate) fn load(&self, locked: &LockedRecord) -> Result<RecordState, Error> {
        match locked.load() {
            Ok(None) => Ok(RecordState::Absent),
            Ok(Some(mut record)) => {
                let version = self.call.conf.version().as_str();
                for step in &mut record.steps {
                    let config = step.plugin.config_mut();
                    config.insert("cniVersion".to_owned(), version.into());
                }
                Ok(RecordState::Present(Box::new(record)))
            }
            Err(error @ RecordError::Damaged { .. }) => {
                self.log
                    .warn(format!("{error}: using the configuration of this call"));
                Ok(RecordState::Damaged)
            }
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn recorded_result(&self, record: &Record) -> Option<Value> {
        let version = self.call.conf.version();
        record.result.as_ref().map(|result| result.to_json(version))
    }

    /// Refuses an attachment that would damage an existing interface.
    fn refuse_existing(
        &self,
        plan: &Plan,
        prev_result: Option<&NetResult>,
        to: &Attachment,
    ) -> Result<(), Error> {
        match plan.steps.first().map(|step| &step.plugin) {
            Some(RecordedPlugin::Native(conf)) => {
                self.native(Verb::Add, conf, None).refuse_existing(to)
            }
            _ if prev_result.is_some() => Ok(()),
            _ => refuse_existing_interface(to),
        }
    }
}

pub(crate) fn recorded_plugins(record: &Record) -> Vec<RecordedPlugin> {
    let steps = record.steps.iter();
    steps.map(|step| step.plugin.clone()).collect()
}

/// Removes the record of a failed ADD and returns its error.
fn remove_record(locked: LockedRecord, error: Error) -> Error {
    match locked.remove() {
        Ok(()) => error,
        Err(remove) => error.with_details(&format!("roll-back: {}", Error::from(remove))),
    }
}

/// The program that a step executes.
fn program_of(plugin: &RecordedPlugin) -> Option<&PluginType> {
    match plugin {
        RecordedPlugin::Native(conf) => conf.ipam_plugin.as_ref(),
        RecordedPlugin::Delegate { kind, .. } => Some(kind),
    }
}

/// Whether an ADD failed because the interface existed. It is not ours, so it must not be undone.
fn found_existing_interface(error: &Error, record: &Record) -> bool {
    error.code == code::ALREADY_ATTACHED
        && matches!(&record.steps[..], [only] if matches!(only.plugin, RecordedPlugin::Native(_)))
}

/// Fails before anything is executed: the roll-back of a failed ADD would delete an interface that
/// another plugin made.
fn refuse_existing_interface(to: &Attachment) -> Result<(), Error> {
    let Some(path) = &to.netns else { return Ok(()) };
    let name = to.ifname.as_str();
    // Every netns has `lo`, which the loopback plugin configures.
    if name == "lo" {
        return Ok(());
    }
    match has_interface(path, name) {
        Ok(Some(true)) => Err(Error::new(
            code::ALREADY_ATTACHED,
            format!("CNI_IFNAME {name} already exists in CNI_NETNS {path}"),
        )),
        Ok(_) => Ok(()),
        Err(error) => Err(Error::io(
            format_args!("return from CNI_NETNS {path}"),
            &error,
        )),
    }
}
