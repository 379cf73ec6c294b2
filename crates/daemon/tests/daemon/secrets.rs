//! A running daemon never reveals keys: not in its log, and not in any response.

use api::http::HttpClient;
use api::messages::Resource;
use lab::scenario::DaemonNode;
use lab::{Netns, Running, tools};
use rstest::rstest;

use crate::TIMEOUT;

const API_KEY: &str = "hskey-api-canarycanary-canarycanarycanarycanarycanarycanarycanary";
const PRE_AUTH_KEY: &str = "hskey-auth-canarycanary-canarycanarycanarycanarycanarycanarycan";
const CANARY: &str = "canary";
const NETWORK: &str = "network: {podCIDR: {nodeLocal: 10.244.1.0/24, base: 10.244.0.0/16}}";
const FILES: &str = "headscale: {url: https://headscale.example.org, \
                     apiKeyFile: /etc/headcni/api-key, preAuthKeyFile: /etc/headcni/auth-key}";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeySource {
    Files,
    Variables,
}

impl KeySource {
    fn variables(self) -> Vec<(&'static str, &'static str)> {
        match self {
            Self::Files => Vec::new(),
            Self::Variables => vec![
                ("HEADCNID_HEADSCALE_API_KEY", API_KEY),
                ("HEADCNID_HEADSCALE_PRE_AUTH_KEY", PRE_AUTH_KEY),
            ],
        }
    }

    fn yaml(self, format: &str) -> String {
        let logging = format!("logging: {{level: debug, format: {format}}}");
        let headscale = match self {
            Self::Files => FILES,
            Self::Variables => "headscale: {url: https://headscale.example.org}",
        };
        // Without a mesh, whose secrets are tested in tests/mesh.
        [NETWORK, headscale, "tailscale: {mode: \"off\"}", &logging].join("\n")
    }
}

/// Invalid configurations with keys in wrong places.
fn bad(source: KeySource) -> Vec<String> {
    let base = source.yaml("json");
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
#[case(KeySource::Files, "text")]
#[case(KeySource::Files, "json")]
#[case(KeySource::Variables, "text")]
#[case(KeySource::Variables, "json")]
fn no_log_or_response_contains_a_key(#[case] source: KeySource, #[case] format: &str) {
    let node = DaemonNode::with_config(&source.yaml(format));
    if source == KeySource::Files {
        node.sh(&format!(
            "umask 077; echo {API_KEY} > /etc/headcni/api-key; \
             echo {PRE_AUTH_KEY} > /etc/headcni/auth-key"
        ));
    }
    let mut outputs: Vec<(String, String)> = Vec::new();
    let run = |args: &[&str]| {
        let mut command = node.node.command("env");
        let variables = source.variables().into_iter();
        command.args(variables.map(|(name, value)| format!("{name}={value}")));
        command.arg(tools::headcni_daemon()).args(args);
        let output = Running::spawn(&mut command, b"").unwrap().wait(TIMEOUT);
        let output = output.unwrap();
        (format!("{args:?}"), output.stdout + &output.stderr)
    };

    let daemon = node.spawn_daemon_with_env(&source.variables());
    daemon.await_ready();
    let pod = node.pod("p1");
    node.add(&pod);
    daemon.await_metric("headcni_pods", 1.0);
    for path in ["/healthz", "/ready", "/metrics", "/debug/pprof", "/"] {
        outputs.push((path.to_owned(), daemon.get(path).unwrap().body));
    }
    let client = HttpClient::new(node.file("/run/headcni/daemon.sock")).timeout(TIMEOUT);
    let resources = Resource::ALL.into_iter().map(Resource::name);
    for name in resources.chain(["config", "canary"]) {
        let body = client.get(&format!("/v1/{name}")).unwrap().body;
        let body = String::from_utf8(body).unwrap();
        assert!(!body.is_empty(), "{name}");
        outputs.push((name.to_owned(), body));
    }
    for args in [
        &["config", "show"][..],
        &["config", "check"],
        &["podcidr"],
        &["run"],
        &["uninstall"],
    ] {
        outputs.push(run(args));
    }
    for yaml in bad(source) {
        node.configure(&yaml);
        daemon.reload();
        let message = daemon.await_condition("ConfigurationLoaded", "False");
        outputs.push((yaml.clone(), message));
        outputs.push(run(&["config", "show"]));
        outputs.push(run(&["podcidr"]));
        node.configure(&source.yaml(format));
        daemon.reload();
        daemon.await_condition("ConfigurationLoaded", "True");
    }
    let log = daemon.stop();
    assert!(log.stderr.contains("ConfigurationLoaded"), "{log:?}");
    outputs.push(("the log".to_owned(), log.stdout + &log.stderr));
    node.configure(&bad(source)[0]);
    let (args, text) = run(&["uninstall"]);
    assert!(text.contains("removed the host network"), "{text}");
    outputs.push((args, text));
    for (place, text) in outputs {
        assert!(!text.is_empty(), "{place} is empty");
        assert!(!text.contains(CANARY), "{place}: {text}");
    }
}
