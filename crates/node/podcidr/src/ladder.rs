//! The order of sources, and which of them wins.

use std::path::Path;

use ipnet::IpNet;

use super::check::{self, Unfit, is_same_family};
use super::files::{self, Place};
use super::scan::{Broken, Report};
use super::{CidrSource, Discovery, Looked, PodCidrError, PodCidrs, Question, Verdict, guess};
use node_config::{Network, Networks};
use node_core::AssignedCidrs;

const NOT_SET: &str = "not set";
const NOT_ASKED: &str =
    "the Kubernetes API is not asked: kubernetes.kubeconfig is not set, and this is no pod";
const NO_NODE: &str =
    "there is no Node of this name: is the kubelet's name another one (--node-name)?";
const NOT_ASSIGNED: &str = "spec.podCIDRs is empty: the controller manager assigns them with \
     --allocate-node-cidrs; else set network.podCIDR.nodes";
const NO_GUESS: &str = "network.podCIDR.allowGuess is not true: two nodes may guess the same";

/// Asks all sources.
pub(super) fn climb(question: &Question<'_>) -> Discovery {
    let places = files::places(question.root, question.node);
    let mut files: Vec<_> = places.into_iter().map(Asked::new).collect();
    let mut ladder = Ladder {
        question,
        base: None,
        own: None,
        error: None,
        looked: Vec::new(),
    };
    ladder.find_base(&mut files);
    ladder.ask_configuration();
    ladder.ask_variable();
    for file in &mut files {
        ladder.ask_file(file);
    }
    ladder.ask_node_object();
    ladder.ask_name();
    ladder.ask_nobody();
    ladder.end()
}

/// A file, and what it says if it was read.
struct Asked {
    place: Place,
    answer: Option<Result<Report, String>>,
}

impl Asked {
    fn new(place: Place) -> Self {
        let answer = None;
        Self { place, answer }
    }

    fn read(&mut self, root: &Path) -> &Result<Report, String> {
        let place = &self.place;
        self.answer.get_or_insert_with(|| place.read(root))
    }

    fn source(&self) -> CidrSource {
        CidrSource::File(self.place.path.clone())
    }
}

/// Networks, and where they are from.
struct Origin {
    nets: Vec<IpNet>,
    source: CidrSource,
}

struct Ladder<'a> {
    question: &'a Question<'a>,
    /// The cluster's networks.
    base: Option<Origin>,
    /// The node's networks, as soon as a source says them.
    own: Option<Origin>,
    /// Set as soon as something can't be.
    error: Option<PodCidrError>,
    looked: Vec<Looked>,
}

impl Ladder<'_> {
    /// Finds the cluster's networks, which the node's must be in: the configuration says them, else
    /// the first file that has them.
    fn find_base(&mut self, files: &mut [Asked]) {
        let network = self.question.network;
        let Networks(nets) = &network.pod_cidr.base;
        if nets.is_empty() {
            self.base = files.iter_mut().find_map(|file| {
                let source = file.source();
                let report = file.read(self.question.root).as_ref().ok()?;
                let (_, nets) = report.cluster.networks.clone()?;
                base_verdict(&nets, network).ok()?;
                Some(Origin { nets, source })
            });
            return;
        }
        let (nets, source) = (nets.clone(), CidrSource::Base);
        if let Err(trouble) = base_verdict(&nets, network) {
            let origin = source.clone();
            self.error = Some(PodCidrError::Unfit { origin, trouble });
        }
        self.base = Some(Origin { nets, source });
    }

    fn ask_configuration(&mut self) {
        let (node, keys) = (self.question.node, &self.question.network.pod_cidr);
        let of_node = keys
            .nodes
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(node.as_str()));
        let (nets, absent) = match of_node {
            Some((_, nets)) => (nets.clone(), "empty".to_owned()),
            None if keys.nodes.is_empty() => (Networks::default(), NOT_SET.to_owned()),
            None => {
                let names: Vec<_> = keys.nodes.keys().take(3).map(String::as_str).collect();
                let more = if keys.nodes.len() > names.len() {
                    ", …"
                } else {
                    ""
                };
                let absent = format!("{NOT_SET}; there are {}{more}", names.join(", "));
                (Networks::default(), absent)
            }
        };
        self.ask_person(CidrSource::ForNode(node.clone()), &nets, &absent);
        self.ask_person(CidrSource::NodeLocal, &keys.node_local, NOT_SET);
    }

    fn ask_variable(&mut self) {
        let text = self.question.variable.map(|text| text.to_string_lossy());
        let text = text.as_deref().map_or("", str::trim);
        if self.is_settled() {
            return self.skip(CidrSource::Variable);
        }
        match text.parse::<Networks>() {
            Ok(nets) if nets.0.is_empty() && !text.is_empty() => {
                let trouble = Unfit::NotNetworks(format!("{text:?} names no network"));
                self.refuse(CidrSource::Variable, trouble);
            }
            Ok(nets) => self.ask_person(CidrSource::Variable, &nets, NOT_SET),
            Err(trouble) => self.refuse(CidrSource::Variable, Unfit::NotNetworks(trouble)),
        }
    }

    /// What a person says is right or an error.
    fn ask_person(&mut self, source: CidrSource, Networks(nets): &Networks, absent: &str) {
        if self.is_settled() {
            return self.skip(source);
        }
        if nets.is_empty() {
            return self.pass(source, absent);
        }
        let verdict = check::sound(nets)
            .and_then(|()| check::agrees(nets, self.question.network))
            .and_then(|()| self.within_base(nets));
        match verdict {
            Ok(()) => self.win(source, nets.clone(), Networks(nets.clone()).to_string()),
            Err(trouble) => self.refuse(source, trouble),
        }
    }

    fn within_base(&self, nets: &[IpNet]) -> Result<(), Unfit> {
        match &self.base {
            Some(base) => check::within(nets, &base.nets, &base.source.to_string()),
            None => Ok(()),
        }
    }

    /// What a file says may be of another cluster, or outdated: if it can't be, the next is asked.
    fn ask_file(&mut self, file: &mut Asked) {
        let source = file.source();
        // A file that was read in search of the cluster's networks is worth its line.
        if self.error.is_some() || (self.own.is_some() && file.answer.is_none()) {
            return self.skip(source);
        }
        let report = match file.read(self.question.root) {
            Ok(report) => report,
            Err(why) => return self.pass(source, why),
        };
        let mut words = words_of(report, self.question.network);
        let Some((_, nets)) = &report.node.networks else {
            return self.pass(source, &words.join("; "));
        };
        if self.own.is_some() {
            words.push("a source above it has won".to_owned());
            return self.pass(source, &words.join("; "));
        }
        let is_part = match &self.base {
            Some(base) => check::is_part(nets, &base.nets, &base.source.to_string()),
            None => Ok(()),
        };
        if let Err(trouble) = check::sound(nets).and(is_part) {
            words.push(trouble.to_string());
            return self.pass(source, &words.join("; "));
        }
        // The configuration says one thing about all nodes, and the cluster another.
        match check::agrees(nets, self.question.network) {
            Ok(()) => self.win(source, nets.clone(), words.join("; ")),
            Err(trouble) => self.refuse(source, trouble),
        }
    }

    /// A guess is no substitute for an answer that is still to come.
    fn ask_node_object(&mut self) {
        let source = CidrSource::NodeObject;
        if self.is_settled() {
            return self.skip(source);
        }
        let may_guess = self.question.network.pod_cidr.allow_guess;
        let nets = match self.question.kubernetes {
            AssignedCidrs::Disabled => return self.pass(source, NOT_ASKED),
            AssignedCidrs::Pending => return self.await_api(source, "it has not answered yet"),
            AssignedCidrs::NoNode if may_guess => return self.pass(source, NO_NODE),
            AssignedCidrs::NoNode => return self.await_api(source, NO_NODE),
            AssignedCidrs::Cidrs([]) if may_guess => return self.pass(source, NOT_ASSIGNED),
            AssignedCidrs::Cidrs([]) => return self.await_api(source, NOT_ASSIGNED),
            AssignedCidrs::Cidrs(nets) => nets,
        };
        let verdict = check::sound(nets)
            .and_then(|()| check::agrees(nets, self.question.network))
            .and_then(|()| self.within_base(nets));
        match verdict {
            Ok(()) => self.win(source, nets.to_vec(), Networks(nets.to_vec()).to_string()),
            Err(trouble) => self.refuse(source, trouble),
        }
    }

    fn await_api(&mut self, source: CidrSource, why: &'static str) {
        self.pass(source, why);
        let node = self.question.node.clone();
        self.error = Some(PodCidrError::Awaited { node, why });
    }

    fn ask_name(&mut self) {
        let source = CidrSource::Hash;
        if self.is_settled() {
            return self.skip(source);
        }
        let Some(base) = &self.base else {
            let why = "the cluster's networks are not known: network.podCIDR.base is not set";
            return self.pass(source, why);
        };
        let network = self.question.network;
        let per_node = network.pod_cidr.per_node;
        let guessed = guess::from_name(self.question.node, &base.nets, per_node)
            .and_then(|nets| check::sound(&nets).map(|()| nets))
            .and_then(|nets| check::agrees(&nets, network).map(|()| nets));
        match (guessed, network.pod_cidr.allow_guess) {
            (Ok(nets), true) => {
                let words = Networks(nets.clone()).to_string();
                self.win(source, nets, words);
            }
            (Ok(nets), false) => {
                let nets = Networks(nets);
                self.pass(source, &format!("it would be {nets}, but {NO_GUESS}"));
            }
            (Err(trouble), true) => self.refuse(source, trouble),
            (Err(trouble), false) => self.pass(source, &trouble.to_string()),
        }
    }

    fn ask_nobody(&mut self) {
        let source = CidrSource::Default;
        if self.is_settled() {
            return self.skip(source);
        }
        let network = self.question.network;
        let nets = vec![guess::default_network()];
        let words = Networks(nets.clone()).to_string();
        if !network.pod_cidr.allow_guess {
            return self.pass(source, &format!("it would be {words}, but {NO_GUESS}"));
        }
        match check::agrees(&nets, network) {
            Ok(()) => self.win(source, nets, words),
            Err(trouble) => self.refuse(source, trouble),
        }
    }

    fn is_settled(&self) -> bool {
        self.own.is_some() || self.error.is_some()
    }

    fn win(&mut self, source: CidrSource, nets: Vec<IpNet>, words: String) {
        self.note(source.clone(), Verdict::Won(words));
        self.own = Some(Origin { nets, source });
    }

    fn refuse(&mut self, source: CidrSource, trouble: Unfit) {
        self.note(source.clone(), Verdict::Refused(trouble.to_string()));
        let origin = source;
        self.error = Some(PodCidrError::Unfit { origin, trouble });
    }

    fn pass(&mut self, source: CidrSource, why: &str) {
        self.note(source, Verdict::Passed(why.to_owned()));
    }

    fn skip(&mut self, source: CidrSource) {
        self.note(source, Verdict::NotReached);
    }

    fn note(&mut self, source: CidrSource, verdict: Verdict) {
        self.looked.push(Looked { source, verdict });
    }

    fn end(self) -> Discovery {
        let node = self.question.node.clone();
        let (base, base_source) = match self.base {
            Some(base) => (base.nets, Some(base.source)),
            None => (Vec::new(), None),
        };
        let mut warnings = Vec::new();
        let outcome = match (self.error, self.own) {
            (Some(error), _) => Err(error),
            (None, None) => Err(PodCidrError::Unknown {
                node: node.clone(),
                looked: self.looked.clone(),
            }),
            (None, Some(own)) => {
                warnings = check::warnings(&own.nets, &base);
                let whole = |net: &IpNet| {
                    let base = base.iter().find(|base| is_same_family(base, net));
                    *base.unwrap_or(net)
                };
                Ok(PodCidrs {
                    base: own.nets.iter().map(whole).collect(),
                    local: own.nets,
                    source: own.source,
                    base_source,
                })
            }
        };
        Discovery {
            node,
            outcome,
            looked: self.looked,
            warnings,
        }
    }
}

/// Whether networks could be the cluster's.
fn base_verdict(nets: &[IpNet], network: &Network) -> Result<(), Unfit> {
    check::sound(nets)?;
    check::apart(nets, network)
}

/// What a file says.
fn words_of(report: &Report, network: &Network) -> Vec<String> {
    let mut words = Vec::new();
    if let Some(Broken { line, column }) = report.broken {
        words.push(format!(
            "no YAML from line {line} column {column} on, so read line by line"
        ));
    }
    words.extend(report.node.troubles.iter().cloned());
    match &report.node.networks {
        Some((key, nets)) => words.push(format!("{key} is {}", Networks(nets.clone()))),
        None if report.node.troubles.is_empty() => words.push("no podCIDR".to_owned()),
        None => {}
    }
    words.extend(report.cluster.troubles.iter().cloned());
    if let Some((key, nets)) = &report.cluster.networks {
        let said = Networks(nets.clone());
        words.push(match base_verdict(nets, network) {
            Ok(()) => format!("{key} is the whole cluster's: {said}"),
            Err(trouble) => format!("{key}: {trouble}"),
        });
    }
    words
}
