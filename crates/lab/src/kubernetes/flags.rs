//! The command lines of the control plane's programs.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use super::certificates::{Certified, TokenKeys};
use super::{PORT, SERVICE_NETWORKS};
use crate::cluster::POD_NETWORKS;

/// The API server is to tell others a way to itself that is not of `lo`. Where there is none, it tells
/// this, which is nobody's: <https://www.rfc-editor.org/rfc/rfc5737>
const NOBODY: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

const ETCD: &str = "http://127.0.0.1:2379";
const ETCD_PEER: &str = "http://127.0.0.1:2380";

/// All that the command lines depend on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setting<'s> {
    /// Where files of the programs' own go.
    pub(super) dir: &'s Path,
    /// Where others reach the API server.
    pub(super) address: IpAddr,
    /// The certificate of the authority.
    pub(super) authority: &'s Path,
    /// What the API server shows to those who call it.
    pub(super) served: &'s Certified,
    /// What it shows to kubelets.
    pub(super) admin: &'s Certified,
    /// For tokens of `ServiceAccounts`.
    pub(super) tokens: &'s TokenKeys,
    /// The kubeconfig of the controller manager.
    pub(super) controllers: &'s Path,
    /// That of the scheduler.
    pub(super) scheduler: &'s Path,
}

impl Setting<'_> {
    /// etcd, alone. What it knows need not survive the machine.
    pub(super) fn etcd(&self) -> Vec<OsString> {
        let cluster = format!("default={ETCD_PEER}");
        vec![
            flag("data-dir", self.dir.join("etcd")),
            "--unsafe-no-fsync".into(),
            flag("listen-client-urls", ETCD),
            flag("advertise-client-urls", ETCD),
            flag("listen-peer-urls", ETCD_PEER),
            flag("initial-advertise-peer-urls", ETCD_PEER),
            flag("initial-cluster", cluster),
        ]
    }

    /// The API server, with the rights of a real cluster: nodes have their own, all others roles.
    pub(super) fn api_server(&self) -> Vec<OsString> {
        let advertised = match self.address {
            address if address.is_loopback() => NOBODY,
            address => address,
        };
        vec![
            flag("etcd-servers", ETCD),
            flag("bind-address", "::"),
            flag("secure-port", PORT.to_string()),
            flag("advertise-address", advertised.to_string()),
            flag("tls-cert-file", &self.served.certificate),
            flag("tls-private-key-file", &self.served.key),
            flag("client-ca-file", self.authority),
            flag("kubelet-client-certificate", &self.admin.certificate),
            flag("kubelet-client-key", &self.admin.key),
            // No DNS knows the nodes' names.
            flag("kubelet-preferred-address-types", "InternalIP"),
            flag("service-account-issuer", "https://kubernetes.default.svc"),
            flag("service-account-key-file", &self.tokens.public),
            flag("service-account-signing-key-file", &self.tokens.private),
            flag("service-cluster-ip-range", SERVICE_NETWORKS.join(",")),
            flag("authorization-mode", "Node,RBAC"),
            flag("enable-admission-plugins", "NodeRestriction"),
            flag("allow-privileged", "true"),
            flag("profiling", "false"),
        ]
    }

    /// The controller manager, which gives each Node a /24 and a /64.
    pub(super) fn controllers(&self) -> Vec<OsString> {
        let pods = POD_NETWORKS.map(|network| network.to_string()).join(",");
        vec![
            flag("kubeconfig", self.controllers),
            flag("bind-address", "127.0.0.1"),
            flag("allocate-node-cidrs", "true"),
            flag("cluster-cidr", pods),
            flag("node-cidr-mask-size-ipv4", "24"),
            flag("node-cidr-mask-size-ipv6", "64"),
            flag("service-cluster-ip-range", SERVICE_NETWORKS.join(",")),
            flag("service-account-private-key-file", &self.tokens.private),
            flag("root-ca-file", self.authority),
            flag("use-service-account-credentials", "true"),
            flag("leader-elect", "false"),
            flag("profiling", "false"),
        ]
    }

    /// The scheduler.
    pub(super) fn scheduler(&self) -> Vec<OsString> {
        vec![
            flag("kubeconfig", self.scheduler),
            flag("bind-address", "127.0.0.1"),
            flag("leader-elect", "false"),
        ]
    }
}

/// One word of a command line.
pub(super) fn flag(name: &str, value: impl Into<OsString>) -> OsString {
    let mut flag = OsString::from(format!("--{name}="));
    flag.push(value.into());
    flag
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_is_one_word() {
        assert_eq!(flag("data-dir", Path::new("/a b")), "--data-dir=/a b");
    }
}
