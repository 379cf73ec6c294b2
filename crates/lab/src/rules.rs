//! iptables and nft rules as comparable lines.

use anyhow::Result;

use crate::netns::Netns;
use crate::node::Node;

impl Node {
    /// The rules of all tables of iptables and ip6tables, one per line as a command, without counters and
    /// default chains.
    pub fn iptables_save(&self) -> Result<String> {
        Ok(self.iptables_lines()?.join("\n"))
    }

    /// The nft ruleset without counters and elements of dynamic sets. It includes the rules of
    /// iptables-nft.
    pub fn nft_ruleset(&self) -> Result<String> {
        let listing = self.run(["nft", "--stateless", "list", "ruleset"])?.stdout;
        Ok(without_dynamic_elements(&listing))
    }

    pub(crate) fn iptables_lines(&self) -> Result<Vec<String>> {
        let mut lines = Vec::new();
        for program in ["iptables", "ip6tables"] {
            let saved = self.run([format!("{program}-save")])?.stdout;
            lines.extend(saved_as_commands(program, &saved));
        }
        Ok(lines)
    }

    /// The nft ruleset without the tables of iptables-nft, which remain empty once used.
    pub(crate) fn nft_lines(&self) -> Result<Vec<String>> {
        let mut lines = flat(&self.nft_ruleset()?);
        if self
            .run(["iptables", "--version"])?
            .stdout
            .contains("nf_tables")
        {
            lines.retain(|line| !is_of_iptables(line));
        }
        Ok(lines)
    }
}

/// Removes the elements of dynamic sets, which packets add and timeouts remove, from a listing of `nft`.
pub fn without_dynamic_elements(listing: &str) -> String {
    let mut left = String::new();
    let (mut is_dynamic, mut is_within) = (false, false);
    for line in listing.lines() {
        match line.trim() {
            text if text.starts_with("flags ") => is_dynamic = text.contains("dynamic"),
            "}" => is_dynamic = false,
            text if is_dynamic && text.starts_with("elements = {") => is_within = true,
            _ => {}
        }
        if !is_within {
            left += line;
            left.push('\n');
        } else if line.ends_with('}') {
            is_within = false;
        }
    }
    left
}

/// Whether a line of [`flat`] is in `table`, such as `table inet x`.
pub(crate) fn is_in(line: &str, table: &str) -> bool {
    let rest = line.strip_prefix(table);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', ':']))
}

fn saved_as_commands(program: &str, saved: &str) -> Vec<String> {
    let mut table = "";
    let mut lines = Vec::new();
    for line in saved.lines().map(str::trim_end) {
        if let Some(name) = line.strip_prefix('*') {
            table = name;
        } else if let Some(chain) = line.strip_prefix(':') {
            let mut words = chain.split(' ');
            match (words.next(), words.next()) {
                (Some(name), Some("-")) => lines.push(format!("{program} -t {table} -N {name}")),
                // Default chains appear once a table is used.
                (_, Some("ACCEPT")) => {}
                (Some(name), Some(policy)) => {
                    lines.push(format!("{program} -t {table} -P {name} {policy}"));
                }
                _ => {}
            }
        } else if line.starts_with("-A") {
            lines.push(format!("{program} -t {table} {line}"));
        }
    }
    lines
}

fn is_of_iptables(line: &str) -> bool {
    let tables = ["filter", "nat", "mangle", "raw", "security"];
    let is_in = |family, name| is_in(line, &format!("table {family} {name}"));
    tables
        .iter()
        .any(|name| is_in("ip", name) || is_in("ip6", name))
}

/// One line per table, chain, set and rule, each prefixed with its parents.
fn flat(listing: &str) -> Vec<String> {
    let mut within: Vec<String> = Vec::new();
    let mut flat = Vec::new();
    let mut open = String::new();
    for line in listing.lines().map(str::trim) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if open.is_empty() && line == "}" {
            within.pop();
            continue;
        }
        if open.is_empty()
            && let Some(head) = line.strip_suffix(" {")
        {
            within.push(head.to_owned());
            flat.push(within.join(" "));
            continue;
        }
        // The elements of a set span several lines.
        open += line;
        if open.matches('{').count() == open.matches('}').count() {
            flat.push(format!("{}: {open}", within.join(" ")));
            open.clear();
        } else {
            open.push(' ');
        }
    }
    flat
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_of_dynamic_sets_are_removed() {
        let listing = "table inet x {\n\tset dynamic {\n\t\ttype ifname . ipv4_addr\n\
            \t\tflags dynamic,timeout\n\t\telements = { \"a\" . 10.0.0.1,\n\
            \t\t\t     \"b\" . 10.0.0.2 }\n\t}\n\tset fixed {\n\t\tflags interval\n\
            \t\telements = { 10.0.0.0/8 }\n\t}\n}\n";
        let left = "table inet x {\n\tset dynamic {\n\t\ttype ifname . ipv4_addr\n\
            \t\tflags dynamic,timeout\n\t}\n\tset fixed {\n\t\tflags interval\n\
            \t\telements = { 10.0.0.0/8 }\n\t}\n}\n";
        assert_eq!(without_dynamic_elements(listing), left);
        assert_eq!(without_dynamic_elements(left), left);
    }

    #[test]
    fn saved_rules_become_commands_without_counters_and_default_chains() {
        let saved = "# Generated by iptables-save\n*nat\n:PREROUTING ACCEPT [7:420]\n\
                     :CNI-X - [0:0]\n-A PREROUTING -j CNI-X\nCOMMIT\n\
                     *filter\n:FORWARD DROP [0:0]\nCOMMIT\n# Completed\n";
        let lines = [
            "iptables -t nat -N CNI-X",
            "iptables -t nat -A PREROUTING -j CNI-X",
            "iptables -t filter -P FORWARD DROP",
        ];
        assert_eq!(saved_as_commands("iptables", saved), lines);
    }

    #[test]
    fn each_line_of_a_ruleset_is_prefixed_with_its_parents() {
        let listing = "table inet t {\n\tset s {\n\t\ttype ipv4_addr\n\
                       \t\telements = { 10.0.0.1,\n\t\t\t     10.0.0.2 }\n\t}\n\n\
                       \tchain c {\n\t\tip saddr { 1.1.1.1 } drop\n\t}\n}\ntable ip e {\n}\n";
        let lines = [
            "table inet t",
            "table inet t set s",
            "table inet t set s: type ipv4_addr",
            "table inet t set s: elements = { 10.0.0.1, 10.0.0.2 }",
            "table inet t chain c",
            "table inet t chain c: ip saddr { 1.1.1.1 } drop",
            "table ip e",
        ];
        assert_eq!(flat(listing), lines);
    }

    #[test]
    fn tables_of_iptables_are_recognised() {
        assert!(is_of_iptables("table ip nat"));
        assert!(is_of_iptables("table ip6 filter chain FORWARD: jump X"));
        assert!(!is_of_iptables("table ip nat2"));
        assert!(!is_of_iptables("table inet filter"));
    }
}
