//! Where something stands in the configuration: `network.podCIDR.base`, `cni.cniPlugins[1].type`.

use std::fmt;

/// The longest name of a key that is shown. Ours are shorter; a secret is likely not.
const LONGEST_SHOWN: usize = 32;
/// The longest name of a node (RFC 1123).
const LONGEST_NODE: usize = 253;

/// A key's names from the outermost section on.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyPath(Vec<Step>);

/// A part of a path.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    /// A key of a mapping.
    Key(String),
    /// A member of a list, counted from 0.
    Item(usize),
}

impl KeyPath {
    /// Goes on to a key.
    #[must_use]
    pub fn key(&self, name: &str) -> Self {
        self.with(Step::Key(name.to_owned()))
    }

    /// Goes on to a member of a list.
    #[must_use]
    pub fn item(&self, index: usize) -> Self {
        self.with(Step::Item(index))
    }

    fn with(&self, step: Step) -> Self {
        let mut steps = self.0.clone();
        steps.push(step);
        Self(steps)
    }

    pub(super) fn steps(&self) -> &[Step] {
        &self.0
    }
}

/// Of names with dots between them, none of which has a dot of its own.
impl From<&str> for KeyPath {
    fn from(text: &str) -> Self {
        let names = text.split('.').map(|name| Step::Key(name.to_owned()));
        Self(names.collect())
    }
}

/// As it is shown: names that are not shown are not debugged either.
impl fmt::Debug for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

impl fmt::Display for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, step) in self.0.iter().enumerate() {
            match step {
                Step::Item(item) => write!(f, "[{item}]")?,
                Step::Key(name) => {
                    let dot = if index == 0 { "" } else { "." };
                    let before = index.checked_sub(1).map(|before| &self.0[before]);
                    let name = if is_shown(before, name) {
                        name
                    } else {
                        "<not shown>"
                    };
                    write!(f, "{dot}{name}")?;
                }
            }
        }
        Ok(())
    }
}

/// Whether a key of that name may stand in an error: a value that slipped into a key's place, as in
/// `{apiKey, 6d1f…}`, may not.
fn is_shown(before: Option<&Step>, name: &str) -> bool {
    let is_node = matches!(before, Some(Step::Key(table)) if table == "nodes");
    let longest = if is_node { LONGEST_NODE } else { LONGEST_SHOWN };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    !name.is_empty() && name.len() <= longest && name.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn a_path_is_written_with_dots_and_brackets() {
        let path = KeyPath::from("cni.cniPlugins").item(1).key("type");
        assert_eq!(path.to_string(), "cni.cniPlugins[1].type");
        assert_eq!(KeyPath::default().to_string(), "");
    }

    #[rstest]
    #[case("podCIDR", "podCIDR")]
    #[case("two words", "<not shown>")]
    #[case("line\nbreak", "<not shown>")]
    #[case("6d1f6d1f6d1f6d1f6d1f6d1f6d1f6d1f6", "<not shown>")]
    #[case("", "<not shown>")]
    fn a_name_that_may_be_a_secret_or_forge_a_line_is_not_shown(
        #[case] name: &str,
        #[case] shown: &str,
    ) {
        assert_eq!(KeyPath::default().key(name).to_string(), shown);
    }

    #[test]
    fn a_node_is_shown_by_its_name_however_long() {
        let name = "node-1.rack-12.hall-3.site-berlin.example.org";
        let path = KeyPath::from("network.podCIDR.nodes").key(name);
        assert_eq!(path.to_string(), format!("network.podCIDR.nodes.{name}"));
    }
}
