//! What is on record about an attachment.

use std::sync::OnceLock;

use cni::{Attachment, CniArgs, ContainerId, IfName, NetResult};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::netns::Identity;

/// What is known about an attachment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The kernel's boot that it was made in.
    pub(crate) boot: String,
    /// The namespace's path, and what was behind it.
    pub(crate) netns: Option<String>,
    pub(crate) netns_identity: Option<Identity>,
    /// `CNI_ARGS` of the ADD.
    pub(crate) args: String,
    /// Whether the ADD came to its end.
    pub(crate) progress: Progress,
    /// Every plugin that was executed, in order.
    pub(crate) steps: Vec<RecordedStep>,
    /// The newest result, in the form of version 1.1.0.
    pub(crate) result: Option<NetResult>,
}

/// A plugin that was executed, or is about to be.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RecordedStep {
    pub(crate) index: usize,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) config: Map<String, Value>,
    pub(crate) progress: Progress,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Progress {
    Started,
    Done,
}

impl Record {
    /// The attachment as it was made; the namespace only if it is still the same one.
    pub(crate) fn attachment(&self, container: ContainerId, ifname: IfName) -> Attachment {
        Attachment {
            container,
            ifname,
            netns: self.netns.clone().filter(|path| self.is_made_in(path)),
            args: CniArgs::parse(&self.args).unwrap_or_default(),
        }
    }

    /// Whether the namespace at `path` is the one that the attachment was made in.
    pub(crate) fn is_made_in(&self, path: &str) -> bool {
        let now = Identity::of(path);
        let is_same = match (&now, &self.netns_identity) {
            (Some(now), Some(then)) => now.may_be(then),
            // There was no file then and there is none now: a name is all that there is.
            (None, None) => self.netns.as_deref() == Some(path),
            _ => false,
        };
        is_same && self.boot == boot_id()
    }
}

/// The newest state of a record: a line that was cut off says nothing.
pub(super) fn last_whole_line(bytes: &[u8]) -> Option<Record> {
    let mut lines = bytes.rsplit(|byte| *byte == b'\n');
    lines.find_map(|line| serde_json::from_slice(line).ok())
}

/// This boot of the kernel; empty where the system does not tell.
pub(crate) fn boot_id() -> &'static str {
    static ID: OnceLock<String> = OnceLock::new();
    ID.get_or_init(|| {
        #[cfg(target_os = "linux")]
        let id = net::sysctl::boot_id();
        #[cfg(not(target_os = "linux"))]
        let id = None;
        id.unwrap_or_default()
    })
}
