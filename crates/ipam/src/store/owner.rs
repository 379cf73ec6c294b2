//! The owner of an address.

use std::fmt;

use cni::{ContainerId, IfName};

/// A container's interface, as address files name it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseOwner {
    container: String,
    /// `None` in files of host-local before 0.7.
    ifname: Option<String>,
}

impl LeaseOwner {
    /// The owner for a CNI attachment.
    pub fn new(container: &ContainerId, ifname: &IfName) -> Self {
        Self {
            container: container.to_string(),
            ifname: Some(ifname.to_string()),
        }
    }

    /// The container ID.
    pub fn container(&self) -> &str {
        &self.container
    }

    /// The interface name, if the file has one.
    pub fn ifname(&self) -> Option<&str> {
        self.ifname.as_deref()
    }

    /// The owner as old versions of host-local write it.
    pub(super) fn without_ifname(&self) -> Self {
        Self {
            container: self.container.clone(),
            ifname: None,
        }
    }

    /// The content of an address file.
    pub(super) fn to_text(&self) -> String {
        match &self.ifname {
            Some(ifname) => format!("{}\r\n{ifname}", self.container),
            None => self.container.clone(),
        }
    }

    /// Parses an address file; `None` if it is torn.
    pub(super) fn from_text(text: &str) -> Option<Self> {
        let text = text.trim();
        let (container, ifname) = match text.split_once("\r\n") {
            Some((container, ifname)) => (container, Some(ifname.to_owned())),
            None => (text, None),
        };
        (!container.is_empty()).then(|| Self {
            container: container.to_owned(),
            ifname,
        })
    }

    /// The file name of its record; `None` if it is no valid attachment.
    pub(super) fn file_name(&self) -> Option<String> {
        const MAX_BYTES: usize = 255;
        ContainerId::new(&self.container).ok()?;
        if let Some(ifname) = &self.ifname {
            IfName::new(ifname).ok()?;
        }
        let name = format!(
            "{}@{}",
            self.container,
            self.ifname.as_deref().unwrap_or_default()
        );
        (name.len() <= MAX_BYTES).then_some(name)
    }
}

impl fmt::Display for LeaseOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "container {}", self.container)?;
        match &self.ifname {
            Some(ifname) => write!(f, " interface {ifname}"),
            None => Ok(()),
        }
    }
}
