//! Records of CNI attachments: the plugin writes one per attachment, plugin and daemon read them.
//!
//! [`RecordStore`] holds one [`Record`] per attachment, [`LockedRecord`] is exclusive access to one.
//! [`link`] derives link names and aliases from the names of an attachment. The crate is
//! synchronous and only touches files.

#![allow(missing_docs, reason = "not a library for others")]

pub mod link;
#[cfg(target_os = "linux")]
mod native_conf;
pub mod netns;
#[cfg(target_os = "linux")]
mod port_mappings;
mod record;
mod store;

#[cfg(target_os = "linux")]
pub use native_conf::{NativeConf, RateLimit};
#[cfg(target_os = "linux")]
pub use port_mappings::PortMappings;
pub use record::{
    PLUGIN_TYPE, Progress, Record, RecordedPlugin, RecordedStep, addresses_in, boot_id,
};
pub use store::{
    LockedRecord, RecordContent, RecordError, RecordStore, STAMP_VARIABLE, Snapshot, Stamp,
    for_each_unlocked, networks,
};
