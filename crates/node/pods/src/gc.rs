//! Collects left-overs: records by our own plugin's DEL, leases under their store's lock.
//!
//! Everything is looked at once more at the last moment, by whoever has the lock then. A DEL is told
//! which state of the record it is for, so that it can't undo what was made since.

use std::time::Duration;

use attachment::{Record, RecordContent, RecordError, RecordStore, STAMP_VARIABLE, Stamp, boot_id};
use cni::{Attachment, CniArgs, Delegate, DelegateError, Env, PluginType, Verb};
use ipam::{LeaseOwner, LeaseSnapshot, StoreError};
use net::{NetError, Socket};
use serde_json::{Map, Value, json};

use super::key::Key;
use super::netns::MountTable;
use super::orphan_policy::Presence;
use super::paths::PodPaths;

/// How long the plugins of a DEL may take, each.
const STEP_SECONDS: u64 = 20;
/// How long a DEL may take.
const DEADLINE: Duration = Duration::from_mins(1);
/// Where iptables and nft are, if our own environment doesn't say.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What became of a left-over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GcOutcome {
    Deleted,
    /// Somebody works on it, or it is another thing by now.
    Changed,
}

/// Why a left-over could not be collected.
#[derive(Debug, thiserror::Error)]
pub(super) enum GcError {
    /// Its record could not be read or removed.
    #[error(transparent)]
    State(#[from] RecordError),
    /// Its lease could not be read or released.
    #[error(transparent)]
    Leases(#[from] StoreError),
    /// The kernel did not answer.
    #[error(transparent)]
    Net(#[from] NetError),
    /// The plugin failed.
    #[error("DEL by the plugin")]
    Plugin(#[source] DelegateError),
    /// The plugin said that it was done, and something is there all the same.
    #[error("{what} is there after its DEL")]
    Remains {
        /// What is there.
        what: String,
    },
}

/// Undoes an attachment whose record was seen in this state.
///
/// `is_orphan` judges once more, while nobody else can work on the attachment.
pub(super) fn delete_orphan(
    paths: &PodPaths,
    key: &Key,
    stamp: &Stamp,
    is_orphan: impl FnOnce(attachment::Snapshot) -> bool,
) -> Result<GcOutcome, GcError> {
    let store = RecordStore::new(&paths.data_dir, &key.network);
    let of = key.attachment();
    let held = match store.try_lock(&of) {
        Err(RecordError::Busy { .. }) => return Ok(GcOutcome::Changed),
        held => held?,
    };
    let (Some(held), Some(sight)) = (held, store.snapshot(&of)?) else {
        return Ok(GcOutcome::Changed);
    };
    if held.stamp()? != *stamp || sight.stamp != *stamp {
        return Ok(GcOutcome::Changed);
    }
    let record = match &sight.content {
        RecordContent::Empty => None,
        RecordContent::Whole(record) => Some(record.clone()),
        RecordContent::Damaged => return Ok(GcOutcome::Changed),
    };
    if !is_orphan(sight) {
        return Ok(GcOutcome::Changed);
    }
    match record {
        // A record is written before anything is made, so there is nothing to undo.
        None => held.remove()?,
        Some(record) => {
            drop(held);
            if let Err(error) = call_del(paths, key, &record, stamp) {
                // Somebody else was faster, and has made of it what he wanted.
                let now = store.snapshot(&of)?;
                let is_same = now.is_some_and(|now| now.stamp == *stamp);
                return if is_same {
                    Err(error)
                } else {
                    Ok(GcOutcome::Changed)
                };
            }
            verify(paths, &store, key, &record)?;
        }
    }
    Ok(GcOutcome::Deleted)
}

fn call_del(paths: &PodPaths, key: &Key, record: &Record, stamp: &Stamp) -> Result<(), GcError> {
    let kind = PluginType::new("type", attachment::PLUGIN_TYPE)
        .map_err(|error| GcError::Plugin(DelegateError::Path(error)))?;
    let env = environment(paths).with(STAMP_VARIABLE, stamp.to_string());
    let delegate = Delegate {
        kind: &kind,
        env: &env,
        timeout: DEADLINE,
    };
    let is_there = |path: &String| {
        let mounts = MountTable::default();
        mounts.netns_presence(Some(path), record.netns_identity.as_ref()) == Presence::Present
    };
    let of = Attachment {
        netns: record.netns.clone().filter(is_there),
        args: CniArgs::parse(&record.args).unwrap_or_default(),
        ..key.attachment()
    };
    delegate
        .call(Verb::Del, &configuration(key, record), Some(&of))
        .map_err(GcError::Plugin)
}

/// Nothing of our own but what the plugin needs: it may hold secrets.
fn environment(paths: &PodPaths) -> Env {
    let path = std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
    let variables = [
        ("PATH", path),
        ("CNI_PATH", paths.bin_dir.clone().into()),
        ("HEADCNI_DATA_DIR", paths.data_dir.clone().into()),
    ];
    variables.into_iter().collect()
}

/// A configuration by which nothing can be done: the plugin goes by the record, or not at all.
fn configuration(key: &Key, record: &Record) -> Map<String, Value> {
    let recorded = record.steps.first();
    let version = recorded.and_then(|step| step.plugin.config().get("cniVersion"));
    let conf = json!({
        "cniVersion": version.cloned().unwrap_or_else(|| "1.0.0".into()),
        "name": key.network.as_str(),
        "type": attachment::PLUGIN_TYPE,
        "plugins": [],
        "delegate_timeout_seconds": STEP_SECONDS,
    });
    conf.as_object().cloned().unwrap_or_default()
}

/// Fails if something of the attachment is still there.
fn verify(
    paths: &PodPaths,
    store: &RecordStore,
    key: &Key,
    record: &Record,
) -> Result<(), GcError> {
    let remains = |what: String| Err(GcError::Remains { what });
    if store.snapshot(&key.attachment())?.is_some() {
        return remains(format!("the record of {key}"));
    }
    if record.is_native() {
        let name = key.host_link();
        if net::link(&Socket::route()?, &name)?.is_some() {
            return remains(format!("the link {name}"));
        }
    }
    let owner = LeaseOwner::new(&key.container, &key.ifname);
    let leases = paths.lease_store().filter(|_| key.network == paths.network);
    if let Some(leases) = leases {
        for address in record.addresses(&key.ifname) {
            if leases
                .lease_at(address)?
                .is_some_and(|lease| lease.owner == owner)
            {
                return remains(format!("the lease of {address}"));
            }
        }
    }
    Ok(())
}

/// Releases a lease that nothing else is left of, if it is the one that was seen.
pub(super) fn release_orphan(
    paths: &PodPaths,
    key: &Key,
    seen: &[LeaseSnapshot],
) -> Result<GcOutcome, GcError> {
    let Some(store) = paths.lease_store() else {
        return Ok(GcOutcome::Changed);
    };
    let session = match store.with_boot_id(boot_id()).open_existing() {
        Err(StoreError::Busy { .. }) => return Ok(GcOutcome::Changed),
        session => session?,
    };
    let Some(mut session) = session else {
        return Ok(GcOutcome::Changed);
    };
    // An ADD writes its record first. While we have the lease store, it can't get any further.
    let records = RecordStore::new(&paths.data_dir, &key.network);
    let has_link = net::link(&Socket::route()?, &key.host_link())?.is_some();
    if has_link || records.snapshot(&key.attachment())?.is_some() {
        return Ok(GcOutcome::Changed);
    }
    let owner = LeaseOwner::new(&key.container, &key.ifname);
    let is_released = session.release_if_unchanged(&owner, seen)?;
    Ok(if is_released {
        GcOutcome::Deleted
    } else {
        GcOutcome::Changed
    })
}
