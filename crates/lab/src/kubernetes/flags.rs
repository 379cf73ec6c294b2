//! The command lines of the control plane's programs.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use super::certificates::{KeyAndCertificate, TokenKeys};
use super::{PORT, SERVICE_CIDRS};
use crate::scenario::CLUSTER_CIDRS;

/// kube-apiserver refuses to advertise a loopback address. This one is reserved for documentation:
/// <https://www.rfc-editor.org/rfc/rfc5737>
const UNUSED_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

const ETCD: &str = "http://127.0.0.1:2379";
const ETCD_PEER: &str = "http://127.0.0.1:2380";

#[derive(Debug, Clone, Copy)]
pub(super) struct Flags<'s> {
    /// For files of the programs.
    pub(super) dir: &'s Path,
    pub(super) address: IpAddr,
    /// The CA's certificate.
    pub(super) authority: &'s Path,
    /// The API server's certificate.
    pub(super) served: &'s KeyAndCertificate,
    /// The API server's client certificate for kubelets.
    pub(super) admin: &'s KeyAndCertificate,
    pub(super) tokens: &'s TokenKeys,
    /// Kubeconfigs.
    pub(super) controllers: &'s Path,
    pub(super) scheduler: &'s Path,
}

impl Flags<'_> {
    /// A single etcd. Its data need not survive a crash of the machine.
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

    /// With the authorizers of a real cluster.
    pub(super) fn api_server(&self) -> Vec<OsString> {
        let advertised = match self.address {
            address if address.is_loopback() => UNUSED_ADDRESS,
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
            // Node names do not resolve.
            flag("kubelet-preferred-address-types", "InternalIP"),
            flag("service-account-issuer", "https://kubernetes.default.svc"),
            flag("service-account-key-file", &self.tokens.public),
            flag("service-account-signing-key-file", &self.tokens.private),
            flag("service-cluster-ip-range", SERVICE_CIDRS.join(",")),
            flag("authorization-mode", "Node,RBAC"),
            flag("enable-admission-plugins", "NodeRestriction"),
            flag("allow-privileged", "true"),
            flag("profiling", "false"),
        ]
    }

    /// The controllers assign a /24 and a /64 to each Node.
    pub(super) fn controllers(&self) -> Vec<OsString> {
        let pods = CLUSTER_CIDRS.map(|network| network.to_string()).join(",");
        vec![
            flag("kubeconfig", self.controllers),
            flag("bind-address", "127.0.0.1"),
            flag("allocate-node-cidrs", "true"),
            flag("cluster-cidr", pods),
            flag("node-cidr-mask-size-ipv4", "24"),
            flag("node-cidr-mask-size-ipv6", "64"),
            flag("service-cluster-ip-range", SERVICE_CIDRS.join(",")),
            flag("service-account-private-key-file", &self.tokens.private),
            flag("root-ca-file", self.authority),
            flag("use-service-account-credentials", "true"),
            flag("leader-elect", "false"),
            flag("profiling", "false"),
        ]
    }

    pub(super) fn scheduler(&self) -> Vec<OsString> {
        vec![
            flag("kubeconfig", self.scheduler),
            flag("bind-address", "127.0.0.1"),
            flag("leader-elect", "false"),
        ]
    }
}

pub(super) fn flag(name: &str, value: impl Into<OsString>) -> OsString {
    let mut flag = OsString::from(format!("--{name}="));
    flag.push(value.into());
    flag
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_is_one_argument() {
        assert_eq!(flag("data-dir", Path::new("/a b")), "--data-dir=/a b");
    }
}
