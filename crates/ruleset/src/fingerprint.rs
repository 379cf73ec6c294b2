//! Detects foreign edits of a table.
//!
//! The kernel never reuses handles of tables, chains and rules: every edit, and restoring the ruleset
//! from a file, changes them. Comparing handles needs no decoding of rules, which contain counters.
//! [`has_contents`](crate::has_contents) compares the elements of sets.

use std::fmt::{self, Write as _};

use net::nft::{self, Policy};
use net::{NetError, Socket};

use crate::Table;

/// <https://git.kernel.org/pub/scm/linux/kernel/git/torvalds/linux.git/tree/include/uapi/linux/netfilter/nf_tables.h>
const NFT_TABLE_F_DORMANT: u32 = 1;

/// The handles of a table, its chains and its rules, as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprint(String);

impl Fingerprint {
    /// A fingerprint that was stored as text.
    pub fn from_text(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// The fingerprint of a table, if the table exists.
pub fn fingerprint(socket: &Socket, table: Table) -> Result<Option<Fingerprint>, NetError> {
    let found = inspect(socket, table.name(), table.script())?;
    Ok(found.map(|(fingerprint, _)| fingerprint))
}

/// The fingerprint of a table that was just installed; `None` if it is missing, or has been edited
/// since and is not intact.
pub fn fresh_fingerprint(socket: &Socket, table: Table) -> Result<Option<Fingerprint>, NetError> {
    let found = inspect(socket, table.name(), table.script())?;
    Ok(found.and_then(|(fingerprint, is_intact)| is_intact.then_some(fingerprint)))
}

/// Whether a table exists, is not dormant, and has all chains of the script with as many rules in
/// each. A flushed table still has its comment, so that the version alone does not prove it. The rules
/// themselves are not compared.
pub fn is_intact(socket: &Socket, name: &str, script: &str) -> Result<bool, NetError> {
    let found = inspect(socket, name, script)?;
    Ok(found.is_some_and(|(_, is_intact)| is_intact))
}

/// The fingerprint, and whether the table is intact.
fn inspect(
    socket: &Socket,
    name: &str,
    script: &str,
) -> Result<Option<(Fingerprint, bool)>, NetError> {
    let Some(info) = nft::table(socket, name)? else {
        return Ok(None);
    };
    let rules = nft::rule_handles(socket, name)?;
    let mut is_intact = info.flags & NFT_TABLE_F_DORMANT == 0;
    let mut text = format!("{} flags {}", info.handle, info.flags);
    for (wanted, count) in chains(script) {
        let _ = write!(text, "; {wanted}");
        let handles = rules.iter().filter(|(chain, _)| chain == wanted);
        is_intact &= handles.clone().count() == count;
        let Some(chain) = nft::chain(socket, name, wanted)? else {
            text.push_str(" missing");
            is_intact = false;
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
    Ok(Some((Fingerprint(text), is_intact)))
}

/// The chains of a script with their number of rules.
fn chains(script: &str) -> Vec<(&str, usize)> {
    let mut chains = Vec::new();
    let mut lines = script.lines();
    while let Some(line) = lines.next() {
        let name = line
            .strip_prefix("\tchain ")
            .and_then(|line| line.strip_suffix(" {"));
        if let Some(name) = name {
            let body = lines.by_ref().take_while(|line| *line != "\t}");
            let is_rule = |line: &str| !line.starts_with('#') && !line.starts_with("type ");
            chains.push((name, body.filter(|line| is_rule(line.trim())).count()));
        }
    }
    chains
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_and_rules_of_the_scripts_are_counted() {
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
