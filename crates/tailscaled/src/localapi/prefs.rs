//! tailscaled's prefs: reading, changing, and the full set for a login.

use ipnet::IpNet;
use serde_json::{Map, Value, json};

use super::lenient::LenientObject;

/// What tailscaled does to the host's packet filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetfilterMode {
    /// Also removes the chains of any other tailscaled in the same netns.
    Off,
    /// Has chains without jumps to them.
    NoDivert,
    On,
    /// Unknown to this version of headcni.
    Other(u64),
}

impl NetfilterMode {
    fn from_number(number: u64) -> Self {
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

/// The prefs that headcni knows.
///
/// <https://pkg.go.dev/tailscale.com/ipn#Prefs>
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent switches of ipn.Prefs"
)]
pub struct Prefs {
    pub control_url: String,
    pub want_running: bool,
    pub logged_out: bool,
    /// Accept the routes of peers.
    pub route_all: bool,
    /// Let tailscaled manage the host's DNS.
    pub corp_dns: bool,
    /// Empty for the host's name.
    pub hostname: String,
    pub advertise_routes: Vec<IpNet>,
    pub no_snat: bool,
    /// `None` if never set.
    pub no_stateful_filtering: Option<bool>,
    /// Drop all incoming connections.
    pub shields_up: bool,
    pub netfilter_mode: NetfilterMode,
    pub auto_update_check: bool,
}

impl Prefs {
    pub(super) fn parse(value: &Value) -> Self {
        let prefs = LenientObject::of(value);
        Self {
            control_url: prefs.text("ControlURL"),
            want_running: prefs.flag("WantRunning"),
            logged_out: prefs.flag("LoggedOut"),
            route_all: prefs.flag("RouteAll"),
            corp_dns: prefs.flag("CorpDNS"),
            hostname: prefs.text("Hostname"),
            advertise_routes: prefs.prefixes("AdvertiseRoutes"),
            no_snat: prefs.flag("NoSNAT"),
            no_stateful_filtering: prefs.typed("NoStatefulFiltering"),
            shields_up: prefs.flag("ShieldsUp"),
            netfilter_mode: NetfilterMode::from_number(prefs.number("NetfilterMode")),
            auto_update_check: prefs.object("AutoUpdate").flag("Check"),
        }
    }
}

/// Prefs to change; `None` leaves a value as it is.
///
/// <https://pkg.go.dev/tailscale.com/ipn#MaskedPrefs>
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MaskedPrefs {
    /// Has an effect only at a login.
    pub control_url: Option<String>,
    pub want_running: Option<bool>,
    pub logged_out: Option<bool>,
    pub route_all: Option<bool>,
    pub corp_dns: Option<bool>,
    pub hostname: Option<String>,
    /// Replaces the list.
    pub advertise_routes: Option<Vec<IpNet>>,
    pub no_snat: Option<bool>,
    /// `Some(None)` makes it unset again.
    pub no_stateful_filtering: Option<Option<bool>>,
    pub shields_up: Option<bool>,
    pub netfilter_mode: Option<NetfilterMode>,
    pub auto_update_check: Option<bool>,
}

impl MaskedPrefs {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The values to set, by tailscaled's names.
    fn values(&self) -> impl Iterator<Item = (&'static str, Value)> {
        let all = [
            ("ControlURL", self.control_url.clone().map(Value::from)),
            ("WantRunning", self.want_running.map(Value::from)),
            ("LoggedOut", self.logged_out.map(Value::from)),
            ("RouteAll", self.route_all.map(Value::from)),
            ("CorpDNS", self.corp_dns.map(Value::from)),
            ("Hostname", self.hostname.clone().map(Value::from)),
            (
                "AdvertiseRoutes",
                self.advertise_routes.as_ref().map(|routes| json!(routes)),
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
        all.into_iter()
            .filter_map(|(name, value)| Some((name, value?)))
    }

    /// The body of a PATCH: each value with its `…Set` flag.
    pub(super) fn to_json(&self) -> Value {
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
}

/// The full set of prefs for a login: tailscaled sets everything else to zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartPrefs(Map<String, Value>);

impl StartPrefs {
    /// Running, with a packet filter, without DNS and updates; `prefs` takes precedence.
    pub fn new(prefs: &MaskedPrefs) -> Self {
        let defaults = MaskedPrefs {
            want_running: Some(true),
            logged_out: Some(false),
            corp_dns: Some(false),
            netfilter_mode: Some(NetfilterMode::On),
            ..MaskedPrefs::default()
        };
        let values = defaults.values().chain(prefs.values());
        let mut all: Map<_, _> = values
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
        let check = prefs.auto_update_check.unwrap_or(false);
        all.insert("AutoUpdate".to_owned(), json!({ "Check": check }));
        Self(all)
    }

    pub(super) fn to_json(&self) -> Value {
        self.0.clone().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefs_are_parsed_without_keys() {
        let prefs = Prefs::parse(&json!({
            "ControlURL": "https://10.0.0.1:8443", "RouteAll": true, "CorpDNS": false,
            "WantRunning": true, "LoggedOut": false, "Hostname": "n1", "OperatorUser": "max",
            "AdvertiseRoutes": ["10.244.1.0/24"], "NoSNAT": true,
            "NoStatefulFiltering": null, "NetfilterMode": 2, "ShieldsUp": true,
            "AutoUpdate": { "Check": true, "Apply": null },
            "Config": { "PrivateNodeKey": "privkey:secret" },
        }));
        assert_eq!(prefs.hostname, "n1");
        assert_eq!(prefs.advertise_routes, ["10.244.1.0/24".parse().unwrap()]);
        assert_eq!(prefs.netfilter_mode, NetfilterMode::On);
        assert_eq!(prefs.no_stateful_filtering, None);
        assert!(prefs.shields_up && prefs.auto_update_check);
        assert!(!format!("{prefs:?}").contains("secret"));
    }

    #[test]
    fn only_changed_prefs_are_in_the_patch() {
        let prefs = MaskedPrefs {
            advertise_routes: Some(vec![]),
            no_stateful_filtering: Some(None),
            shields_up: Some(false),
            auto_update_check: Some(false),
            ..MaskedPrefs::default()
        };
        let patch = json!({
            "AdvertiseRoutes": [], "AdvertiseRoutesSet": true,
            "NoStatefulFiltering": null, "NoStatefulFilteringSet": true,
            "ShieldsUp": false, "ShieldsUpSet": true,
            "AutoUpdate": { "Check": false }, "AutoUpdateSet": { "CheckSet": true },
        });
        assert_eq!(prefs.to_json(), patch);
        assert!(!prefs.is_empty() && MaskedPrefs::default().is_empty());
    }

    #[test]
    fn prefs_for_a_login_have_safe_defaults() {
        let value = StartPrefs::new(&MaskedPrefs::default()).to_json();
        assert_eq!(value["NetfilterMode"], 2);
        assert_eq!(value["WantRunning"], true);
        assert_eq!(value["CorpDNS"], false);
        assert_eq!(value["AutoUpdate"], json!({ "Check": false }));
        let prefs = MaskedPrefs {
            netfilter_mode: Some(NetfilterMode::Off),
            ..MaskedPrefs::default()
        };
        assert_eq!(StartPrefs::new(&prefs).to_json()["NetfilterMode"], 0);
    }
}
