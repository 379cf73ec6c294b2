use super::*;

const SERVER: &str = "https://10.99.0.1:8443";

fn nets(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn desired() -> Desired {
    Desired {
        own: Some(ManagedPrefs {
            server: SERVER.to_owned(),
            hostname: "n1".to_owned(),
        }),
        routes: nets(&["10.244.1.0/24", "fd00:244:0:1::/64"]),
        ..Desired::default()
    }
}

fn own(approved: &[&str]) -> OwnDevice {
    OwnDevice {
        id: 7,
        advertised: nets(approved),
        approved: nets(approved),
        serving: nets(approved),
    }
}

fn listed(own: Option<OwnDevice>, others: &[(&str, &[&str])]) -> HeadscaleView {
    HeadscaleView::Listed {
        own,
        others: others
            .iter()
            .map(|(name, routes)| OtherDevice {
                id: 8,
                name: (*name).to_owned(),
                is_namesake: false,
                is_gone: false,
                routes: nets(routes),
            })
            .collect(),
    }
}

/// All is well.
fn observed() -> Observed {
    Observed {
        login: LoginState::Running,
        prefs: Prefs {
            server: SERVER.to_owned(),
            hostname: "n1".to_owned(),
            advertised: nets(&["fd00:244:0:1::/64", "10.244.1.0/24"]),
            accepts_routes: true,
            keeps_source: true,
            passes_stateless: true,
            takes_dns: false,
            shields_up: false,
        },
        serving: nets(&["10.244.1.0/24", "fd00:244:0:1::/64"]),
        peers: Vec::new(),
        server: listed(Some(own(&["10.244.1.0/24", "fd00:244:0:1::/64"])), &[]),
    }
}

#[test]
fn what_is_as_it_should_be_is_left_alone() {
    assert_eq!(plan(&desired(), &observed()), []);
    let unknown = Observed {
        server: HeadscaleView::Unknown,
        ..observed()
    };
    assert_eq!(plan(&desired(), &unknown), []);
}

#[test]
fn a_login_comes_before_everything_else() {
    let mut out = observed();
    out.login = LoginState::Needed;
    out.prefs = Prefs::default();
    assert_eq!(
        plan(&desired(), &out),
        [Action::Login(LoginReason::LoggedOut)]
    );

    let mut forgotten = observed();
    forgotten.server = listed(None, &[]);
    assert_eq!(
        plan(&desired(), &forgotten),
        [Action::Login(LoginReason::Forgotten)]
    );

    let mut elsewhere = observed();
    elsewhere.prefs.server = "https://10.99.0.2:8443".to_owned();
    assert_eq!(
        plan(&desired(), &elsewhere),
        [Action::Login(LoginReason::OtherServer)]
    );
}

#[test]
fn the_hosts_tailscaled_is_never_logged_in_by_us() {
    let desired = Desired {
        own: None,
        ..desired()
    };
    let mut out = observed();
    out.login = LoginState::Needed;
    assert_eq!(plan(&desired, &out), []);
    let mut forgotten = observed();
    forgotten.server = listed(None, &[]);
    forgotten.prefs.server = "https://elsewhere".to_owned();
    assert_eq!(plan(&desired, &forgotten), []);
}

#[test]
fn a_new_member_advertises_and_is_approved() {
    let mut new = observed();
    new.prefs.advertised.clear();
    new.prefs.hostname = "other".to_owned();
    new.prefs.takes_dns = true;
    new.prefs.shields_up = true;
    new.serving.clear();
    new.server = listed(Some(own(&[])), &[]);
    let routes = nets(&["10.244.1.0/24", "fd00:244:0:1::/64"]);
    assert_eq!(
        plan(&desired(), &new),
        [
            Action::PatchPrefs(PrefsPatch {
                hostname: Some("n1".to_owned()),
                advertised: Some(routes.clone()),
                leave_dns: true,
                lower_shields: true,
                ..PrefsPatch::default()
            }),
            Action::ApproveRoutes { node: 7, routes },
        ]
    );
}

#[test]
fn what_the_user_advertises_stays() {
    let desired = Desired {
        own: None,
        former: nets(&["10.244.9.0/24"]),
        ..desired()
    };
    let mut host = observed();
    host.prefs.advertised = nets(&["192.168.7.0/24", "10.244.9.0/24"]);
    host.prefs.hostname = "the-users".to_owned();
    host.prefs.takes_dns = true;
    host.prefs.shields_up = true;
    host.prefs.keeps_source = false;
    host.server = listed(Some(own(&["192.168.7.0/24", "10.244.9.0/24"])), &[]);
    let routes = nets(&["10.244.1.0/24", "192.168.7.0/24", "fd00:244:0:1::/64"]);
    assert_eq!(
        plan(&desired, &host),
        [
            Action::PatchPrefs(PrefsPatch {
                advertised: Some(routes.clone()),
                keep_source: true,
                ..PrefsPatch::default()
            }),
            Action::ApproveRoutes { node: 7, routes },
        ]
    );
}

#[test]
fn a_network_that_another_node_has_is_not_advertised() {
    let mut new = observed();
    new.prefs.advertised.clear();
    new.serving.clear();
    new.server = listed(Some(own(&[])), &[("n2", &["10.244.1.0/24", "0.0.0.0/0"])]);
    assert_eq!(
        conflicts(&desired(), &new)[0].to_string(),
        "n2 also advertises 10.244.1.0/24"
    );
    let routes = nets(&["fd00:244:0:1::/64"]);
    assert_eq!(
        plan(&desired(), &new),
        [
            Action::PatchPrefs(PrefsPatch {
                advertised: Some(routes.clone()),
                ..PrefsPatch::default()
            }),
            Action::ApproveRoutes { node: 7, routes },
        ]
    );
}

/// A new node, and another that has a network of it.
fn new_beside(other: OtherDevice) -> Observed {
    let mut new = unserved(&[], &[]);
    new.server = HeadscaleView::Listed {
        own: Some(own(&[])),
        others: vec![other],
    };
    new
}

/// One that has been gone for long.
fn gone(name: &str) -> OtherDevice {
    OtherDevice {
        id: 3,
        name: name.to_owned(),
        is_namesake: name == "n1",
        is_gone: true,
        routes: nets(&["10.244.1.0/24"]),
    }
}

fn deleted(desired: &Desired, observed: &Observed) -> Vec<Action> {
    let actions = plan(desired, observed).into_iter();
    actions.filter(Action::is_deletion).collect()
}

fn forget(name: &str) -> Action {
    Action::DeleteStaleDevice {
        node: 3,
        name: name.to_owned(),
    }
}

#[test]
fn what_this_node_was_before_is_deleted_and_in_nobodys_way() {
    let mut new = new_beside(gone("n1"));
    assert_eq!(conflicts(&desired(), &new), []);
    assert_eq!(allowed(&desired(), &new), desired().routes);
    assert_eq!(deleted(&desired(), &new), [forget("n1")]);
    // It could be this node itself.
    new.login = LoginState::Starting;
    if let HeadscaleView::Listed { own, .. } = &mut new.server {
        *own = None;
    }
    assert_eq!(deleted(&desired(), &new), []);
}

#[test]
fn a_node_of_another_cluster_that_restarts_keeps_its_place_whatever_its_name() {
    let given = Desired {
        assigned: desired().routes,
        ..desired()
    };
    for name in ["n1", "n2"] {
        let other = OtherDevice {
            is_gone: false,
            ..gone(name)
        };
        let beside = new_beside(other);
        for desired in [&desired(), &given] {
            assert_eq!(deleted(desired, &beside), []);
            assert_eq!(conflicts(desired, &beside).len(), 1);
            assert_eq!(allowed(desired, &beside), nets(&["fd00:244:0:1::/64"]));
        }
    }
}

#[test]
fn a_network_that_the_cluster_has_given_to_this_node_is_not_kept_by_who_is_gone() {
    let given = Desired {
        assigned: nets(&["10.244.1.0/24"]),
        ..desired()
    };
    let beside = new_beside(gone("n2"));
    assert_eq!(deleted(&given, &beside), [forget("n2")]);
    assert_eq!(conflicts(&given, &beside), []);
    assert_eq!(allowed(&given, &beside), desired().routes);
    // Nobody has given it to this node.
    assert_eq!(deleted(&desired(), &beside), []);
    assert_eq!(conflicts(&desired(), &beside)[0].id, 3);
    // A larger one is something else than a node's.
    let larger = OtherDevice {
        routes: nets(&["10.244.0.0/16"]),
        ..gone("n2")
    };
    assert_eq!(deleted(&given, &new_beside(larger)), []);
}

#[test]
fn who_is_served_stays_when_another_comes() {
    let mut contested = observed();
    let approved = ["10.244.1.0/24", "fd00:244:0:1::/64"];
    contested.server = listed(Some(own(&approved)), &[("n2", &["10.244.1.0/25"])]);
    assert_eq!(plan(&desired(), &contested), []);
    assert_eq!(
        conflicts(&desired(), &contested)[0].to_string(),
        "n2 advertises 10.244.1.0/25, which overlaps this node's 10.244.1.0/24"
    );
}

#[test]
fn who_came_second_withdraws() {
    let mut second = observed();
    second.serving.clear();
    let own = OwnDevice {
        serving: Vec::new(),
        ..own(&["10.244.1.0/24", "fd00:244:0:1::/64"])
    };
    second.server = listed(Some(own), &[("n2", &["10.244.1.0/24"])]);
    let routes = nets(&["fd00:244:0:1::/64"]);
    assert_eq!(
        plan(&desired(), &second),
        [
            Action::PatchPrefs(PrefsPatch {
                advertised: Some(routes.clone()),
                ..PrefsPatch::default()
            }),
            Action::ApproveRoutes { node: 7, routes },
        ]
    );
}

/// As after a start of tailscaled: nothing leads here yet.
fn unserved(advertised: &[&str], others: &[(&str, &[&str])]) -> Observed {
    let mut unserved = observed();
    unserved.prefs.advertised = nets(advertised);
    unserved.serving.clear();
    let own = OwnDevice {
        serving: Vec::new(),
        ..own(advertised)
    };
    unserved.server = listed(Some(own), others);
    unserved
}

#[test]
fn who_advertises_already_stays_when_another_has_a_larger_network() {
    let all = ["10.244.1.0/24", "fd00:244:0:1::/64"];
    let observed = unserved(&all, &[("office", &["10.0.0.0/8"])]);
    assert_eq!(plan(&desired(), &observed), []);
    assert_eq!(
        conflicts(&desired(), &observed)[0].to_string(),
        "office advertises 10.0.0.0/8, which overlaps this node's 10.244.1.0/24"
    );
    // As after another login, with which all that was set is gone.
    let mut again = observed;
    again.prefs.advertised.clear();
    assert_eq!(allowed(&desired(), &again), nets(&all));
    // One that has the same or a part of it gets the packets.
    for theirs in ["10.244.1.0/24", "10.244.1.128/25"] {
        let others = [("office", &["10.0.0.0/8"][..]), ("n2", &[theirs])];
        let observed = unserved(&all, &others);
        assert_eq!(allowed(&desired(), &observed), nets(&all[1..]), "{theirs}");
    }
}

#[test]
fn who_was_first_stays_though_nothing_leads_here_for_a_moment() {
    let all = ["10.244.1.0/24", "fd00:244:0:1::/64"];
    let first = Desired {
        served: nets(&all),
        ..desired()
    };
    for theirs in ["10.244.1.0/24", "10.244.1.128/25"] {
        let mut observed = unserved(&all, &[("thief", &[theirs])]);
        for login in [LoginState::Running, LoginState::Starting] {
            observed.login = login;
            assert_eq!(plan(&first, &observed), []);
            assert_eq!(conflicts(&first, &observed)[0].node, "thief");
        }
    }
    // Without a key for the server it is tailscaled that says who has it.
    let mut alone = unserved(&all, &[]);
    let HeadscaleView::Listed { others, .. } = listed(None, &[("thief", &all[..1])]) else {
        unreachable!()
    };
    (alone.peers, alone.server) = (others, HeadscaleView::Unknown);
    assert_eq!(plan(&first, &alone), []);
    assert_eq!(plan(&desired(), &alone).len(), 1, "it never led here");

    // Whoever was taken out of the list, or told otherwise, comes anew.
    let newcomers = [
        unserved(&all[1..], &[("n2", &all[..1])]),
        Observed {
            server: listed(Some(own(&all[1..])), &[("n2", &all[..1])]),
            ..unserved(&all, &[])
        },
        Observed {
            server: listed(None, &[("n2", &all[..1])]),
            ..unserved(&all, &[])
        },
    ];
    for observed in newcomers {
        assert_eq!(allowed(&first, &observed), nets(&all[1..]), "{observed:?}");
    }
}

#[test]
fn a_newcomer_does_not_take_a_part_of_what_another_has() {
    let new = unserved(&["fd00:244:0:1::/64"], &[("n2", &["10.244.0.0/20"])]);
    assert_eq!(allowed(&desired(), &new), nets(&["fd00:244:0:1::/64"]));
    assert_eq!(
        conflicts(&desired(), &new)[0].to_string(),
        "n2 advertises 10.244.0.0/20, which overlaps this node's 10.244.1.0/24"
    );
}

#[test]
fn a_stopped_one_of_ours_is_told_to_run() {
    let mut stopped = observed();
    stopped.login = LoginState::Stopped;
    let run = Action::PatchPrefs(PrefsPatch {
        run: true,
        ..PrefsPatch::default()
    });
    assert_eq!(plan(&desired(), &stopped), [run]);
    let hosts = Desired {
        own: None,
        ..desired()
    };
    assert_eq!(plan(&hosts, &stopped), []);
}

#[test]
fn served_is_what_both_sides_say() {
    let route = nets(&["10.244.1.0/24"])[0];
    assert!(serves(&observed(), &route));
    let mut alone = observed();
    alone.server = HeadscaleView::Unknown;
    assert!(serves(&alone, &route));
    alone.serving.clear();
    assert!(!serves(&alone, &route));
    let mut other = observed();
    other.server = listed(Some(own(&[])), &[]);
    assert!(!serves(&other, &route));
    other.server = listed(None, &[]);
    assert!(!serves(&other, &route));
}

#[test]
fn a_member_and_its_server_hear_each_other_or_are_made_to() {
    let is_unheard = |observed: &Observed| may_be_unheard(&desired(), observed);
    assert!(!is_unheard(&observed()));

    // It serves without knowing.
    let mut untold = observed();
    untold.serving = nets(&["10.244.1.0/24"]);
    assert!(is_unheard(&untold));
    // There is nobody else to ask.
    untold.server = HeadscaleView::Unknown;
    assert!(is_unheard(&untold));
    untold.login = LoginState::Starting;
    assert!(!is_unheard(&untold));

    // It does not serve, and both know.
    let mut unserved = observed();
    unserved.serving = nets(&["fd00:244:0:1::/64"]);
    let heard = OwnDevice {
        serving: nets(&["fd00:244:0:1::/64"]),
        ..own(&["10.244.1.0/24", "fd00:244:0:1::/64"])
    };
    unserved.server = listed(Some(heard.clone()), &[]);
    assert!(!is_unheard(&unserved));

    // The server does not know what is advertised.
    let unsaid = OwnDevice {
        advertised: nets(&["fd00:244:0:1::/64"]),
        ..heard
    };
    unserved.server = listed(Some(unsaid.clone()), &[]);
    assert!(is_unheard(&unserved));
    // Nobody has said it yet, or nobody is to say it.
    unserved.prefs.advertised = nets(&["fd00:244:0:1::/64"]);
    assert!(!is_unheard(&unserved));
    unserved.prefs.advertised.extend(nets(&["10.244.1.0/24"]));
    unserved.server = listed(Some(unsaid), &[("n2", &["10.244.1.0/24"])]);
    assert!(!is_unheard(&unserved));
}
