//! The answers to GET requests, from what the daemon and the kernel know.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use api::event::EventPod;
use api::messages::{self, PodState};
use net::{PROTO_HEADCNI, RouteKind, Socket};
use ruleset::LINK_GROUP;
use tokio::sync::watch;

use node_config::{Mode, NodeConfig};
use node_core::conditions::Conditions;
use node_podcidr::Discovery;
use node_pods::Pods;

/// Why a query has no answer.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    #[error("query the kernel")]
    Kernel(#[from] net::NetError),
    #[error("read leases: {0}")]
    Leases(String),
}

/// The state that queries read. Methods block.
#[derive(Clone)]
pub struct Queries {
    pub started: Instant,
    pub node_config: watch::Receiver<NodeConfig>,
    pub discovery: watch::Receiver<Option<Arc<Discovery>>>,
    pub conditions: Arc<Conditions>,
    pub pods: Arc<Pods>,
}

impl Queries {
    pub(super) fn status(&self) -> messages::Status {
        let node_config = self.node_config.borrow();
        let pod_cidrs = node_config.pod_cidrs.as_ref();
        let is_attached = |pod: &&messages::Pod| pod.state == PodState::Attached;
        messages::Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_seconds: self.started.elapsed().as_secs(),
            node_name: node_config.node.to_string(),
            pod_cidrs: pod_cidrs.map_or_else(Vec::new, |pod_cidrs| pod_cidrs.local.clone()),
            mode: match node_config.config.cni.mode {
                Mode::Native => "native",
                Mode::Bridge => "bridge",
            }
            .to_owned(),
            ready: self.conditions.is_ready(),
            pods: self.pods.snapshot().iter().filter(is_attached).count() as u64,
            conditions: self.conditions(),
        }
    }

    pub(super) fn pods(&self) -> Vec<messages::Pod> {
        self.pods.snapshot()
    }

    pub(super) fn conditions(&self) -> Vec<messages::Condition> {
        self.conditions.readiness().conditions
    }

    pub(super) fn leases(&self) -> Result<Vec<messages::Lease>, QueryError> {
        let by_owner: BTreeMap<(String, String), EventPod> = self
            .pods
            .snapshot()
            .into_iter()
            .filter_map(|pod| Some(((pod.container, pod.ifname), pod.pod?)))
            .collect();
        let mut leases = Vec::new();
        for lease in self.pods.leases().map_err(QueryError::Leases)? {
            let container = lease.owner.container().to_owned();
            let ifname = lease.owner.ifname().map(str::to_owned);
            let owner = (container.clone(), ifname.clone().unwrap_or_default());
            leases.push(messages::Lease {
                ip: lease.address,
                container,
                ifname,
                pod: by_owner.get(&owner).cloned(),
            });
        }
        leases.sort_by_key(|lease| lease.ip);
        Ok(leases)
    }

    pub(super) fn interfaces(&self) -> Result<Vec<messages::Interface>, QueryError> {
        let mut pods: BTreeMap<String, EventPod> = self
            .pods
            .snapshot()
            .into_iter()
            .filter_map(|pod| Some((pod.host_link?, pod.pod?)))
            .collect();
        let links = net::links(&Socket::route()?)?;
        Ok(links
            .into_iter()
            .filter(|link| link.group == LINK_GROUP)
            .map(|link| messages::Interface {
                pod: pods.remove(&link.name),
                name: link.name,
                index: link.index,
                up: link.is_up,
                mtu: link.mtu,
                mac: link.mac.map(|mac| mac.to_string()).unwrap_or_default(),
            })
            .collect())
    }

    pub(super) fn pod_cidr(&self) -> messages::PodCidr {
        let mut answer = messages::PodCidr::default();
        if let Some(pod_cidrs) = &self.node_config.borrow().pod_cidrs {
            answer.local.clone_from(&pod_cidrs.local);
            answer.base.clone_from(&pod_cidrs.base);
            answer.source = Some(pod_cidrs.source.to_string());
        }
        if let Some(discovery) = self.discovery.borrow().as_ref() {
            answer.error = discovery.outcome.as_ref().err().map(ToString::to_string);
            answer.tried = discovery.to_string().lines().map(str::to_owned).collect();
        }
        answer
    }

    pub(super) fn routes() -> Result<Vec<messages::Route>, QueryError> {
        let socket = Socket::route()?;
        let names: BTreeMap<u32, String> = net::links(&socket)?
            .into_iter()
            .map(|link| (link.index, link.name))
            .collect();
        Ok(net::routes(&socket)?
            .into_iter()
            .filter(|route| route.protocol == PROTO_HEADCNI)
            .map(|route| {
                let (dev, kind) = match route.kind {
                    RouteKind::Via { link, .. } => {
                        (names.get(&link).cloned(), messages::RouteKind::Unicast)
                    }
                    RouteKind::Unreachable => (None, messages::RouteKind::Unreachable),
                    RouteKind::Local { .. } => (None, messages::RouteKind::Other),
                };
                messages::Route {
                    dst: route.dst,
                    dev,
                    table: route.table,
                    kind,
                }
            })
            .collect())
    }
}
