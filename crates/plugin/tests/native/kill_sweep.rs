//! kill -9 at every moment of a call, and a quick look at what remains after cleaning up.

use lab::scenario::PluginNode;
use lab::{Call, Moment, Netns, Outcome, Pod, Syscalls, eventually};
use serde_json::{Value, json};

use crate::networks::{call, headcni, ip, used_node, with};
use crate::node_state::{Traces, snapshot};

/// What happens after the kill.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Then {
    /// The same ADD once more, and a DEL.
    Add,
    Del,
    Gc,
}

/// What becomes of the pod's namespace between the kill and that.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Namespace {
    Stays,
    Goes,
}

/// Whom to kill when, and what happens then.
pub(crate) struct Killing<'a> {
    pub(crate) conf: &'a Value,
    pub(crate) verb: &'a str,
    pub(crate) at: Syscalls<'a>,
    pub(crate) namespace: &'a [Namespace],
    pub(crate) then: &'a [Then],
    /// Only every so manyth of these cases, in the order of the moments.
    pub(crate) step: usize,
}

/// One kill.
struct Case<'a> {
    moment: &'a Moment,
    namespace: Namespace,
    then: Then,
}

impl Killing<'_> {
    /// Kills the call at each of its moments on a node where another pod lives. Whatever happens
    /// then must end with what there was before. Returns how many moments there were.
    pub(crate) fn everywhere(&self) -> usize {
        let plugin = used_node(self.conf);
        let bystander = bystander(self.conf);
        let _other = plugin.attached("other", &bystander);
        let mut pod = plugin.pod("p");
        let (before, traces) = (snapshot(&plugin), Traces::of(&plugin));

        // The shortest of three: on a busy machine a call may retry, which the killed ones need not do.
        let attempts = (0..3).map(|_| {
            self.prepare(&plugin);
            let trace = self.call(self.verb).trace(&plugin.node, headcni(), self.at);
            let trace = trace.unwrap();
            trace.outcome.ok().unwrap();
            plugin.succeed("DEL", self.conf, &pod);
            trace.moments
        });
        let moments = attempts.min_by_key(Vec::len).expect("three traces");
        let (mut tried, mut killed) = (0, 0);
        for case in self.cases(&moments).step_by(self.step) {
            self.prepare(&plugin);
            let killing = self.call(self.verb);
            tried += 1;
            killed += usize::from(
                killing
                    .kill_at(&plugin.node, headcni(), case.moment)
                    .unwrap(),
            );
            match (case.namespace, case.then) {
                (Namespace::Stays, _) => self.clean(&plugin, &pod, &case),
                (Namespace::Goes, Then::Add) => {
                    pod.delete().unwrap();
                    pod = plugin.pod("p");
                    self.clean(&plugin, &pod, &case);
                }
                (Namespace::Goes, _) => {
                    pod.delete().unwrap();
                    self.clean(&plugin, &pod, &case);
                    pod = plugin.pod("p");
                }
            }
            self.assert_clean(&plugin, &traces, &case);
        }
        assert!(
            killed * 4 > tried * 3,
            "only {killed} of {tried} were killed"
        );
        assert_eq!(pod.links().unwrap(), [""; 0]);
        plugin.node.assert_unchanged(&before);
        moments.len()
    }

    fn cases<'b>(&'b self, moments: &'b [Moment]) -> impl Iterator<Item = Case<'b>> {
        let of_moment = move |moment| {
            let of_namespace = move |namespace: &Namespace| {
                let namespace = *namespace;
                self.then.iter().map(move |then| Case {
                    moment,
                    namespace,
                    then: *then,
                })
            };
            self.namespace.iter().flat_map(of_namespace)
        };
        moments.iter().flat_map(of_moment)
    }

    fn call(&self, verb: &str) -> Call {
        if verb == "GC" {
            return collecting(self.conf, &["other"]);
        }
        let call = call(verb, self.conf).container_id("p").ifname("eth0");
        call.netns("/run/netns/p")
    }

    /// A pod that is to lose its network needs one.
    fn prepare(&self, plugin: &PluginNode) {
        if self.verb != "ADD" {
            plugin.run(&self.call("ADD")).ok().unwrap();
        }
    }

    fn clean(&self, plugin: &PluginNode, pod: &Pod, case: &Case) {
        let succeeded = |outcome: &Outcome| {
            assert!(outcome.status.success(), "{}: {outcome:?}", self.tell(case));
        };
        match case.then {
            Then::Gc => succeeded(&collect(plugin, self.conf, &["other"])),
            Then::Del => succeeded(&plugin.run(&self.call("DEL"))),
            Then::Add => {
                let outcome = plugin.run(&self.call("ADD"));
                if outcome.err_code() == Some(102) && case.namespace == Namespace::Stays {
                    // It only could not say so any more, or it is no ADD that was killed.
                    assert!(
                        self.verb != "ADD" || !pod.links().unwrap().is_empty(),
                        "{}: refused for nothing: {outcome:?}",
                        self.tell(case)
                    );
                } else {
                    succeeded(&outcome);
                    plugin.node.ping(&ip(&outcome.json.unwrap(), 0)).unwrap();
                }
                succeeded(&plugin.run(&self.call("DEL")));
            }
        }
    }

    #[track_caller]
    fn assert_clean(&self, plugin: &PluginNode, traces: &Traces, case: &Case) {
        let mut difference = traces.difference(&Traces::of(plugin));
        if case.namespace == Namespace::Goes {
            // The kernel takes the links of a deleted namespace away in its own time.
            let _ = eventually(lab::DEADLINE / 10, "clean", || {
                difference = traces.difference(&Traces::of(plugin));
                difference.is_empty().then_some(())
            });
        }
        assert!(difference.is_empty(), "{}:\n{difference}", self.tell(case));
    }

    fn tell(&self, case: &Case) -> String {
        let Case {
            moment,
            namespace,
            then,
        } = case;
        let (verb, line) = (self.verb, &moment.line);
        format!("{verb} killed before {line}, namespace {namespace:?}, then {then:?}")
    }
}

/// The same network for a pod with everything that makes kernel messages: hostPorts and limits.
pub(crate) fn with_all(conf: Value) -> Value {
    let capabilities = json!({ "portMappings": true, "bandwidth": true });
    let limit = 8_000_000;
    let asked = json!({
        "portMappings": [
            { "hostPort": 8080, "containerPort": 80, "protocol": "tcp" },
            { "hostPort": 5353, "containerPort": 53, "protocol": "udp" },
        ],
        "bandwidth": { "ingressRate": limit, "ingressBurst": limit,
            "egressRate": limit, "egressBurst": limit },
    });
    with(
        with(conf, "capabilities", capabilities),
        "runtimeConfig",
        asked,
    )
}

/// The same network for a pod that asks for other hostPorts.
fn bystander(conf: &Value) -> Value {
    let mut conf = conf.clone();
    for mapping in conf["runtimeConfig"]["portMappings"]
        .as_array_mut()
        .into_iter()
        .flatten()
    {
        mapping["hostPort"] = json!(mapping["hostPort"].as_u64().unwrap() + 1000);
    }
    conf
}

/// Collects everything but `eth0` of these containers.
pub(crate) fn collect(plugin: &PluginNode, conf: &Value, valid: &[&str]) -> Outcome {
    plugin.run(&collecting(conf, valid))
}

fn collecting(conf: &Value, valid: &[&str]) -> Call {
    let attachment = |id: &&str| json!({ "containerID": id, "ifname": "eth0" });
    let valid: Vec<_> = valid.iter().map(attachment).collect();
    call(
        "GC",
        &with(conf.clone(), "cni.dev/valid-attachments", json!(valid)),
    )
}
