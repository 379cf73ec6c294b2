//! A discovery in words: what `headcni-daemon podcidr` prints, and what an error lists.

use std::fmt;

use super::{Discovery, Looked, Verdict};
use node_config::Networks;

/// One line for the outcome, one for each source in the ladder's order, one for each warning.
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
        for Looked { source, verdict } in &self.looked {
            match verdict {
                Verdict::Won(what) => writeln!(f, "=> {source}: {what}")?,
                Verdict::Refused(why) => writeln!(f, "!! {source}: {why}")?,
                Verdict::Passed(why) => writeln!(f, "   {source}: {why}")?,
                Verdict::NotReached => writeln!(f, "   {source}: not reached")?,
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

/// What sources said who didn't win, in one line; those that say the same stand together.
pub(super) fn list(looked: &[Looked]) -> String {
    let mut groups: Vec<(&str, Vec<String>)> = Vec::new();
    for Looked { source, verdict } in looked {
        let (Verdict::Passed(why) | Verdict::Refused(why)) = verdict else {
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
