//! What has to be done for this node to be a member of the mesh that serves its pods. Nothing is
//! touched here.

use std::fmt;

use ipnet::IpNet;

use node_core::cidr::overlap;

/// How this node's member is to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Desired {
    /// What holds for our own tailscaled only; the host's keeps its own.
    pub own: Option<ManagedPrefs>,
    /// The networks that lead to this node.
    pub routes: Vec<IpNet>,
    /// Those that were ours and are not any more.
    pub former: Vec<IpNet>,
    /// Those of `routes` that the cluster gave to this node, and to no other that it knows of.
    pub assigned: Vec<IpNet>,
    /// Those that have led here before.
    pub served: Vec<IpNet>,
    /// What the server called our own tailscaled, now and before.
    pub numbers: Vec<u64>,
}

/// What our own tailscaled is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagedPrefs {
    /// The server that it joins.
    pub server: String,
    /// Its name in the mesh.
    pub hostname: String,
}

/// How it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// How far it has come.
    pub login: LoginState,
    /// What was set.
    pub prefs: Prefs,
    /// The networks that other members send to it for, by its own word.
    pub serving: Vec<IpNet>,
    /// Other members that packets are sent to for networks, by its own word.
    pub peers: Vec<OtherDevice>,
    /// What the server says.
    pub server: HeadscaleView,
}

/// How far a tailscaled has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginState {
    /// It has to log in, for the first time or again.
    Needed,
    /// An administrator has to let it in.
    Awaited,
    /// It was told to stop.
    Stopped,
    /// It is on its way.
    Starting,
    /// It is a member.
    Running,
}

/// What a tailscaled was told, as far as it is our business.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of tailscaled's"
)]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prefs {
    /// The server that it joins.
    pub server: String,
    /// Its name in the mesh.
    pub hostname: String,
    /// The networks that it advertises.
    pub advertised: Vec<IpNet>,
    /// Whether it sends packets to the networks of others.
    pub accepts_routes: bool,
    /// Whether packets keep their source.
    pub keeps_source: bool,
    /// Whether packets pass that belong to no connection it knows of.
    pub passes_stateless: bool,
    /// Whether it takes the host's DNS over.
    pub takes_dns: bool,
    /// Whether it drops all that others begin.
    pub shields_up: bool,
}

/// What the server says about us and others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeadscaleView {
    /// It was not asked: there is no key to ask with, or it does not answer.
    Unknown,
    /// Its list of members.
    Listed {
        /// This node, if it is in the list.
        own: Option<OwnDevice>,
        /// All others that have or want networks.
        others: Vec<OtherDevice>,
    },
}

/// This node in the server's list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnDevice {
    /// Its number there.
    pub id: u64,
    /// The networks that it advertises, as the server has heard it.
    pub advertised: Vec<IpNet>,
    /// The networks that somebody approved.
    pub approved: Vec<IpNet>,
    /// Those that other members are told of.
    pub serving: Vec<IpNet>,
}

/// Another member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherDevice {
    /// Its number there.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// Whether it has this node's name and our tag, and is offline: it may be what this node was
    /// before it was made anew, or a node of another cluster that is just restarting.
    pub is_namesake: bool,
    /// Whether it has our tag, and has been offline for longer than a restart takes.
    pub is_gone: bool,
    /// The networks that were approved for it, and those that one of our nodes advertises.
    pub routes: Vec<IpNet>,
}

/// Something to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Delete at the server who is gone and has our networks.
    DeleteStaleDevice {
        /// Its number.
        node: u64,
        /// Its name.
        name: String,
    },
    /// Log in, with a key.
    Login(LoginReason),
    /// Connect to the server anew, without a key. It says whether a login is needed, and costs a member
    /// nothing.
    Reconnect(ReconnectReason),
    /// Tell tailscaled otherwise.
    PatchPrefs(PrefsPatch),
    /// Approve networks at the server: this is the whole list.
    ApproveRoutes {
        /// The node's number.
        node: u64,
        /// All its networks.
        routes: Vec<IpNet>,
    },
}

impl Action {
    /// Whether it is to log in.
    pub fn is_login(&self) -> bool {
        matches!(self, Self::Login(_))
    }

    /// Whether it is to delete a node.
    pub fn is_deletion(&self) -> bool {
        matches!(self, Self::DeleteStaleDevice { .. })
    }

    /// Whether it is the server that has to do it.
    pub fn is_servers(&self) -> bool {
        matches!(
            self,
            Self::DeleteStaleDevice { .. } | Self::ApproveRoutes { .. }
        )
    }
}

/// LoginReason a login is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginReason {
    /// It is logged out, or its key has expired.
    LoggedOut,
    /// The server has forgotten the node.
    Forgotten,
    /// It is a member of another server's mesh.
    OtherServer,
}

impl fmt::Display for LoginReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LoggedOut => "tailscaled is logged out",
            Self::Forgotten => "Headscale no longer lists this node",
            Self::OtherServer => "tailscaled uses another control server",
        })
    }
}

/// LoginReason a tailscaled's own word for how it is may be long past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReconnectReason {
    /// It says that it is a member, nobody is heard, and the server's list can't be read.
    PeerLiveness,
    /// It does not get connected though the server answers.
    Stuck,
}

impl fmt::Display for ReconnectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PeerLiveness => "no packets from peers",
            Self::Stuck => "tailscaled does not connect although Headscale answers",
        })
    }
}

/// What tailscaled is told; what is none stays as it is.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of tailscaled's"
)]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrefsPatch {
    /// To run though it was stopped.
    pub run: bool,
    /// Its name.
    pub hostname: Option<String>,
    /// The networks that it advertises.
    pub advertised: Option<Vec<IpNet>>,
    /// To send packets to the networks of others.
    pub accept_routes: bool,
    /// To keep the source of packets.
    pub keep_source: bool,
    /// To let packets pass that belong to no connection it knows of.
    pub pass_stateless: bool,
    /// To leave the host's DNS alone.
    pub leave_dns: bool,
    /// To let in what others begin.
    pub lower_shields: bool,
}

/// Another member that has, or wants, what is ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Our network.
    pub ours: IpNet,
    /// The other's.
    pub theirs: IpNet,
    /// The other.
    pub node: String,
    /// Its number at the server.
    pub id: u64,
}

impl Conflict {
    /// Whether packets come here all the same: the longest prefix wins.
    fn is_by_a_larger_one(&self) -> bool {
        self.theirs.prefix_len() < self.ours.prefix_len()
    }
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            ours, theirs, node, ..
        } = self;
        if ours == theirs {
            write!(f, "{node} also advertises {theirs}")
        } else {
            write!(
                f,
                "{node} advertises {theirs}, which overlaps this node's {ours}"
            )
        }
    }
}

/// Who else has or wants our networks. A host route of another node inside its own network is no
/// conflict with ours, and one inside ours is.
pub fn conflicts(desired: &Desired, observed: &Observed) -> Vec<Conflict> {
    let others = match &observed.server {
        HeadscaleView::Listed { others, .. } => others,
        HeadscaleView::Unknown => &observed.peers,
    };
    let mut found = Vec::new();
    for other in others.iter().filter(|other| !is_left(desired, other)) {
        for theirs in &other.routes {
            // An exit node offers the whole world, and takes nothing from anybody.
            if theirs.prefix_len() == 0 {
                continue;
            }
            let ours = desired.routes.iter().find(|ours| overlap(ours, theirs));
            found.extend(ours.map(|ours| Conflict {
                ours: *ours,
                theirs: *theirs,
                node: other.name.clone(),
                id: other.id,
            }));
        }
    }
    found
}

/// Whether a member is only left over: it was our own tailscaled before, as we remember; or it is gone,
/// and has our name, or the cluster has given its network to this node since. A name alone says
/// nothing of who is there: nodes of two clusters may have one, and networks as well.
fn is_left(desired: &Desired, other: &OtherDevice) -> bool {
    let is_given = |theirs: &IpNet| desired.assigned.iter().any(|ours| ours.contains(theirs));
    let was_ours = other.is_namesake && desired.numbers.contains(&other.id);
    was_ours || other.is_gone && (other.is_namesake || other.routes.iter().any(is_given))
}

/// The networks that may be advertised: one that somebody else has is not, unless it leads here
/// already, or did so first. Two nodes with one network make the server send all packets to one of
/// them. One that is advertised, or was approved before another login, stays though somebody has a
/// larger one: to withdraw it would cost this node's pods their network, and help nobody.
pub fn allowed(desired: &Desired, observed: &Observed) -> Vec<IpNet> {
    let conflicts = conflicts(desired, observed);
    let is_free = |route: &&IpNet| {
        let is_known = observed.prefs.advertised.contains(route) || is_approved(observed, route);
        let mut against = conflicts.iter().filter(|one| one.ours == **route);
        serves(observed, route)
            || was_first(desired, observed, route)
            || against.all(|one| is_known && one.is_by_a_larger_one())
    };
    desired.routes.iter().filter(is_free).copied().collect()
}

/// A list of networks, advertised or approved, with those of ours that it is to have. OtherNodes stay.
pub fn beside(present: &[IpNet], desired: &Desired, observed: &Observed) -> Vec<IpNet> {
    merged(present, desired, &allowed(desired, observed))
}

/// Whether this node had a network before anybody who claims it now: it has led here, and has been
/// advertised and approved ever since. It may not lead here for a moment, as while tailscaled starts;
/// who withdraws it then leaves it to whoever claims it, for good.
fn was_first(desired: &Desired, observed: &Observed, route: &IpNet) -> bool {
    let is_held = observed.server == HeadscaleView::Unknown || is_approved(observed, route);
    is_held && desired.served.contains(route) && observed.prefs.advertised.contains(route)
}

/// Whether somebody approved this network for this node.
fn is_approved(observed: &Observed, route: &IpNet) -> bool {
    match &observed.server {
        HeadscaleView::Listed { own: Some(own), .. } => own.approved.contains(route),
        HeadscaleView::Listed { own: None, .. } | HeadscaleView::Unknown => false,
    }
}

/// Whether packets to this network are sent here.
pub fn serves(observed: &Observed, route: &IpNet) -> bool {
    let by_server = match &observed.server {
        HeadscaleView::Unknown => true,
        HeadscaleView::Listed { own, .. } => {
            let own = own.as_ref();
            own.is_some_and(|own| own.serving.contains(route))
        }
    };
    by_server && observed.login == LoginState::Running && observed.serving.contains(route)
}

/// Whether this member or the server may not have heard what the other said. Headscale does not tell a
/// member what came of its own words until there is other news of it, and without a key nobody else can
/// be asked. And a tailscaled that is told of a network while it connects says both what it was and what
/// it is now, and Headscale keeps what it hears last.
pub fn may_be_unheard(desired: &Desired, observed: &Observed) -> bool {
    let is_unheard = |route: &IpNet| match &observed.server {
        HeadscaleView::Unknown => !observed.serving.contains(route),
        HeadscaleView::Listed { own: None, .. } => false,
        HeadscaleView::Listed { own: Some(own), .. } => {
            let is_served = own.serving.contains(route);
            !own.advertised.contains(route) || (is_served && !observed.serving.contains(route))
        }
    };
    let mut allowed = allowed(desired, observed).into_iter();
    observed.login == LoginState::Running
        && allowed.any(|route| observed.prefs.advertised.contains(&route) && is_unheard(&route))
}

/// What has to be done, in this order.
pub fn plan(desired: &Desired, observed: &Observed) -> Vec<Action> {
    if let Some(own) = &desired.own
        && let Some(why) = needs_login(own, observed)
    {
        return vec![Action::Login(why)];
    }
    let mut actions = left_overs(desired, observed);
    let routes = allowed(desired, observed);
    let edit = edit(desired, observed, &routes);
    if edit != PrefsPatch::default() {
        actions.push(Action::PatchPrefs(edit));
    }
    if let HeadscaleView::Listed { own: Some(own), .. } = &observed.server
        && observed.login == LoginState::Running
    {
        let target = merged(&own.approved, desired, &routes);
        if !same(&own.approved, &target) {
            actions.push(Action::ApproveRoutes {
                node: own.id,
                routes: target,
            });
        }
    }
    actions
}

/// Whoever has our networks still and is only left over.
fn left_overs(desired: &Desired, observed: &Observed) -> Vec<Action> {
    // As long as it is not known which one this node is, it could be one of these.
    let HeadscaleView::Listed {
        own: Some(_),
        others,
    } = &observed.server
    else {
        return Vec::new();
    };
    let is_ours = |theirs: &IpNet| desired.routes.iter().any(|ours| ours.contains(theirs));
    let has_ours = |other: &&OtherDevice| other.routes.iter().any(is_ours);
    let left = others.iter().filter(|other| is_left(desired, other));
    left.filter(has_ours)
        .map(|other| Action::DeleteStaleDevice {
            node: other.id,
            name: other.name.clone(),
        })
        .collect()
}

fn needs_login(own: &ManagedPrefs, observed: &Observed) -> Option<LoginReason> {
    match (observed.login, &observed.server) {
        (LoginState::Needed, _) => Some(LoginReason::LoggedOut),
        (LoginState::Running | LoginState::Stopped, _) if observed.prefs.server != own.server => {
            Some(LoginReason::OtherServer)
        }
        (LoginState::Running, HeadscaleView::Listed { own: None, .. }) => {
            Some(LoginReason::Forgotten)
        }
        _ => None,
    }
}

fn edit(desired: &Desired, observed: &Observed, routes: &[IpNet]) -> PrefsPatch {
    let prefs = &observed.prefs;
    // Whoever is logged out has nothing set, and gets all of it with the login.
    if matches!(observed.login, LoginState::Needed | LoginState::Awaited) {
        return PrefsPatch::default();
    }
    let own = desired.own.as_ref();
    let advertised = merged(&prefs.advertised, desired, routes);
    PrefsPatch {
        run: own.is_some() && observed.login == LoginState::Stopped,
        hostname: own
            .filter(|own| own.hostname != prefs.hostname)
            .map(|own| own.hostname.clone()),
        advertised: (!same(&prefs.advertised, &advertised)).then_some(advertised),
        accept_routes: !prefs.accepts_routes,
        keep_source: !prefs.keeps_source,
        pass_stateless: !prefs.passes_stateless,
        leave_dns: own.is_some() && prefs.takes_dns,
        lower_shields: own.is_some() && prefs.shields_up,
    }
}

/// A list of networks with ours in it, and without those that were ours. OtherNodes stay: they are
/// the user's.
fn merged(present: &[IpNet], desired: &Desired, routes: &[IpNet]) -> Vec<IpNet> {
    let is_ours = |route: &IpNet| desired.former.contains(route) || desired.routes.contains(route);
    let mut merged: Vec<IpNet> = present.iter().filter(|r| !is_ours(r)).copied().collect();
    merged.extend(routes);
    merged.sort();
    merged.dedup();
    merged
}

fn same(one: &[IpNet], other: &[IpNet]) -> bool {
    let has_all = |all: &[IpNet], some: &[IpNet]| some.iter().all(|route| all.contains(route));
    has_all(one, other) && has_all(other, one)
}

#[cfg(test)]
mod tests;
