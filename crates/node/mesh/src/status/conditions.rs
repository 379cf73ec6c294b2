//! What a person is told about the mesh: what holds, and if it doesn't, what to do.

use std::collections::BTreeSet;
use std::time::Duration;

use headscale::ClockSample;
use ipnet::IpNet;
use jiff::{SignedDuration, Timestamp};
use tailscaled::localapi::PeerStatus;

use crate::membership::plan::{
    Conflict, Desired, HeadscaleView, LoginState, Observed, OwnDevice, Prefs, serves,
};
use crate::peers::select::Rejection;
use crate::status::acl::AclPaths;
use node_core::routing::MAX_EXTRA_HOST_ROUTES;
use node_core::text::truncate_list;
use node_core::{NodeFacts, OtherNodes};

/// Keys that expire sooner than this are told of.
pub const SOON: SignedDuration = SignedDuration::from_hours(14 * 24);
/// Clocks that differ by more make certificates and keys invalid too early or too late.
pub const SKEW: Duration = Duration::from_secs(30);

/// Whether something holds, and what there is to say about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionState {
    /// Whether it does.
    pub holds: bool,
    /// What there is to say.
    pub message: String,
}

impl ConditionState {
    /// It does.
    pub fn holds(message: impl Into<String>) -> Self {
        Self {
            holds: true,
            message: message.into(),
        }
    }

    /// It does not.
    pub fn fails(message: impl Into<String>) -> Self {
        Self {
            holds: false,
            message: message.into(),
        }
    }

    /// The same, unless there is more that is wrong.
    #[must_use]
    pub fn and(self, wrong: impl IntoIterator<Item = String>) -> Self {
        let said = (!self.holds).then(|| self.message.clone());
        let mut wrong = wrong.into_iter().peekable();
        if wrong.peek().is_none() {
            return self;
        }
        let all: Vec<String> = said.into_iter().chain(wrong).collect();
        Self::fails(all.join("; "))
    }
}

/// Whether this node is a member of the mesh. `trouble` is what tailscaled says about it.
pub fn joined(
    observed: &Observed,
    is_ours: bool,
    name: &str,
    trouble: &[String],
) -> ConditionState {
    let why = |text: &str| {
        let mut words = vec![text.to_owned()];
        words.extend_from_slice(trouble);
        ConditionState::fails(words.join("; "))
    };
    match (observed.login, is_ours) {
        (LoginState::Running, _)
            if matches!(observed.server, HeadscaleView::Listed { own: None, .. }) =>
        {
            why("Headscale no longer lists this node")
        }
        (LoginState::Running, _) => {
            ConditionState::holds(format!("{name} is connected to {}", observed.prefs.server))
        }
        (LoginState::Needed, true) => why("tailscaled needs to log in"),
        (LoginState::Needed, false) => {
            why("the host's tailscaled is logged out: run \"tailscale up\" on this node")
        }
        (LoginState::Awaited, _) => why("an administrator must authorize this node"),
        (LoginState::Stopped, true) => why("tailscaled is stopped; the daemon sets WantRunning"),
        (LoginState::Stopped, false) => {
            why("the host's tailscaled is stopped: run \"tailscale up\" on this node")
        }
        (LoginState::Starting, _) => why("tailscaled is connecting"),
    }
}

/// Whether packets for this node's pods are sent here.
pub fn served(desired: &Desired, observed: &Observed, conflicts: &[Conflict]) -> ConditionState {
    let missing: Vec<IpNet> = desired
        .routes
        .iter()
        .filter(|route| !serves(observed, route))
        .copied()
        .collect();
    if missing.is_empty() {
        return ConditionState::holds(if desired.routes.is_empty() {
            "this node has no routes to serve".to_owned()
        } else {
            format!("{} served", routes_are(&desired.routes))
        });
    }
    let what = routes_are(&missing);
    if observed.login != LoginState::Running {
        return ConditionState::fails(format!(
            "{what} not served: this node is not connected (see MeshJoined)"
        ));
    }
    if conflicts
        .iter()
        .any(|conflict| missing.contains(&conflict.ours))
    {
        return ConditionState::fails(format!(
            "{what} not served: another node has the same prefix (see PodCIDRUnique)"
        ));
    }
    if !has_all(&observed.prefs.advertised, &missing) {
        return ConditionState::fails(format!("{what} not advertised yet"));
    }
    match &observed.server {
        HeadscaleView::Listed { own: Some(own), .. } if !has_all(&own.advertised, &missing) => {
            ConditionState::fails(format!("{what} advertised but not listed by Headscale yet"))
        }
        HeadscaleView::Listed { own: Some(own), .. } if !has_all(&own.approved, &missing) => {
            // The command sets the whole list.
            let mut all = [own.approved.as_slice(), &missing].concat();
            all.sort();
            all.dedup();
            let all: Vec<String> = all.iter().map(IpNet::to_string).collect();
            let (id, all) = (own.id, all.join(","));
            ConditionState::fails(format!(
                "{what} advertised but not approved; if the daemon has no API key, run \
                 \"headscale nodes approve-routes -i {id} -r {all}\", or add autoApprovers to the policy"
            ))
        }
        HeadscaleView::Listed { .. } => ConditionState::fails(format!(
            "{what} advertised and approved but not primary yet"
        )),
        HeadscaleView::Unknown => ConditionState::fails(format!(
            "{what} advertised but not approved: run \"headscale nodes approve-routes\", add \
             autoApprovers to the policy, or give the daemon an API key"
        )),
    }
}

/// What is wrong with this node's own tags: others send packets only to who has the tag of all nodes.
pub fn untagged(
    observed: &Observed,
    this: &PeerStatus,
    tag: &str,
    is_ours: bool,
) -> Option<String> {
    // Whoever is no member has no tags.
    if observed.login != LoginState::Running || this.tags.iter().any(|it| it == tag) {
        return None;
    }
    let id = this
        .node_id
        .map_or_else(|| "ID".to_owned(), |id| id.to_string());
    // The command sets the whole list.
    let all = [this.tags.as_slice(), &[tag.to_owned()]].concat().join(",");
    let at_server = format!("\"headscale nodes tag -i {id} -t {all}\" on the Headscale server");
    let remedy = if is_ours {
        format!(
            "run {at_server}, and create pre-auth keys with the tag (headscale preauthkeys create \
             --tags {tag})"
        )
    } else {
        format!("run \"tailscale up --advertise-tags={tag}\" on this node, or {at_server}")
    };
    Some(format!(
        "this node lacks {tag} (tailscale.tags), so peers ignore its routes: {remedy}"
    ))
}

/// What is wrong if addresses of pods get no route of their own.
pub fn left_out(addresses: &BTreeSet<IpNet>) -> Option<String> {
    if addresses.is_empty() {
        return None;
    }
    let named = truncate_list(addresses, ", ");
    Some(format!(
        "extra host routes not advertised: {named}: a node advertises at most \
         {MAX_EXTRA_HOST_ROUTES}; let IPAM assign addresses of the node's pod CIDR, or delete some of \
         these pods"
    ))
}

/// What is wrong if tailscaled drops all that other nodes' pods begin.
pub fn shielded(observed: &Observed, is_ours: bool) -> Option<String> {
    if observed.login != LoginState::Running || !observed.prefs.shields_up {
        return None;
    }
    let remedy = if is_ours {
        "the daemon turns it off"
    } else {
        "run \"tailscale set --shields-up=false\" on this node"
    };
    Some(format!(
        "tailscaled drops packets to this node's pods (ShieldsUp): {remedy}"
    ))
}

/// What is wrong if tailscaled has no link that packets of pods could go by.
pub fn linkless(
    observed: &Observed,
    has_tun: Option<bool>,
    has_link: bool,
    is_ours: bool,
) -> Option<String> {
    let is_member = observed.login == LoginState::Running;
    let why = match (has_tun, is_ours) {
        (Some(false), true) => {
            "tailscaled runs without an interface (--tun=userspace-networking): start it with \
             --tun= and the name in tailscale.interface"
        }
        (Some(false), false) => {
            "the host's tailscaled runs without an interface (--tun=userspace-networking): start it \
             with --tun=tailscale0, or set tailscale.mode: daemon"
        }
        _ if has_link => return None,
        _ => {
            "no interface of this node has tailscaled's address: run tailscaled in the host netns, or \
             set tailscale.mode: daemon"
        }
    };
    is_member.then(|| format!("pods cannot send to the tailnet: {why}"))
}

/// What is wrong if no network of another node can be known to be pods': the cluster's are not known for
/// `unknown`, and Kubernetes does not say what other nodes have.
pub fn baseless(unknown: &[IpNet], nodes: Option<&OtherNodes<'_>>) -> Option<String> {
    let is_helped = |net: &IpNet| {
        let has = |of: fn(&NodeFacts) -> &[IpNet]| {
            let mut all = nodes.into_iter().flatten().flat_map(|(_, facts)| of(facts));
            all.any(|one| is_ipv4(one) == is_ipv4(net))
        };
        nodes.is_some() && (has(|facts| &facts.assigned) || !has(|facts| &facts.annotated))
    };
    let families = unknown.iter().filter(|net| !is_helped(net));
    let families = families.map(|net| if is_ipv4(net) { "IPv4" } else { "IPv6" });
    let families = truncate_list(families, " and ");
    (!families.is_empty()).then(|| {
        format!(
            "pods of other nodes are unreachable over {families}, because the cluster CIDR is unknown: \
             set network.podCIDR.base"
        )
    })
}

/// Whether nobody else has what this node has.
pub fn unique(conflicts: &[Conflict], rejected: &[Rejection]) -> ConditionState {
    let words = conflicts.iter().map(Conflict::to_string);
    let words = words.chain(rejected.iter().map(Rejection::to_string));
    let found = truncate_list(words, "; ");
    if found.is_empty() {
        return ConditionState::holds("no peer has this node's routes");
    }
    let mut others: Vec<(u64, &str)> = conflicts.iter().map(|it| (it.id, &*it.node)).collect();
    others.sort_unstable();
    others.dedup();
    let delete = |(id, node): &(u64, &str)| match id {
        0 => format!("\"headscale nodes delete\" ({node})"),
        id => format!("\"headscale nodes delete --identifier {id}\" ({node})"),
    };
    let delete = match others.as_slice() {
        [] => "\"headscale nodes delete\"".to_owned(),
        others => truncate_list(others.iter().map(delete), ", "),
    };
    ConditionState::fails(format!(
        "{found}: give each node its own pod CIDR (network.podCIDR.nodes, or Node.spec.podCIDRs); do \
         not approve pod routes of other machines (headscale nodes approve-routes); delete a node that \
         is gone for good with {delete}"
    ))
}

/// Whether the policy lets pods reach this node's pods. Who lets only a part through means to.
pub fn policy(found: &AclPaths, tag: &str, base: &[IpNet]) -> ConditionState {
    let well = "the policy allows pod traffic";
    if found.blocked.is_empty() && found.partly.is_empty() {
        return ConditionState::holds(well);
    }
    if found.blocked.is_empty() {
        let (from, passing) = (
            truncate_list(&found.partly, ", "),
            truncate_list(&found.passing, "; "),
        );
        return ConditionState::holds(format!("{well}, from {from} only in part: {passing}"));
    }
    let (from, to): (BTreeSet<IpNet>, BTreeSet<IpNet>) = found.blocked.iter().copied().unzip();
    // A node may have networks that are not in the base.
    let blocked = from.iter().chain(&to).copied();
    let all = IpNet::aggregate(&base.iter().copied().chain(blocked).collect());
    let sources: Vec<String> = all.iter().map(|net| format!("\"{net}\"")).collect();
    let targets: Vec<String> = all.iter().map(|net| format!("\"{net}:*\"")).collect();
    let (sources, targets) = (sources.join(","), targets.join(","));
    let (from, to) = (truncate_list(&from, ", "), truncate_list(&to, " and "));
    ConditionState::fails(format!(
        "the policy drops packets from {from} to {to}: it must name the pod CIDRs; \
         add to its acls {{\"action\":\"accept\",\"src\":[\"{tag}\",{sources}],\
         \"dst\":[\"{tag}:*\",{targets}]}}"
    ))
}

/// A key of ours, and when it expires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    /// What it is called, in metrics too.
    pub name: &'static str,
    /// When it expires, if it does.
    pub expires: Option<Timestamp>,
    /// What to do before.
    pub remedy: &'static str,
}

/// Whether no key expires soon.
pub fn credentials(all: &[Credential], now: Timestamp) -> ConditionState {
    let mut told = Vec::new();
    for credential in all {
        let Some(expires) = credential.expires else {
            continue;
        };
        let left = expires.duration_since(now);
        if left < SOON {
            let name = credential.name;
            let when = match left.as_hours() {
                ..0 => format!("the {name} has expired"),
                hours @ 0..72 => format!("the {name} expires in {hours} hours"),
                hours => format!("the {name} expires in {} days", hours / 24),
            };
            told.push(format!("{when}: {}", credential.remedy));
        }
    }
    if told.is_empty() {
        return ConditionState::holds("no key expires within 14 days");
    }
    ConditionState::fails(told.join("; "))
}

/// Whether this node's clock is the server's.
pub fn clock(clock: Option<ClockSample>) -> ConditionState {
    let Some(ahead) = clock.map(|clock| clock.local_ahead()) else {
        return ConditionState::holds("Headscale's clock is not known yet");
    };
    if ahead.unsigned_abs() <= SKEW {
        return ConditionState::holds("this node's clock matches Headscale's");
    }
    let (seconds, side) = (
        ahead.unsigned_abs().as_secs(),
        if ahead.is_negative() {
            "behind"
        } else {
            "ahead of"
        },
    );
    ConditionState::fails(format!(
        "this node's clock is {seconds} seconds {side} Headscale's: run NTP on both, or certificates and \
         keys are rejected"
    ))
}

/// How many of the wanted networks are advertised, approved and served.
pub fn counts(
    desired: &Desired,
    prefs: &Prefs,
    own: Option<&OwnDevice>,
    observed: &Observed,
) -> [usize; 3] {
    let count = |has: &dyn Fn(&IpNet) -> bool| desired.routes.iter().filter(|r| has(r)).count();
    [
        count(&|route| prefs.advertised.contains(route)),
        // Without a word of the server, what is served was approved.
        count(&|route| {
            own.map_or(observed.serving.contains(route), |own| {
                own.approved.contains(route)
            })
        }),
        count(&|route| serves(observed, route)),
    ]
}

fn is_ipv4(net: &IpNet) -> bool {
    net.addr().is_ipv4()
}

fn has_all(all: &[IpNet], some: &[IpNet]) -> bool {
    some.iter().all(|route| all.contains(route))
}

/// `route A is` or `routes A and B are`, to be continued.
fn routes_are(routes: &[IpNet]) -> String {
    let list = truncate_list(routes, " and ");
    match routes {
        [_] => format!("route {list} is"),
        _ => format!("routes {list} are"),
    }
}

#[cfg(test)]
mod tests;
