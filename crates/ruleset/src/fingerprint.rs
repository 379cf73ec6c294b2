//! Whether a table is as it was when we last looked.
//!
//! The kernel numbers tables, chains and rules, and uses no number of a table twice: whoever adds,
//! replaces or deletes a rule, or puts back the whole ruleset from a file, leaves other numbers
//! behind. So numbers are compared and not what the rules say, which has counters in it and would
//! have to be compiled to be compared. What the sets hold is another question: [`Contents`].
//!
//! [`Contents`]: crate::Contents

use std::fmt::{self, Write as _};

use net::nft::{self, Policy};
use net::{NetError, Socket};

use crate::Table;

/// <https://git.kernel.org/pub/scm/linux/kernel/git/torvalds/linux.git/tree/include/uapi/linux/netfilter/nf_tables.h>
const NFT_TABLE_F_DORMANT: u32 = 1;

/// The numbers of a table, its chains and its rules, as a text that can be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprint(String);

impl Fingerprint {
    /// One that was kept as a text.
    pub fn kept(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// The fingerprint of a table; nothing if it is missing.
pub fn fingerprint(socket: &Socket, table: Table) -> Result<Option<Fingerprint>, NetError> {
    let found = look(socket, table.name(), table.script())?;
    Ok(found.map(|(mark, _)| mark))
}

/// The fingerprint of a table that was put in place a moment ago; nothing if somebody was at it
/// since, and rules are missing or too many.
pub fn fresh_fingerprint(socket: &Socket, table: Table) -> Result<Option<Fingerprint>, NetError> {
    let found = look(socket, table.name(), table.script())?;
    Ok(found.and_then(|(mark, is_whole)| is_whole.then_some(mark)))
}

/// Whether a table of the family `inet` is there, and has all chains of a script with as many rules in
/// each: whoever flushes a table leaves its comment, and all else that it is known by. What the rules say
/// is not looked at.
pub fn is_whole(socket: &Socket, name: &str, script: &str) -> Result<bool, NetError> {
    let found = look(socket, name, script)?;
    Ok(found.is_some_and(|(_, is_whole)| is_whole))
}

/// The fingerprint, and whether the table works and each chain has as many rules as the script says.
fn look(
    socket: &Socket,
    name: &str,
    script: &str,
) -> Result<Option<(Fingerprint, bool)>, NetError> {
    let Some(facts) = nft::table(socket, name)? else {
        return Ok(None);
    };
    let rules = nft::rule_handles(socket, name)?;
    let mut is_whole = facts.flags & NFT_TABLE_F_DORMANT == 0;
    let mut text = format!("{} flags {}", facts.handle, facts.flags);
    for (wanted, count) in chains(script) {
        let _ = write!(text, "; {wanted}");
        let handles = rules.iter().filter(|(chain, _)| chain == wanted);
        is_whole &= handles.clone().count() == count;
        let Some(chain) = nft::chain(socket, name, wanted)? else {
            text.push_str(" missing");
            is_whole = false;
            continue;
        };
        let _ = write!(text, " {}", chain.handle);
        if let Some((hook, priority)) = chain.hook {
            let policy = match chain.policy {
                Policy::Accept => "accept",
                Policy::Drop => "drop",
            };
            let _ = write!(text, " {policy} {hook} {priority}");
        }
        text.push(':');
        for (_, handle) in handles {
            let _ = write!(text, " {handle}");
        }
    }
    Ok(Some((Fingerprint(text), is_whole)))
}

/// The chains that a script has, and how many rules are in each.
fn chains(script: &str) -> Vec<(&str, usize)> {
    let mut chains = Vec::new();
    let mut lines = script.lines();
    while let Some(line) = lines.next() {
        let name = line
            .strip_prefix("\tchain ")
            .and_then(|line| line.strip_suffix(" {"));
        if let Some(name) = name {
            let inside = lines.by_ref().take_while(|line| *line != "\t}");
            let is_rule = |line: &str| !line.starts_with('#') && !line.starts_with("type ");
            chains.push((name, inside.filter(|line| is_rule(line.trim())).count()));
        }
    }
    chains
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_chains_are_known_with_their_rules() {
        let chains = super::chains(Table::Ports.script());
        let expected = [
            ("host_ports", 9),
            ("prerouting", 2),
            ("output", 1),
            ("postrouting", 2),
        ];
        assert_eq!(chains, expected);
        let script = Table::Pods.script();
        let chains = super::chains(script);
        assert_eq!(chains.len(), script.matches("\tchain ").count());
        assert!(chains.contains(&("to_pods", 3)), "{chains:?}");
    }
}
