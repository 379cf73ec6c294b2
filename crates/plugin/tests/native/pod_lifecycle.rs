//! A pod through many calls, and what may be expected of the next one.

use lab::scenario::PluginNode;
use std::thread;
use std::time::Duration;

use lab::{Call, DEADLINE, Moment, Netns, Outcome, Pod, Running};
use serde_json::Value;

use crate::kill_sweep::collect;
use crate::networks::{call, headcni, ip, with};

/// What is known of a pod's network.
#[derive(Debug)]
pub(crate) enum State {
    /// An ADD must succeed.
    Free,
    /// By an ADD with this result.
    Attached(Value),
    /// A call was killed.
    Unsure,
}

/// A pod with its state.
pub(crate) struct Life<'a> {
    plugin: &'a PluginNode,
    pod: Pod,
    conf: Value,
    state: State,
}

impl<'a> Life<'a> {
    pub(crate) fn new(plugin: &'a PluginNode, pod: Pod, conf: Value) -> Self {
        let state = State::Free;
        Self {
            plugin,
            pod,
            conf,
            state,
        }
    }

    pub(crate) fn name(&self) -> &str {
        self.pod.name()
    }

    pub(crate) fn pod(&self) -> &Pod {
        &self.pod
    }

    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    fn call(&self, verb: &str) -> Call {
        call(verb, &self.conf).pod(&self.pod)
    }

    fn spawn(&self, verb: &str) -> Running {
        self.call(verb).spawn(&self.plugin.node, headcni()).unwrap()
    }

    #[track_caller]
    fn succeeded(&self, verb: &str, outcome: &Outcome) {
        let (name, state) = (self.name(), &self.state);
        assert!(
            outcome.status.success(),
            "{verb} of {name}, {state:?}: {outcome:?}"
        );
    }

    pub(crate) fn add(&mut self) {
        let outcome = self.plugin.run(&self.call("ADD"));
        match (&self.state, outcome.err_code()) {
            (State::Attached(_), code) => assert_eq!(code, Some(102), "{outcome:?}"),
            (State::Unsure, Some(102)) => {}
            _ => {
                self.succeeded("ADD", &outcome);
                self.state = State::Attached(outcome.json.unwrap());
            }
        }
    }

    pub(crate) fn del(&mut self) {
        let outcome = self.plugin.run(&self.call("DEL"));
        self.succeeded("DEL", &outcome);
        self.state = State::Free;
    }

    pub(crate) fn del_twice_at_once(&mut self) {
        let both = [self.spawn("DEL"), self.spawn("DEL")];
        for del in both {
            let output = del.wait(DEADLINE).unwrap();
            assert!(
                output.status.success(),
                "DEL of {}: {output:?}",
                self.name()
            );
        }
        self.state = State::Free;
    }

    pub(crate) fn add_and_del_at_once(&mut self) {
        let (add, del) = (self.spawn("ADD"), self.spawn("DEL"));
        // Which one came first is not to be seen.
        add.wait(DEADLINE).unwrap();
        let output = del.wait(DEADLINE).unwrap();
        assert!(
            output.status.success(),
            "DEL of {}: {output:?}",
            self.name()
        );
        self.state = State::Unsure;
    }

    pub(crate) fn check(&self) {
        let State::Attached(result) = &self.state else {
            return;
        };
        let conf = with(self.conf.clone(), "prevResult", result.clone());
        let outcome = self.plugin.attempt("CHECK", &conf, &self.pod);
        self.succeeded("CHECK", &outcome);
    }

    pub(crate) fn ping(&self) {
        if let State::Attached(result) = &self.state {
            self.plugin.node.ping(&ip(result, 0)).unwrap();
        }
    }

    pub(crate) fn add_killed_after(&mut self, time: Duration) {
        self.kill_after("ADD", time);
        if matches!(self.state, State::Free) {
            self.state = State::Unsure;
        }
    }

    pub(crate) fn del_killed_after(&mut self, time: Duration) {
        self.kill_after("DEL", time);
        self.state = State::Unsure;
    }

    fn kill_after(&self, verb: &str, time: Duration) {
        let running = self.spawn(verb);
        thread::sleep(time);
        running.kill();
        running.wait(DEADLINE).unwrap();
    }

    pub(crate) fn add_killed_at(&mut self, moment: &Moment) {
        // Any other could be refused before the moment comes.
        if matches!(self.state, State::Free) {
            self.kill_at("ADD", moment);
        }
    }

    pub(crate) fn del_killed_at(&mut self, moment: &Moment) {
        self.kill_at("DEL", moment);
    }

    fn kill_at(&mut self, verb: &str, moment: &Moment) {
        let call = self.call(verb);
        call.kill_at(&self.plugin.node, headcni(), moment).unwrap();
        self.state = State::Unsure;
    }

    /// A garbage collection for which only the others are valid.
    pub(crate) fn collected(&mut self, names: &[String]) {
        let others = names.iter().map(String::as_str);
        let others: Vec<_> = others.filter(|name| *name != self.name()).collect();
        let outcome = collect(self.plugin, &self.conf, &others);
        self.succeeded("GC", &outcome);
        self.state = State::Free;
    }

    /// Another namespace at the same path, as when a sandbox dies.
    pub(crate) fn replace_namespace(&mut self) {
        let name = self.name().to_owned();
        self.pod.delete().unwrap();
        self.pod = self.plugin.pod(&name);
        self.state = State::Free;
    }
}
