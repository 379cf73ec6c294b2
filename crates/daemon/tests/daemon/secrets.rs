//! Keys are never shown by a daemon that runs: not in its log, not to anybody who asks.

use std::io::{Read, Write};

use api::http::HttpClient;
use api::messages::Resource;
use lab::{Netns, Running, tools};
use rstest::rstest;

use crate::scene::{SOON, Scene};

const API_KEY: &str = "hskey-api-canarycanary-canarycanarycanarycanarycanarycanarycanary";
const PRE_AUTH_KEY: &str = "hskey-auth-canarycanary-canarycanarycanarycanarycanarycanarycan";
const BIRD: &str = "canary";
const NETWORK: &str = "network: {podCIDR: {nodeLocal: 10.244.1.0/24, base: 10.244.0.0/16}}";
const FILES: &str = "headscale: {url: https://headscale.example.org, \
                     apiKeyFile: /etc/headcni/api-key, preAuthKeyFile: /etc/headcni/auth-key}";

/// Where the keys are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    InFiles,
    InVariables,
}

impl Kept {
    fn variables(self) -> Vec<(&'static str, &'static str)> {
        match self {
            Self::InFiles => Vec::new(),
            Self::InVariables => vec![
                ("HEADCNID_HEADSCALE_API_KEY", API_KEY),
                ("HEADCNID_HEADSCALE_PRE_AUTH_KEY", PRE_AUTH_KEY),
            ],
        }
    }

    fn yaml(self, format: &str) -> String {
        let logging = format!("logging: {{level: debug, format: {format}}}");
        let headscale = match self {
            Self::InFiles => FILES,
            Self::InVariables => "headscale: {url: https://headscale.example.org}",
        };
        // No mesh: what a member of one shows is looked at where there is one.
        [NETWORK, headscale, "tailscale: {mode: \"off\"}", &logging].join("\n")
    }
}

/// Configurations that can't be used, with keys where they don't belong.
fn bad(kept: Kept) -> Vec<String> {
    let base = kept.yaml("json");
    let own: &[&str] = &[
        "headscale: {apiKey: hskey-api-canarycanary-canarycanarycanarycanarycanarycanarycanary}",
        "headscale: hskey-api-canarycanary-canarycanarycanarycanarycanarycanarycanary",
        "headscale: {url: https://hskey-api-canarycanary-canarycanarycanarycanarycanarycanarycanary@x}",
        "headscale: {apiKeyFile: hskey-api-canarycanary-canarycanarycanarycanarycanarycanarycanary}",
        "headscale: {apiKeyFile: /etc/headcni/hskey-api-canarycanary-canarycanarycanarycanarycanarycanarycanary: x}",
        "monitoring: {address: hskey-api-canarycanary-canarycanarycanarycanarycanarycanarycanary}",
        "hskey-api-canarycanary-canarycanarycanarycanarycanarycanarycanary: 1",
        "a: 'hskey-api-canarycanary-canarycanarycanarycanarycanarycanarycanary",
    ];
    let mut all: Vec<String> = own.iter().map(|text| (*text).to_owned()).collect();
    all.push(format!("{base}\nnetwork: {{mtu: 3}}"));
    all.push(format!("{base}\nmonitoring: {{pprof: maybe}}"));
    all
}

#[rstest]
#[case(Kept::InFiles, "text")]
#[case(Kept::InFiles, "json")]
#[case(Kept::InVariables, "text")]
#[case(Kept::InVariables, "json")]
fn nobody_is_shown_a_key(#[case] kept: Kept, #[case] format: &str) {
    let scene = Scene::with(&kept.yaml(format));
    if kept == Kept::InFiles {
        scene.sh(&format!(
            "umask 077; echo {API_KEY} > /etc/headcni/api-key; \
             echo {PRE_AUTH_KEY} > /etc/headcni/auth-key"
        ));
    }
    let mut said: Vec<(String, String)> = Vec::new();
    let run = |words: &[&str]| {
        let mut command = scene.node.command("env");
        let variables = kept.variables().into_iter();
        command.args(variables.map(|(name, value)| format!("{name}={value}")));
        command.arg(tools::headcni_daemon()).args(words);
        let output = Running::spawn(&mut command, b"").unwrap().wait(SOON);
        let output = output.unwrap();
        (format!("{words:?}"), output.stdout + &output.stderr)
    };

    let daemon = scene.launch_with(&kept.variables());
    daemon.await_ready();
    let pod = scene.node.pod("p1").unwrap();
    scene.add(&pod);
    daemon.await_metric("headcni_pods", 1.0);
    for path in ["/healthz", "/ready", "/metrics", "/debug/pprof", "/"] {
        said.push((path.to_owned(), daemon.get(path).unwrap().body));
    }
    let client = HttpClient::new(scene.file("/run/headcni/daemon.sock")).timeout(SOON);
    let resources = Resource::ALL.into_iter().map(Resource::name);
    for name in resources.chain(["config", "canary"]) {
        let body = client.get(&format!("/v1/{name}")).unwrap().body;
        let body = String::from_utf8(body).unwrap();
        assert!(!body.is_empty(), "{name}");
        said.push((name.to_owned(), body));
    }
    for words in [
        &["config", "show"][..],
        &["config", "check"],
        &["podcidr"],
        &["run"],
        &["uninstall"],
    ] {
        said.push(run(words));
    }
    for yaml in bad(kept) {
        scene.configure(&yaml);
        daemon.reload();
        let message = daemon.await_condition("ConfigurationLoaded", "False");
        said.push((yaml.clone(), message));
        said.push(run(&["config", "show"]));
        said.push(run(&["podcidr"]));
        scene.configure(&kept.yaml(format));
        daemon.reload();
        daemon.await_condition("ConfigurationLoaded", "True");
    }
    let log = daemon.stop();
    assert!(log.stderr.contains("ConfigurationLoaded"), "{log:?}");
    said.push(("the log".to_owned(), log.stdout + &log.stderr));
    scene.configure(&bad(kept)[0]);
    let (words, text) = run(&["uninstall"]);
    assert!(text.contains("took the shared network away"), "{text}");
    said.push((words, text));
    for (place, text) in said {
        assert!(!text.is_empty(), "{place} said nothing");
        assert!(!text.contains(BIRD), "{place}: {text}");
    }
}
