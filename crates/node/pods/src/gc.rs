//! Deletes orphans: records with a DEL of our plugin, leases under the lock of their store.
//!
//! The evidence is read again under the lock. A DEL carries the stamp of the record that it is for, so it
//! cannot undo a later ADD.

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

/// For each plugin of a DEL.
const STEP_SECONDS: u64 = 20;
/// For a whole DEL.
const TIMEOUT: Duration = Duration::from_mins(1);
/// For iptables and nft, if our own environment has no PATH.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GcOutcome {
    Deleted,
    /// A CNI call is in progress, or it changed.
    Changed,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum GcError {
    #[error(transparent)]
    State(#[from] RecordError),
    #[error(transparent)]
    Leases(#[from] StoreError),
    #[error(transparent)]
    Net(#[from] NetError),
    #[error("run DEL of the plugin")]
    Plugin(#[source] DelegateError),
    /// DEL succeeded, but something remains.
    #[error("{what} remains after DEL")]
    Remains { what: String },
}

/// Detaches an orphan whose record had this stamp.
///
/// `is_orphan` is called under the lock of the attachment.
pub(super) fn delete_orphan(
    paths: &PodPaths,
    key: &Key,
    stamp: &Stamp,
    is_orphan: impl FnOnce(attachment::Snapshot) -> bool,
) -> Result<GcOutcome, GcError> {
    let store = RecordStore::new(&paths.data_dir, &key.network);
    let of = key.attachment();
    let locked = match store.try_lock(&of) {
        Err(RecordError::Busy { .. }) => return Ok(GcOutcome::Changed),
        locked => locked?,
    };
    let (Some(locked), Some(snapshot)) = (locked, store.snapshot(&of)?) else {
        return Ok(GcOutcome::Changed);
    };
    if locked.stamp()? != *stamp || snapshot.stamp != *stamp {
        return Ok(GcOutcome::Changed);
    }
    let record = match &snapshot.content {
        RecordContent::Empty => None,
        RecordContent::Whole(record) => Some(record.clone()),
        RecordContent::Damaged => return Ok(GcOutcome::Changed),
    };
    if !is_orphan(snapshot) {
        return Ok(GcOutcome::Changed);
    }
    match record {
        // ADD fills the record before its first step, so there is nothing to undo.
        None => locked.remove()?,
        Some(record) => {
            drop(locked);
            if let Err(error) = call_del(paths, key, &record, stamp) {
                // A concurrent CNI call was faster.
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
        timeout: TIMEOUT,
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

/// Our own environment may hold secrets, so the plugin gets only what it needs.
fn environment(paths: &PodPaths) -> Env {
    let path = std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
    let variables = [
        ("PATH", path),
        ("CNI_PATH", paths.bin_dir.clone().into()),
        ("HEADCNI_DATA_DIR", paths.data_dir.clone().into()),
    ];
    variables.into_iter().collect()
}

/// Without plugins, so that DEL can only follow the record.
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

/// Releases an orphaned lease, if it is unchanged.
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
    // ADD writes its record first, and cannot continue while we hold the lock of the lease store.
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
