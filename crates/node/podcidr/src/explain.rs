//! The explanation of a discovery, for `headcni-daemon podcidr` and for errors.

use std::fmt;

use super::{Discovery, SourceReport, SourceResult};
use node_config::Networks;

/// A line for the outcome, for each source and for each warning.
impl fmt::Display for Discovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let node = &self.node;
        match &self.outcome {
            Ok(networks) => {
                let local = Networks(networks.local.clone());
                let base = Networks(networks.base.clone());
                writeln!(f, "node {node}: {local}, from {}", networks.source)?;
                match &networks.base_source {
                    Some(source) => writeln!(f, "cluster: {base}, from {source}")?,
                    None => writeln!(f, "cluster: not known, so {base}")?,
                }
            }
            Err(_) => writeln!(f, "node {node}: not known")?,
        }
        writeln!(f)?;
        for SourceReport { source, result } in &self.sources {
            match result {
                SourceResult::Selected(what) => writeln!(f, "=> {source}: {what}")?,
                SourceResult::Rejected(why) => writeln!(f, "!! {source}: {why}")?,
                SourceResult::Skipped(why) => writeln!(f, "   {source}: {why}")?,
                SourceResult::NotReached => writeln!(f, "   {source}: not reached")?,
            }
        }
        if let Err(error) = &self.outcome {
            writeln!(f, "\nerror: {error}")?;
        }
        for warning in &self.warnings {
            writeln!(f, "\nwarning: {warning}")?;
        }
        Ok(())
    }
}

/// The skipped and rejected sources in one line, grouped by reason.
pub(super) fn list(sources: &[SourceReport]) -> String {
    let mut groups: Vec<(&str, Vec<String>)> = Vec::new();
    for SourceReport { source, result } in sources {
        let (SourceResult::Skipped(why) | SourceResult::Rejected(why)) = result else {
            continue;
        };
        match groups.iter_mut().find(|(known, _)| known == why) {
            Some((_, sources)) => sources.push(source.to_string()),
            None => groups.push((why, vec![source.to_string()])),
        }
    }
    let texts = groups
        .into_iter()
        .map(|(why, sources)| format!("{} ({why})", sources.join(", ")));
    texts.collect::<Vec<_>>().join("; ")
}
