//! The path of a key: `network.podCIDR.base`, `cni.cniPlugins[1].type`.

use std::fmt;

/// Longer names are not printed: they may be secrets.
const MAX_KEY: usize = 32;
/// RFC 1123.
const MAX_NODE_NAME: usize = 253;

/// The names of a key, outermost section first.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyPath(Vec<Step>);

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    Key(String),
    /// An index of a list, from 0.
    Item(usize),
}

impl KeyPath {
    #[must_use]
    pub fn key(&self, name: &str) -> Self {
        self.with(Step::Key(name.to_owned()))
    }

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

/// Splits at dots.
impl From<&str> for KeyPath {
    fn from(text: &str) -> Self {
        let names = text.split('.').map(|name| Step::Key(name.to_owned()));
        Self(names.collect())
    }
}

/// Like `Display`, which hides possible secrets.
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
                    let name = if is_printable(before, name) {
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

/// Whether a name may be printed. It may be a value in the position of a key, as in `{apiKey, 6d1f…}`.
fn is_printable(before: Option<&Step>, name: &str) -> bool {
    let is_node = matches!(before, Some(Step::Key(table)) if table == "nodes");
    let longest = if is_node { MAX_NODE_NAME } else { MAX_KEY };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    !name.is_empty() && name.len() <= longest && name.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn a_path_has_dots_and_brackets() {
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
    fn a_name_that_may_be_a_secret_or_forge_a_line_is_hidden(
        #[case] name: &str,
        #[case] shown: &str,
    ) {
        assert_eq!(KeyPath::default().key(name).to_string(), shown);
    }

    #[test]
    fn a_long_node_name_is_printed() {
        let name = "node-1.rack-12.hall-3.site-berlin.example.org";
        let path = KeyPath::from("network.podCIDR.nodes").key(name);
        assert_eq!(path.to_string(), format!("network.podCIDR.nodes.{name}"));
    }
}
