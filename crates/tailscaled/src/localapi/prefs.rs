//! What a tailscaled was told to do, and how to tell it otherwise.

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::lenient::Fields;

/// How much tailscaled does to the host's packet filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetfilterMode {
    /// Nothing, and what is there of any tailscaled in the same network is removed.
    Off,
    /// It has chains, which nobody calls.
    NoDivert,
    /// It has chains, and calls them.
    On,
    /// We have never heard of it.
    Other(u64),
}

impl NetfilterMode {
    fn numbered(number: u64) -> Self {
        match number {
            0 => Self::Off,
            1 => Self::NoDivert,
            2 => Self::On,
            other => Self::Other(other),
        }
    }

    fn number(self) -> u64 {
        match self {
            Self::Off => 0,
            Self::NoDivert => 1,
            Self::On => 2,
            Self::Other(number) => number,
        }
    }
}

/// What a tailscaled was told, as far as we know its words.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one of tailscaled's own switches, and they are independent"
)]
pub struct Prefs {
    /// The server that it joins.
    pub control_url: String,
    /// Whether it is to be a member.
    pub want_running: bool,
    /// Whether somebody logged it out.
    pub logged_out: bool,
    /// Whether it sends packets to the networks of others.
    pub route_all: bool,
    /// Whether it takes the host's DNS over.
    pub corp_dns: bool,
    /// Its name in the mesh; empty for the host's.
    pub hostname: String,
    /// The networks that it advertises.
    pub advertise_routes: Vec<IpNet>,
    /// The tags that it wants.
    pub advertise_tags: Vec<String>,
    /// Whether packets for its networks keep their source.
    pub no_snat: bool,
    /// Whether packets pass that belong to no connection it knows of. None if nobody said.
    pub no_stateful_filtering: Option<bool>,
    /// Whether it drops all that others begin.
    pub shields_up: bool,
    /// What it does to the host's packet filter.
    pub netfilter_mode: NetfilterMode,
    /// Whether it asks Tailscale for updates.
    pub auto_update_check: bool,
    /// Whether it installs them. None if nobody said.
    pub auto_update_apply: Option<bool>,
    /// All of it, in tailscaled's own words, except keys.
    whole: Map<String, Value>,
}

impl Prefs {
    pub(super) fn read(value: &Value) -> Self {
        let prefs = Fields::of(value);
        let mut whole = value.as_object().cloned().unwrap_or_default();
        // What it was given by the server, keys among it. It takes none of that from others.
        whole.remove("Config");
        Self {
            control_url: prefs.text("ControlURL"),
            want_running: prefs.is("WantRunning"),
            logged_out: prefs.is("LoggedOut"),
            route_all: prefs.is("RouteAll"),
            corp_dns: prefs.is("CorpDNS"),
            hostname: prefs.text("Hostname"),
            advertise_routes: prefs.networks("AdvertiseRoutes"),
            advertise_tags: prefs.texts("AdvertiseTags"),
            no_snat: prefs.is("NoSNAT"),
            no_stateful_filtering: prefs.typed("NoStatefulFiltering"),
            shields_up: prefs.is("ShieldsUp"),
            netfilter_mode: NetfilterMode::numbered(prefs.number("NetfilterMode")),
            auto_update_check: prefs.within("AutoUpdate").is("Check"),
            auto_update_apply: prefs.within("AutoUpdate").typed("Apply"),
            whole,
        }
    }

    /// What we change on a host's own tailscaled, to be given back one day.
    pub fn keep(&self) -> KeptPrefs {
        KeptPrefs {
            advertise_routes: self.advertise_routes.clone(),
            route_all: self.route_all,
            no_snat: self.no_snat,
            no_stateful_filtering: self.no_stateful_filtering,
        }
    }
}

/// What was set before we came. It can be written to a file and read again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeptPrefs {
    /// The networks that it advertised.
    pub advertise_routes: Vec<IpNet>,
    /// Whether it sent packets to the networks of others.
    pub route_all: bool,
    /// Whether packets kept their source.
    pub no_snat: bool,
    /// Whether packets passed that belong to no connection. None if nobody had said.
    pub no_stateful_filtering: Option<bool>,
}

impl KeptPrefs {
    /// What has to be said for all to be as it was.
    pub fn restore(&self) -> PrefsEdit {
        PrefsEdit {
            advertise_routes: Some(self.advertise_routes.clone()),
            route_all: Some(self.route_all),
            no_snat: Some(self.no_snat),
            no_stateful_filtering: Some(self.no_stateful_filtering),
            ..PrefsEdit::default()
        }
    }
}

/// What is to be set; the rest stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrefsEdit {
    /// The server to join. Only [`Start`](super::Start) makes use of it.
    pub control_url: Option<String>,
    /// Whether to be a member.
    pub want_running: Option<bool>,
    /// Whether to be logged out.
    pub logged_out: Option<bool>,
    /// Whether to send packets to the networks of others.
    pub route_all: Option<bool>,
    /// Whether to take the host's DNS over.
    pub corp_dns: Option<bool>,
    /// The name in the mesh.
    pub hostname: Option<String>,
    /// The networks to advertise: the whole list.
    pub advertise_routes: Option<Vec<IpNet>>,
    /// The tags to ask for: the whole list.
    pub advertise_tags: Option<Vec<String>>,
    /// Whether packets for our networks keep their source.
    pub no_snat: Option<bool>,
    /// Whether packets pass that belong to no connection; `Some(None)` takes back what was said.
    pub no_stateful_filtering: Option<Option<bool>>,
    /// Whether to drop all that others begin.
    pub shields_up: Option<bool>,
    /// What to do to the host's packet filter.
    pub netfilter_mode: Option<NetfilterMode>,
    /// Whether to ask Tailscale for updates.
    pub auto_update_check: Option<bool>,
}

impl PrefsEdit {
    /// Whether there is nothing to be set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Each value that is to be set, by tailscaled's name.
    fn values(&self) -> Vec<(&'static str, Value)> {
        let all = [
            (
                "ControlURL",
                self.control_url.as_ref().map(|url| json!(url)),
            ),
            ("WantRunning", self.want_running.map(Value::from)),
            ("LoggedOut", self.logged_out.map(Value::from)),
            ("RouteAll", self.route_all.map(Value::from)),
            ("CorpDNS", self.corp_dns.map(Value::from)),
            ("Hostname", self.hostname.as_ref().map(|name| json!(name))),
            (
                "AdvertiseRoutes",
                self.advertise_routes.as_ref().map(|routes| json!(routes)),
            ),
            (
                "AdvertiseTags",
                self.advertise_tags.as_ref().map(|tags| json!(tags)),
            ),
            ("NoSNAT", self.no_snat.map(Value::from)),
            (
                "NoStatefulFiltering",
                self.no_stateful_filtering.map(Value::from),
            ),
            ("ShieldsUp", self.shields_up.map(Value::from)),
            (
                "NetfilterMode",
                self.netfilter_mode.map(|mode| mode.number().into()),
            ),
        ];
        let set = all.into_iter();
        set.filter_map(|(name, value)| Some((name, value?)))
            .collect()
    }

    /// The body of a PATCH: each value with a mark that it is meant.
    pub(super) fn patch(&self) -> Value {
        let mut patch = Map::new();
        for (name, value) in self.values() {
            patch.insert(name.to_owned(), value);
            patch.insert(format!("{name}Set"), true.into());
        }
        if let Some(check) = self.auto_update_check {
            patch.insert("AutoUpdate".to_owned(), json!({ "Check": check }));
            patch.insert("AutoUpdateSet".to_owned(), json!({ "CheckSet": true }));
        }
        patch.into()
    }

    fn apply(&self, whole: &mut Map<String, Value>) {
        for (name, value) in self.values() {
            whole.insert(name.to_owned(), value);
        }
        if let Some(check) = self.auto_update_check {
            let update = whole
                .entry("AutoUpdate")
                .or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(update) = update {
                update.insert("Check".to_owned(), check.into());
            }
        }
    }
}

/// All that a tailscaled is told when it starts. It forgets what it was told before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartPrefs(Map<String, Value>);

impl StartPrefs {
    /// For a tailscaled that is nobody's but ours: a member with a packet filter, which leaves the
    /// host's DNS alone, updates nothing, and otherwise does what `edit` says.
    pub fn fresh(edit: &PrefsEdit) -> Self {
        let mut whole = Map::new();
        let ours = PrefsEdit {
            want_running: Some(true),
            logged_out: Some(false),
            corp_dns: Some(false),
            netfilter_mode: Some(NetfilterMode::On),
            auto_update_check: Some(false),
            ..PrefsEdit::default()
        };
        ours.apply(&mut whole);
        edit.apply(&mut whole);
        Self(whole)
    }

    /// For a tailscaled that others use too: all that it was told before, and what `edit` says.
    pub fn changed(prefs: &Prefs, edit: &PrefsEdit) -> Self {
        let mut whole = prefs.whole.clone();
        let wanted = PrefsEdit {
            want_running: Some(true),
            logged_out: Some(false),
            ..PrefsEdit::default()
        };
        wanted.apply(&mut whole);
        edit.apply(&mut whole);
        Self(whole)
    }

    pub(super) fn value(&self) -> Value {
        self.0.clone().into()
    }
}

#[cfg(test)]
mod tests;
