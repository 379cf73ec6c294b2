use super::*;

const SERVER: &str = "https://10.99.0.1:8443";

fn nets(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn wanted() -> Wanted {
    Wanted {
        own: Some(Own {
            server: SERVER.to_owned(),
            hostname: "n1".to_owned(),
        }),
        routes: nets(&["10.244.1.0/24", "fd00:244:0:1::/64"]),
        ..Wanted::default()
    }
}

fn own(approved: &[&str]) -> OwnNode {
    OwnNode {
        id: 7,
        advertised: nets(approved),
        approved: nets(approved),
        serving: nets(approved),
    }
}

fn listed(own: Option<OwnNode>, others: &[(&str, &[&str])]) -> ServerView {
    ServerView::Listed {
        own,
        others: others
            .iter()
            .map(|(name, routes)| OtherNode {
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
fn seen() -> Seen {
    Seen {
        login: Login::Running,
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
    assert_eq!(plan(&wanted(), &seen()), []);
    let unknown = Seen {
        server: ServerView::Unknown,
        ..seen()
    };
    assert_eq!(plan(&wanted(), &unknown), []);
}

#[test]
fn a_login_comes_before_everything_else() {
    let mut out = seen();
    out.login = Login::Needed;
    out.prefs = Prefs::default();
    assert_eq!(plan(&wanted(), &out), [Step::Join(Why::LoggedOut)]);

    let mut forgotten = seen();
    forgotten.server = listed(None, &[]);
    assert_eq!(plan(&wanted(), &forgotten), [Step::Join(Why::Forgotten)]);

    let mut elsewhere = seen();
    elsewhere.prefs.server = "https://10.99.0.2:8443".to_owned();
    assert_eq!(plan(&wanted(), &elsewhere), [Step::Join(Why::OtherServer)]);
}

#[test]
fn the_hosts_tailscaled_is_never_logged_in_by_us() {
    let wanted = Wanted {
        own: None,
        ..wanted()
    };
    let mut out = seen();
    out.login = Login::Needed;
    assert_eq!(plan(&wanted, &out), []);
    let mut forgotten = seen();
    forgotten.server = listed(None, &[]);
    forgotten.prefs.server = "https://elsewhere".to_owned();
    assert_eq!(plan(&wanted, &forgotten), []);
}

#[test]
fn a_new_member_advertises_and_is_approved() {
    let mut new = seen();
    new.prefs.advertised.clear();
    new.prefs.hostname = "other".to_owned();
    new.prefs.takes_dns = true;
    new.prefs.shields_up = true;
    new.serving.clear();
    new.server = listed(Some(own(&[])), &[]);
    let routes = nets(&["10.244.1.0/24", "fd00:244:0:1::/64"]);
    assert_eq!(
        plan(&wanted(), &new),
        [
            Step::Set(Edit {
                hostname: Some("n1".to_owned()),
                advertised: Some(routes.clone()),
                leave_dns: true,
                lower_shields: true,
                ..Edit::default()
            }),
            Step::Approve { node: 7, routes },
        ]
    );
}

#[test]
fn what_the_user_advertises_stays() {
    let wanted = Wanted {
        own: None,
        former: nets(&["10.244.9.0/24"]),
        ..wanted()
    };
    let mut host = seen();
    host.prefs.advertised = nets(&["192.168.7.0/24", "10.244.9.0/24"]);
    host.prefs.hostname = "the-users".to_owned();
    host.prefs.takes_dns = true;
    host.prefs.shields_up = true;
    host.prefs.keeps_source = false;
    host.server = listed(Some(own(&["192.168.7.0/24", "10.244.9.0/24"])), &[]);
    let routes = nets(&["10.244.1.0/24", "192.168.7.0/24", "fd00:244:0:1::/64"]);
    assert_eq!(
        plan(&wanted, &host),
        [
            Step::Set(Edit {
                advertised: Some(routes.clone()),
                keep_source: true,
                ..Edit::default()
            }),
            Step::Approve { node: 7, routes },
        ]
    );
}

#[test]
fn a_network_that_another_node_has_is_not_advertised() {
    let mut new = seen();
    new.prefs.advertised.clear();
    new.serving.clear();
    new.server = listed(Some(own(&[])), &[("n2", &["10.244.1.0/24", "0.0.0.0/0"])]);
    assert_eq!(
        conflicts(&wanted(), &new)[0].to_string(),
        "n2 has 10.244.1.0/24, too"
    );
    let routes = nets(&["fd00:244:0:1::/64"]);
    assert_eq!(
        plan(&wanted(), &new),
        [
            Step::Set(Edit {
                advertised: Some(routes.clone()),
                ..Edit::default()
            }),
            Step::Approve { node: 7, routes },
        ]
    );
}

/// A new node, and another that has a network of it.
fn new_beside(other: OtherNode) -> Seen {
    let mut new = unserved(&[], &[]);
    new.server = ServerView::Listed {
        own: Some(own(&[])),
        others: vec![other],
    };
    new
}

/// One that has been gone for long.
fn gone(name: &str) -> OtherNode {
    OtherNode {
        id: 3,
        name: name.to_owned(),
        is_namesake: name == "n1",
        is_gone: true,
        routes: nets(&["10.244.1.0/24"]),
    }
}

fn deleted(wanted: &Wanted, seen: &Seen) -> Vec<Step> {
    let steps = plan(wanted, seen).into_iter();
    steps.filter(Step::is_deletion).collect()
}

fn forget(name: &str) -> Step {
    Step::Forget {
        node: 3,
        name: name.to_owned(),
    }
}

#[test]
fn what_this_node_was_before_is_deleted_and_in_nobodys_way() {
    let mut new = new_beside(gone("n1"));
    assert_eq!(conflicts(&wanted(), &new), []);
    assert_eq!(allowed(&wanted(), &new), wanted().routes);
    assert_eq!(deleted(&wanted(), &new), [forget("n1")]);
    // It could be this node itself.
    new.login = Login::Starting;
    if let ServerView::Listed { own, .. } = &mut new.server {
        *own = None;
    }
    assert_eq!(deleted(&wanted(), &new), []);
}

#[test]
fn a_node_of_another_cluster_that_restarts_keeps_its_place_whatever_its_name() {
    let given = Wanted {
        assigned: wanted().routes,
        ..wanted()
    };
    for name in ["n1", "n2"] {
        let other = OtherNode {
            is_gone: false,
            ..gone(name)
        };
        let beside = new_beside(other);
        for wanted in [&wanted(), &given] {
            assert_eq!(deleted(wanted, &beside), []);
            assert_eq!(conflicts(wanted, &beside).len(), 1);
            assert_eq!(allowed(wanted, &beside), nets(&["fd00:244:0:1::/64"]));
        }
    }
}

#[test]
fn a_network_that_the_cluster_has_given_to_this_node_is_not_kept_by_who_is_gone() {
    let given = Wanted {
        assigned: nets(&["10.244.1.0/24"]),
        ..wanted()
    };
    let beside = new_beside(gone("n2"));
    assert_eq!(deleted(&given, &beside), [forget("n2")]);
    assert_eq!(conflicts(&given, &beside), []);
    assert_eq!(allowed(&given, &beside), wanted().routes);
    // Nobody has given it to this node.
    assert_eq!(deleted(&wanted(), &beside), []);
    assert_eq!(conflicts(&wanted(), &beside)[0].id, 3);
    // A larger one is something else than a node's.
    let larger = OtherNode {
        routes: nets(&["10.244.0.0/16"]),
        ..gone("n2")
    };
    assert_eq!(deleted(&given, &new_beside(larger)), []);
}

#[test]
fn who_is_served_stays_when_another_comes() {
    let mut contested = seen();
    let approved = ["10.244.1.0/24", "fd00:244:0:1::/64"];
    contested.server = listed(Some(own(&approved)), &[("n2", &["10.244.1.0/25"])]);
    assert_eq!(plan(&wanted(), &contested), []);
    assert_eq!(
        conflicts(&wanted(), &contested)[0].to_string(),
        "n2 has 10.244.1.0/25, which overlaps this node's 10.244.1.0/24"
    );
}

#[test]
fn who_came_second_withdraws() {
    let mut second = seen();
    second.serving.clear();
    let own = OwnNode {
        serving: Vec::new(),
        ..own(&["10.244.1.0/24", "fd00:244:0:1::/64"])
    };
    second.server = listed(Some(own), &[("n2", &["10.244.1.0/24"])]);
    let routes = nets(&["fd00:244:0:1::/64"]);
    assert_eq!(
        plan(&wanted(), &second),
        [
            Step::Set(Edit {
                advertised: Some(routes.clone()),
                ..Edit::default()
            }),
            Step::Approve { node: 7, routes },
        ]
    );
}

/// As after a start of tailscaled: nothing leads here yet.
fn unserved(advertised: &[&str], others: &[(&str, &[&str])]) -> Seen {
    let mut unserved = seen();
    unserved.prefs.advertised = nets(advertised);
    unserved.serving.clear();
    let own = OwnNode {
        serving: Vec::new(),
        ..own(advertised)
    };
    unserved.server = listed(Some(own), others);
    unserved
}

#[test]
fn who_advertises_already_stays_when_another_has_a_larger_network() {
    let all = ["10.244.1.0/24", "fd00:244:0:1::/64"];
    let seen = unserved(&all, &[("office", &["10.0.0.0/8"])]);
    assert_eq!(plan(&wanted(), &seen), []);
    assert_eq!(
        conflicts(&wanted(), &seen)[0].to_string(),
        "office has 10.0.0.0/8, which overlaps this node's 10.244.1.0/24"
    );
    // As after another login, with which all that was set is gone.
    let mut again = seen;
    again.prefs.advertised.clear();
    assert_eq!(allowed(&wanted(), &again), nets(&all));
    // One that has the same or a part of it gets the packets.
    for theirs in ["10.244.1.0/24", "10.244.1.128/25"] {
        let others = [("office", &["10.0.0.0/8"][..]), ("n2", &[theirs])];
        let seen = unserved(&all, &others);
        assert_eq!(allowed(&wanted(), &seen), nets(&all[1..]), "{theirs}");
    }
}

#[test]
fn who_was_first_stays_though_nothing_leads_here_for_a_moment() {
    let all = ["10.244.1.0/24", "fd00:244:0:1::/64"];
    let first = Wanted {
        served: nets(&all),
        ..wanted()
    };
    for theirs in ["10.244.1.0/24", "10.244.1.128/25"] {
        let mut seen = unserved(&all, &[("thief", &[theirs])]);
        for login in [Login::Running, Login::Starting] {
            seen.login = login;
            assert_eq!(plan(&first, &seen), []);
            assert_eq!(conflicts(&first, &seen)[0].node, "thief");
        }
    }
    // Without a key for the server it is tailscaled that says who has it.
    let mut alone = unserved(&all, &[]);
    let ServerView::Listed { others, .. } = listed(None, &[("thief", &all[..1])]) else {
        unreachable!()
    };
    (alone.peers, alone.server) = (others, ServerView::Unknown);
    assert_eq!(plan(&first, &alone), []);
    assert_eq!(plan(&wanted(), &alone).len(), 1, "it never led here");

    // Whoever was taken out of the list, or told otherwise, comes anew.
    let newcomers = [
        unserved(&all[1..], &[("n2", &all[..1])]),
        Seen {
            server: listed(Some(own(&all[1..])), &[("n2", &all[..1])]),
            ..unserved(&all, &[])
        },
        Seen {
            server: listed(None, &[("n2", &all[..1])]),
            ..unserved(&all, &[])
        },
    ];
    for seen in newcomers {
        assert_eq!(allowed(&first, &seen), nets(&all[1..]), "{seen:?}");
    }
}

#[test]
fn a_newcomer_does_not_take_a_part_of_what_another_has() {
    let new = unserved(&["fd00:244:0:1::/64"], &[("n2", &["10.244.0.0/20"])]);
    assert_eq!(allowed(&wanted(), &new), nets(&["fd00:244:0:1::/64"]));
    assert_eq!(
        conflicts(&wanted(), &new)[0].to_string(),
        "n2 has 10.244.0.0/20, which overlaps this node's 10.244.1.0/24"
    );
}

#[test]
fn a_stopped_one_of_ours_is_told_to_run() {
    let mut stopped = seen();
    stopped.login = Login::Stopped;
    let run = Step::Set(Edit {
        run: true,
        ..Edit::default()
    });
    assert_eq!(plan(&wanted(), &stopped), [run]);
    let hosts = Wanted {
        own: None,
        ..wanted()
    };
    assert_eq!(plan(&hosts, &stopped), []);
}

#[test]
fn served_is_what_both_sides_say() {
    let route = nets(&["10.244.1.0/24"])[0];
    assert!(serves(&seen(), &route));
    let mut alone = seen();
    alone.server = ServerView::Unknown;
    assert!(serves(&alone, &route));
    alone.serving.clear();
    assert!(!serves(&alone, &route));
    let mut other = seen();
    other.server = listed(Some(own(&[])), &[]);
    assert!(!serves(&other, &route));
    other.server = listed(None, &[]);
    assert!(!serves(&other, &route));
}

#[test]
fn a_member_and_its_server_hear_each_other_or_are_made_to() {
    let is_unheard = |seen: &Seen| may_be_unheard(&wanted(), seen);
    assert!(!is_unheard(&seen()));

    // It serves without knowing.
    let mut untold = seen();
    untold.serving = nets(&["10.244.1.0/24"]);
    assert!(is_unheard(&untold));
    // There is nobody else to ask.
    untold.server = ServerView::Unknown;
    assert!(is_unheard(&untold));
    untold.login = Login::Starting;
    assert!(!is_unheard(&untold));

    // It does not serve, and both know.
    let mut unserved = seen();
    unserved.serving = nets(&["fd00:244:0:1::/64"]);
    let heard = OwnNode {
        serving: nets(&["fd00:244:0:1::/64"]),
        ..own(&["10.244.1.0/24", "fd00:244:0:1::/64"])
    };
    unserved.server = listed(Some(heard.clone()), &[]);
    assert!(!is_unheard(&unserved));

    // The server does not know what is advertised.
    let unsaid = OwnNode {
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
