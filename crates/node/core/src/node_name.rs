//! The name of this node, as Kubernetes knows it.
//!
//! It is said by a flag, else by `NODE_NAME`, else it is the host's name, as the kubelet has it.

use std::ffi::OsStr;
use std::fmt;

/// The variable that says the node's name.
pub const VARIABLE: &str = "NODE_NAME";

/// The longest name that Kubernetes takes.
const MAX_LENGTH: usize = 253;

/// A node's name: an RFC 1123 subdomain in lower case.
///
/// It has no separator of paths in it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeName(String);

impl NodeName {
    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a text is no node's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{origin} {text:?} can't be a node's name: {trouble}; say the name that `kubectl get nodes` \
     shows by --node-name or {VARIABLE}"
)]
pub struct NodeNameError {
    text: String,
    origin: &'static str,
    trouble: String,
}

/// Finds the name: `flag`, else `variable` ([`VARIABLE`]), else the host's name. Empty ones count as
/// absent.
pub fn find(flag: Option<&str>, variable: Option<&OsStr>) -> Result<NodeName, NodeNameError> {
    let host = rustix::system::uname();
    choose(flag, variable, &host.nodename().to_string_lossy())
}

fn choose(
    flag: Option<&str>,
    variable: Option<&OsStr>,
    host: &str,
) -> Result<NodeName, NodeNameError> {
    let said = |text: &str| (!text.trim().is_empty()).then(|| text.to_owned());
    if let Some(text) = flag.and_then(said) {
        return parse(&text, "--node-name");
    }
    // What is not text becomes a text that is refused.
    let variable = variable.map(OsStr::to_string_lossy);
    if let Some(text) = variable.and_then(|text| said(&text)) {
        return parse(&text, VARIABLE);
    }
    parse(host, "the host's name")
}

fn parse(text: &str, origin: &'static str) -> Result<NodeName, NodeNameError> {
    // The kubelet does the same to whatever names the node.
    let name = text.trim().to_ascii_lowercase();
    match trouble(&name) {
        None => Ok(NodeName(name)),
        Some(trouble) => Err(NodeNameError {
            text: text.chars().take(MAX_LENGTH).collect(),
            origin,
            trouble,
        }),
    }
}

/// As Kubernetes' `IsDNS1123Subdomain`, which does not limit the parts between dots.
fn trouble(name: &str) -> Option<String> {
    if name.is_empty() {
        return Some("it is empty".to_owned());
    }
    if name.len() > MAX_LENGTH {
        return Some(format!("it is longer than {MAX_LENGTH} characters"));
    }
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let odd = name.chars().find(|&c| !is_plain(c) && c != '-' && c != '.');
    if let Some(odd) = odd {
        return Some(format!(
            "{odd:?} is none of its characters: letters, digits, '-' and '.'"
        ));
    }
    let is_sound = |part: &str| part.starts_with(is_plain) && part.ends_with(is_plain);
    let has_sound_parts = name.split('.').all(is_sound);
    (!has_sound_parts)
        .then(|| "each part between dots begins and ends with a letter or a digit".to_owned())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn chosen(flag: Option<&str>, variable: Option<&str>, host: &str) -> String {
        let name = choose(flag, variable.map(OsStr::new), host).unwrap();
        name.as_str().to_owned()
    }

    #[rstest]
    #[case(Some("flag"), Some("variable"), "flag")]
    #[case(None, Some("variable"), "variable")]
    #[case(Some(""), Some("variable"), "variable")]
    #[case(None, Some(" "), "host")]
    #[case(None, None, "host")]
    fn a_flag_wins_over_the_variable_and_that_over_the_host(
        #[case] flag: Option<&str>,
        #[case] variable: Option<&str>,
        #[case] expected: &str,
    ) {
        assert_eq!(chosen(flag, variable, "host"), expected);
    }

    #[rstest]
    #[case("Worker-1", "worker-1")]
    #[case(" worker-1\n", "worker-1")]
    #[case("ip-10-0-1-2.eu.Compute.internal", "ip-10-0-1-2.eu.compute.internal")]
    #[case("1", "1")]
    fn names_are_trimmed_and_in_lower_case(#[case] host: &str, #[case] expected: &str) {
        assert_eq!(chosen(None, None, host), expected);
    }

    #[rstest]
    #[case("my_host", "'_' is none of its characters")]
    #[case("../etc/passwd", "'/' is none of its characters")]
    #[case("knoten-ä", "'ä' is none of its characters")]
    #[case("(none)", "'(' is none of its characters")]
    #[case("-a", "begins and ends with a letter or a digit")]
    #[case("a-", "begins and ends with a letter or a digit")]
    #[case("a..b", "begins and ends with a letter or a digit")]
    #[case("a.-b", "begins and ends with a letter or a digit")]
    #[case(".", "begins and ends with a letter or a digit")]
    #[case("", "it is empty")]
    fn what_kubernetes_would_not_take_is_refused_with_a_way_out(
        #[case] host: &str,
        #[case] trouble: &str,
    ) {
        let error = choose(None, None, host).unwrap_err().to_string();
        assert!(error.contains(trouble), "{error}");
        assert!(error.contains("the host's name"), "{error}");
        assert!(error.contains("by --node-name or NODE_NAME"), "{error}");
    }

    #[test]
    fn a_bad_flag_does_not_fall_back_to_the_host() {
        let error = choose(Some("a b"), None, "host").unwrap_err().to_string();
        assert!(error.contains("--node-name \"a b\""), "{error}");
    }

    #[test]
    fn a_variable_that_is_not_text_is_refused() {
        use std::os::unix::ffi::OsStrExt;
        let variable = OsStr::from_bytes(b"worker-\xff");
        let error = choose(None, Some(variable), "host").unwrap_err();
        assert!(error.to_string().starts_with("NODE_NAME"), "{error}");
    }

    #[test]
    fn a_name_has_253_characters_at_most() {
        assert_eq!(chosen(None, None, &"a".repeat(253)).len(), 253);
        let error = choose(None, None, &"a".repeat(254)).unwrap_err();
        assert!(error.to_string().contains("longer than 253"), "{error}");
    }

    #[test]
    fn the_host_has_a_name() {
        let of_host = rustix::system::uname();
        let expected = of_host.nodename().to_string_lossy().to_lowercase();
        match find(None, None) {
            Ok(name) => assert_eq!(name.as_str(), expected),
            Err(error) => assert!(trouble(&expected).is_some(), "{error}"),
        }
    }
}
