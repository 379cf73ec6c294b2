//! Who has an address.

use std::fmt;

use cni::{ContainerId, IfName};

/// A container's interface, as host-local's files name it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    container: String,
    /// Absent in files of host-local before version 0.7.
    ifname: Option<String>,
}

impl Owner {
    /// The owner that a call is about.
    pub fn new(container: &ContainerId, ifname: &IfName) -> Self {
        Self {
            container: container.to_string(),
            ifname: Some(ifname.to_string()),
        }
    }

    /// The container's id.
    pub fn container(&self) -> &str {
        &self.container
    }

    /// The interface's name, if it is known.
    pub fn ifname(&self) -> Option<&str> {
        self.ifname.as_deref()
    }

    /// The same container, whichever its interface: how old files name it.
    pub(super) fn without_ifname(&self) -> Self {
        Self {
            container: self.container.clone(),
            ifname: None,
        }
    }

    /// What stands in an address' file.
    pub(super) fn to_text(&self) -> String {
        match &self.ifname {
            Some(ifname) => format!("{}\r\n{ifname}", self.container),
            None => self.container.clone(),
        }
    }

    /// Reads an address' file; `None` if it is torn.
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

    /// The name of its record; `None` if no call can ever be about such an owner.
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

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "container {}", self.container)?;
        match &self.ifname {
            Some(ifname) => write!(f, " interface {ifname}"),
            None => Ok(()),
        }
    }
}
