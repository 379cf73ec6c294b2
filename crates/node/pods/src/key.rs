//! The identity of an attachment.

use std::fmt;

use api::event::Event;
use cni::{Attachment, CniArgs, ContainerId, IfName, NetworkName};

/// One interface of one container on one network.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub network: NetworkName,
    pub container: ContainerId,
    /// In the container.
    pub ifname: IfName,
}

impl Key {
    /// `None` if a name is invalid.
    pub fn new(network: &str, container: &str, ifname: &str) -> Option<Self> {
        Some(Self {
            network: NetworkName::new(network).ok()?,
            container: ContainerId::new(container).ok()?,
            ifname: IfName::new(ifname).ok()?,
        })
    }

    /// The attachment of an event; `None` if a name is invalid.
    pub fn of(event: &Event) -> Option<Self> {
        /// `NAME_MAX`: the record has that name.
        const MAX_BYTES: usize = 255;
        let names = [&event.network, &event.container];
        if names.iter().any(|name| name.len() > MAX_BYTES) {
            return None;
        }
        Self::new(&event.network, &event.container, &event.ifname)
    }

    /// The name of its managed link on the host.
    pub fn host_link(&self) -> String {
        attachment::link::host_name(&self.container, &self.ifname)
    }

    /// As the record store takes it, without a netns.
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
