//! What this node is called in the mesh.

use node_core::hash::fnv1a;
use node_core::node_name::NodeName;

/// The longest name of one label, and the shortest that Headscale takes. It calls whoever has another
/// `invalid-…`, and 0.26 does not let it in.
const LENGTHS: std::ops::RangeInclusive<usize> = 2..=63;

/// The name that was said, else the node's own, if the server takes it as it is. If not, as much of it
/// as there is room for, and a hash of the whole: two long names may begin alike.
pub(crate) fn hostname(said: Option<&str>, node: &NodeName) -> String {
    if let Some(said) = said {
        return said.to_owned();
    }
    let name = node.as_str();
    if LENGTHS.contains(&name.len()) {
        return name.to_owned();
    }
    let end = format!("-{:08x}", fnv1a(name.as_bytes()) >> 32);
    // A node's name is ASCII, and its parts begin and end with a letter or a digit.
    let start: String = name.chars().take(LENGTHS.end() - end.len()).collect();
    let start = start.replace('.', "-");
    format!("{}{end}", start.trim_end_matches('-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> String {
        hostname(None, &node_core::node_name::find(Some(text), None).unwrap())
    }

    #[test]
    fn a_name_that_servers_take_stays_and_one_that_was_said_wins() {
        let aws = "ip-10-0-1-2.eu-central-1.compute.internal";
        for text in ["n1", "node-1", aws, &"a".repeat(63)] {
            assert_eq!(name(text), text);
        }
        let node = node_core::node_name::find(Some(aws), None).unwrap();
        assert_eq!(hostname(Some("node-7"), &node), "node-7");
    }

    #[test]
    fn a_name_that_is_too_long_or_too_short_becomes_one_label() {
        let long = "edge.".repeat(20);
        let ends = ["a", "b"].map(|end| name(&format!("{long}{end}")));
        assert_ne!(ends[0], ends[1], "they begin alike");
        let short = name("n");
        assert!(short.starts_with("n-"), "{short}");
        let cut_at_a_hyphen = name(&format!("{}-{}", "a".repeat(53), "b".repeat(20)));
        assert!(!cut_at_a_hyphen.contains("--"), "{cut_at_a_hyphen}");
        for name in [&ends[0], &ends[1], &short, &cut_at_a_hyphen] {
            assert!(LENGTHS.contains(&name.len()), "{name}");
            let is_label = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            assert!(name.chars().all(is_label) && !name.ends_with('-'), "{name}");
        }
        // These never change: a node is known by its name after it was made anew.
        let cut = format!("{}-db007849", "a".repeat(54));
        assert_eq!(name(&"a".repeat(64)), cut);
    }
}
