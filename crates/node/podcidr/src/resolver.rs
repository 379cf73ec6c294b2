//! Tries the sources in order of precedence.

use std::path::Path;

use ipnet::IpNet;

use super::check::{self, InvalidCidrs, is_same_family};
use super::files::{self, SourceFile};
use super::scan::{Report, SyntaxError};
use super::{
    CidrSource, Discovery, DiscoveryInput, PodCidrError, PodCidrs, SourceReport, SourceResult,
    guess,
};
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

pub(super) fn resolve(input: &DiscoveryInput<'_>) -> Discovery {
    let places = files::places(input.root, input.node);
    let mut files: Vec<_> = places.into_iter().map(FileSource::new).collect();
    let mut resolver = Resolver {
        input,
        base: None,
        own: None,
        error: None,
        sources: Vec::new(),
    };
    resolver.find_base(&mut files);
    resolver.try_configuration();
    resolver.try_variable();
    for file in &mut files {
        resolver.try_file(file);
    }
    resolver.try_node_object();
    resolver.try_name_hash();
    resolver.try_default();
    resolver.end()
}

/// A file and its cached contents.
struct FileSource {
    place: SourceFile,
    answer: Option<Result<Report, String>>,
}

impl FileSource {
    fn new(place: SourceFile) -> Self {
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

/// CIDRs and their source.
struct Origin {
    nets: Vec<IpNet>,
    source: CidrSource,
}

struct Resolver<'a> {
    input: &'a DiscoveryInput<'a>,
    /// The cluster CIDRs.
    base: Option<Origin>,
    /// The pod CIDRs, once a source is selected.
    own: Option<Origin>,
    error: Option<PodCidrError>,
    sources: Vec<SourceReport>,
}

impl Resolver<'_> {
    /// Finds the cluster CIDRs: in the configuration, else in the first file that has them.
    fn find_base(&mut self, files: &mut [FileSource]) {
        let network = self.input.network;
        let Networks(nets) = &network.pod_cidr.base;
        if nets.is_empty() {
            self.base = files.iter_mut().find_map(|file| {
                let source = file.source();
                let report = file.read(self.input.root).as_ref().ok()?;
                let (_, nets) = report.cluster.networks.clone()?;
                check_base(&nets, network).ok()?;
                Some(Origin { nets, source })
            });
            return;
        }
        let (nets, source) = (nets.clone(), CidrSource::Base);
        if let Err(problem) = check_base(&nets, network) {
            let origin = source.clone();
            self.error = Some(PodCidrError::InvalidCidrs { origin, problem });
        }
        self.base = Some(Origin { nets, source });
    }

    fn try_configuration(&mut self) {
        let (node, keys) = (self.input.node, &self.input.network.pod_cidr);
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
        self.try_explicit(CidrSource::ForNode(node.clone()), &nets, &absent);
        self.try_explicit(CidrSource::NodeLocal, &keys.node_local, NOT_SET);
    }

    fn try_variable(&mut self) {
        let text = self.input.variable.map(|text| text.to_string_lossy());
        let text = text.as_deref().map_or("", str::trim);
        if self.is_resolved() {
            return self.not_reached(CidrSource::Variable);
        }
        match text.parse::<Networks>() {
            Ok(nets) if nets.0.is_empty() && !text.is_empty() => {
                let problem = InvalidCidrs::Syntax(format!("{text:?} names no network"));
                self.refuse(CidrSource::Variable, problem);
            }
            Ok(nets) => self.try_explicit(CidrSource::Variable, &nets, NOT_SET),
            Err(problem) => self.refuse(CidrSource::Variable, InvalidCidrs::Syntax(problem)),
        }
    }

    /// An invalid explicit value is an error.
    fn try_explicit(&mut self, source: CidrSource, Networks(nets): &Networks, absent: &str) {
        if self.is_resolved() {
            return self.not_reached(source);
        }
        if nets.is_empty() {
            return self.skip(source, absent);
        }
        let result = check::usable(nets)
            .and_then(|()| check::matches_config(nets, self.input.network))
            .and_then(|()| self.within_base(nets));
        match result {
            Ok(()) => self.select(source, nets.clone(), Networks(nets.clone()).to_string()),
            Err(problem) => self.refuse(source, problem),
        }
    }

    fn within_base(&self, nets: &[IpNet]) -> Result<(), InvalidCidrs> {
        match &self.base {
            Some(base) => check::within(nets, &base.nets, &base.source.to_string()),
            None => Ok(()),
        }
    }

    /// A file may be outdated or of another cluster: an invalid one is skipped.
    fn try_file(&mut self, file: &mut FileSource) {
        let source = file.source();
        // Files that were read for the cluster CIDR are still explained.
        if self.error.is_some() || (self.own.is_some() && file.answer.is_none()) {
            return self.not_reached(source);
        }
        let report = match file.read(self.input.root) {
            Ok(report) => report,
            Err(why) => return self.skip(source, why),
        };
        let mut words = describe(report, self.input.network);
        let Some((_, nets)) = &report.node.networks else {
            return self.skip(source, &words.join("; "));
        };
        if self.own.is_some() {
            words.push("a source of higher precedence is selected".to_owned());
            return self.skip(source, &words.join("; "));
        }
        let is_part = match &self.base {
            Some(base) => check::is_part(nets, &base.nets, &base.source.to_string()),
            None => Ok(()),
        };
        if let Err(problem) = check::usable(nets).and(is_part) {
            words.push(problem.to_string());
            return self.skip(source, &words.join("; "));
        }
        // Configuration and cluster contradict each other.
        match check::matches_config(nets, self.input.network) {
            Ok(()) => self.select(source, nets.clone(), words.join("; ")),
            Err(problem) => self.refuse(source, problem),
        }
    }

    /// A guess must not preempt a pending answer of the API.
    fn try_node_object(&mut self) {
        let source = CidrSource::NodeObject;
        if self.is_resolved() {
            return self.not_reached(source);
        }
        let may_guess = self.input.network.pod_cidr.allow_guess;
        let nets = match self.input.kubernetes {
            AssignedCidrs::Disabled => return self.skip(source, NOT_ASKED),
            AssignedCidrs::Pending => return self.await_api(source, "it has not answered yet"),
            AssignedCidrs::NoNode if may_guess => return self.skip(source, NO_NODE),
            AssignedCidrs::NoNode => return self.await_api(source, NO_NODE),
            AssignedCidrs::Cidrs([]) if may_guess => return self.skip(source, NOT_ASSIGNED),
            AssignedCidrs::Cidrs([]) => return self.await_api(source, NOT_ASSIGNED),
            AssignedCidrs::Cidrs(nets) => nets,
        };
        let result = check::usable(nets)
            .and_then(|()| check::matches_config(nets, self.input.network))
            .and_then(|()| self.within_base(nets));
        match result {
            Ok(()) => self.select(source, nets.to_vec(), Networks(nets.to_vec()).to_string()),
            Err(problem) => self.refuse(source, problem),
        }
    }

    fn await_api(&mut self, source: CidrSource, why: &'static str) {
        self.skip(source, why);
        let node = self.input.node.clone();
        self.error = Some(PodCidrError::Awaited { node, why });
    }

    fn try_name_hash(&mut self) {
        let source = CidrSource::Hash;
        if self.is_resolved() {
            return self.not_reached(source);
        }
        let Some(base) = &self.base else {
            let why = "the cluster's networks are not known: network.podCIDR.base is not set";
            return self.skip(source, why);
        };
        let network = self.input.network;
        let per_node = network.pod_cidr.per_node;
        let guessed = guess::from_name(self.input.node, &base.nets, per_node)
            .and_then(|nets| check::usable(&nets).map(|()| nets))
            .and_then(|nets| check::matches_config(&nets, network).map(|()| nets));
        match (guessed, network.pod_cidr.allow_guess) {
            (Ok(nets), true) => {
                let words = Networks(nets.clone()).to_string();
                self.select(source, nets, words);
            }
            (Ok(nets), false) => {
                let nets = Networks(nets);
                self.skip(source, &format!("it would be {nets}, but {NO_GUESS}"));
            }
            (Err(problem), true) => self.refuse(source, problem),
            (Err(problem), false) => self.skip(source, &problem.to_string()),
        }
    }

    fn try_default(&mut self) {
        let source = CidrSource::Default;
        if self.is_resolved() {
            return self.not_reached(source);
        }
        let network = self.input.network;
        let nets = vec![guess::default_network()];
        let words = Networks(nets.clone()).to_string();
        if !network.pod_cidr.allow_guess {
            return self.skip(source, &format!("it would be {words}, but {NO_GUESS}"));
        }
        match check::matches_config(&nets, network) {
            Ok(()) => self.select(source, nets, words),
            Err(problem) => self.refuse(source, problem),
        }
    }

    fn is_resolved(&self) -> bool {
        self.own.is_some() || self.error.is_some()
    }

    fn select(&mut self, source: CidrSource, nets: Vec<IpNet>, words: String) {
        self.note(source.clone(), SourceResult::Selected(words));
        self.own = Some(Origin { nets, source });
    }

    fn refuse(&mut self, source: CidrSource, problem: InvalidCidrs) {
        self.note(source.clone(), SourceResult::Rejected(problem.to_string()));
        let origin = source;
        self.error = Some(PodCidrError::InvalidCidrs { origin, problem });
    }

    fn skip(&mut self, source: CidrSource, why: &str) {
        self.note(source, SourceResult::Skipped(why.to_owned()));
    }

    fn not_reached(&mut self, source: CidrSource) {
        self.note(source, SourceResult::NotReached);
    }

    fn note(&mut self, source: CidrSource, result: SourceResult) {
        self.sources.push(SourceReport { source, result });
    }

    fn end(self) -> Discovery {
        let node = self.input.node.clone();
        let (base, base_source) = match self.base {
            Some(base) => (base.nets, Some(base.source)),
            None => (Vec::new(), None),
        };
        let mut warnings = Vec::new();
        let outcome = match (self.error, self.own) {
            (Some(error), _) => Err(error),
            (None, None) => Err(PodCidrError::Unknown {
                node: node.clone(),
                sources: self.sources.clone(),
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
            sources: self.sources,
            warnings,
        }
    }
}

fn check_base(nets: &[IpNet], network: &Network) -> Result<(), InvalidCidrs> {
    check::usable(nets)?;
    check::disjoint_from_services(nets, network)
}

fn describe(report: &Report, network: &Network) -> Vec<String> {
    let mut words = Vec::new();
    if let Some(SyntaxError { line, column }) = report.broken {
        words.push(format!(
            "no YAML from line {line} column {column} on, so read line by line"
        ));
    }
    words.extend(report.node.problems.iter().cloned());
    match &report.node.networks {
        Some((key, nets)) => words.push(format!("{key} is {}", Networks(nets.clone()))),
        None if report.node.problems.is_empty() => words.push("no podCIDR".to_owned()),
        None => {}
    }
    words.extend(report.cluster.problems.iter().cloned());
    if let Some((key, nets)) = &report.cluster.networks {
        let cidrs = Networks(nets.clone());
        words.push(match check_base(nets, network) {
            Ok(()) => format!("{key} is the whole cluster's: {cidrs}"),
            Err(problem) => format!("{key}: {problem}"),
        });
    }
    words
}
