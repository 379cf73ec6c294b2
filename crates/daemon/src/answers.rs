//! Answers to questions on the socket: what is known, in the words of [`api::messages`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use api::event::EventPod;
use api::messages::{self, Answer, Ask, PodState};
use net::ruleset::LINK_GROUP;
use net::{PROTO_HEADCNI, RouteKind, Socket};
use tokio::sync::watch;

use node_config::Mode;
use node_config::NodeConfig;
use node_core::conditions::Conditions;
use node_podcidr::Discovery;
use node_pods::Pods;

/// Who knows.
#[derive(Clone)]
pub struct Knowledge {
    /// When the daemon began.
    pub began: Instant,
    /// The configuration, and the networks.
    pub node_config: watch::Receiver<NodeConfig>,
    /// How the pod CIDRs were discovered.
    pub discovery: watch::Receiver<Option<Arc<Discovery>>>,
    /// What holds.
    pub conditions: Arc<Conditions>,
    /// The pods.
    pub pods: Arc<Pods>,
}

impl Knowledge {
    /// Answers a question; blocks. An error is a text for a person.
    pub fn answer(&self, ask: Ask) -> Result<Answer, String> {
        match ask {
            Ask::Status => Ok(Answer::Status(Box::new(self.status()))),
            Ask::Pods => Ok(Answer::Pods(self.pods.snapshot())),
            Ask::Leases => self.leases().map(Answer::Leases),
            Ask::Interfaces => self.interfaces().map(Answer::Interfaces),
            Ask::Routes => routes().map(Answer::Routes),
            Ask::PodCidr => Ok(Answer::PodCidr(self.pod_cidr())),
            Ask::Conditions => Ok(Answer::Conditions(self.conditions())),
        }
    }

    fn status(&self) -> messages::Status {
        let node_config = self.node_config.borrow();
        let networks = node_config.pod_cidrs.as_ref();
        let attached = |pod: &&messages::Pod| pod.state == PodState::Attached;
        messages::Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_seconds: self.began.elapsed().as_secs(),
            node_name: node_config.node.to_string(),
            pod_networks: networks.map_or_else(Vec::new, |networks| networks.local.clone()),
            mode: match node_config.config.cni.mode {
                Mode::Native => "native",
                Mode::Bridge => "bridge",
            }
            .to_owned(),
            ready: self.conditions.is_ready(),
            pods: self.pods.snapshot().iter().filter(attached).count() as u64,
            conditions: self.conditions(),
        }
    }

    fn conditions(&self) -> Vec<messages::Condition> {
        let snapshot = self.conditions.snapshot().into_iter();
        snapshot
            .map(|(condition, state)| messages::Condition {
                name: condition.name().to_owned(),
                holds: state.holds,
                required: condition.is_required(),
                message: state.message,
                since_unix_ms: unix_ms(state.since),
            })
            .collect()
    }

    fn leases(&self) -> Result<Vec<messages::Lease>, String> {
        let by_owner: BTreeMap<(String, String), EventPod> = self
            .pods
            .snapshot()
            .into_iter()
            .filter_map(|pod| Some(((pod.container, pod.ifname), pod.pod?)))
            .collect();
        let mut leases = Vec::new();
        for lease in self.pods.leases()? {
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

    fn interfaces(&self) -> Result<Vec<messages::Interface>, String> {
        let mut pods: BTreeMap<String, EventPod> = self
            .pods
            .snapshot()
            .into_iter()
            .filter_map(|pod| Some((pod.host_link?, pod.pod?)))
            .collect();
        let links = route_socket().and_then(|socket| {
            net::links(&socket).map_err(|error| format!("ask the kernel: {error}"))
        })?;
        Ok(links
            .into_iter()
            .filter(|link| link.group == LINK_GROUP)
            .map(|link| messages::Interface {
                pod: pods.remove(&link.name),
                name: link.name,
                index: link.index,
                up: link.is_up,
                mtu_bytes: link.mtu,
                mac: link.mac.map(|mac| mac.to_string()).unwrap_or_default(),
            })
            .collect())
    }

    fn pod_cidr(&self) -> messages::PodCidr {
        let node_config = self.node_config.borrow();
        let mut answer = messages::PodCidr::default();
        if let Some(networks) = &node_config.pod_cidrs {
            answer.local.clone_from(&networks.local);
            answer.base.clone_from(&networks.base);
            answer.source = Some(networks.source.to_string());
        }
        if let Some(discovery) = &*self.discovery.borrow() {
            answer.error = discovery.outcome.as_ref().err().map(ToString::to_string);
            answer.looked = discovery.to_string().lines().map(str::to_owned).collect();
        }
        answer
    }
}

fn routes() -> Result<Vec<messages::Route>, String> {
    let socket = route_socket()?;
    let asked = |error| format!("ask the kernel: {error}");
    let links = net::links(&socket).map_err(asked)?;
    let names: BTreeMap<u32, String> = links
        .into_iter()
        .map(|link| (link.index, link.name))
        .collect();
    let routes = net::routes(&socket).map_err(asked)?;
    Ok(routes
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

fn route_socket() -> Result<Socket, String> {
    Socket::route().map_err(|error| format!("ask the kernel: {error}"))
}

fn unix_ms(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
