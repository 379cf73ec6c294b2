//! Which attachment is meant.

use std::fmt;

use api::event::Event;
use cni::{Attachment, CniArgs, ContainerId, IfName, NetworkName};

/// One interface of one container on one network.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The network.
    pub network: NetworkName,
    /// The container.
    pub container: ContainerId,
    /// The interface in the container.
    pub ifname: IfName,
}

impl Key {
    /// The attachment of these names; `None` if there can't be one.
    pub fn new(network: &str, container: &str, ifname: &str) -> Option<Self> {
        Some(Self {
            network: NetworkName::new(network).ok()?,
            container: ContainerId::new(container).ok()?,
            ifname: IfName::new(ifname).ok()?,
        })
    }

    /// The attachment that an event is about; `None` if there can't be one.
    pub fn of(event: &Event) -> Option<Self> {
        /// The longest name that a file can have: there is a record of that name, or was.
        const MAX_BYTES: usize = 255;
        let names = [&event.network, &event.container];
        if names.iter().any(|name| name.len() > MAX_BYTES) {
            return None;
        }
        Self::new(&event.network, &event.container, &event.ifname)
    }

    /// The name of its link on the host, if it has one of ours.
    pub fn host_link(&self) -> String {
        attachment::link::host_name(&self.container, &self.ifname)
    }

    /// As the store of records has it, in no namespace.
    pub fn attachment(&self) -> Attachment {
        Attachment {
            container: self.container.clone(),
            ifname: self.ifname.clone(),
            netns: None,
            args: CniArgs::default(),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            network,
            container,
            ifname,
        } = self;
        write!(
            f,
            "container {container} interface {ifname} of network {network}"
        )
    }
}
