//! The name of this node in Kubernetes: `--node-name`, else `NODE_NAME`, else the host name, like the
//! kubelet.

use std::ffi::OsStr;
use std::fmt;

pub const VARIABLE: &str = "NODE_NAME";

/// The limit of Kubernetes.
const MAX_LENGTH: usize = 253;

/// An RFC 1123 subdomain in lower case, so it is also a safe file name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeName(String);

impl NodeName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{origin} {text:?} is no valid node name: {reason}; set --node-name or {VARIABLE} to the name that \
     `kubectl get nodes` shows"
)]
pub struct NodeNameError {
    text: String,
    origin: &'static str,
    reason: String,
}

/// `variable` is the value of [`VARIABLE`]. Empty values count as absent.
pub fn find(flag: Option<&str>, variable: Option<&OsStr>) -> Result<NodeName, NodeNameError> {
    let host = rustix::system::uname();
    choose(flag, variable, &host.nodename().to_string_lossy())
}

fn choose(
    flag: Option<&str>,
    variable: Option<&OsStr>,
    host: &str,
) -> Result<NodeName, NodeNameError> {
    let non_empty = |text: &str| (!text.trim().is_empty()).then(|| text.to_owned());
    if let Some(text) = flag.and_then(non_empty) {
        return parse(&text, "--node-name");
    }
    // Invalid UTF-8 becomes U+FFFD, which is rejected below.
    let variable = variable.map(OsStr::to_string_lossy);
    if let Some(text) = variable.and_then(|text| non_empty(&text)) {
        return parse(&text, VARIABLE);
    }
    parse(host, "the host name")
}

fn parse(text: &str, origin: &'static str) -> Result<NodeName, NodeNameError> {
    // Like the kubelet.
    let name = text.trim().to_ascii_lowercase();
    match invalid_reason(&name) {
        None => Ok(NodeName(name)),
        Some(reason) => Err(NodeNameError {
            text: text.chars().take(MAX_LENGTH).collect(),
            origin,
            reason,
        }),
    }
}

/// Like Kubernetes' `IsDNS1123Subdomain`, which does not limit the length of labels.
fn invalid_reason(name: &str) -> Option<String> {
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
            "it contains {odd:?}; allowed are letters, digits, '-' and '.'"
        ));
    }
    let is_valid = |part: &str| part.starts_with(is_plain) && part.ends_with(is_plain);
    let is_valid = name.split('.').all(is_valid);
    (!is_valid).then(|| "each label must start and end with a letter or a digit".to_owned())
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
    #[case("my_host", "it contains '_'")]
    #[case("../etc/passwd", "it contains '/'")]
    #[case("knoten-ä", "it contains 'ä'")]
    #[case("(none)", "it contains '('")]
    #[case("-a", "must start and end with a letter or a digit")]
    #[case("a-", "must start and end with a letter or a digit")]
    #[case("a..b", "must start and end with a letter or a digit")]
    #[case("a.-b", "must start and end with a letter or a digit")]
    #[case(".", "must start and end with a letter or a digit")]
    #[case("", "it is empty")]
    fn an_invalid_name_is_rejected_with_a_remedy(#[case] host: &str, #[case] reason: &str) {
        let error = choose(None, None, host).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
        assert!(error.contains("the host name"), "{error}");
        assert!(error.contains("set --node-name or NODE_NAME"), "{error}");
    }

    #[test]
    fn a_bad_flag_does_not_fall_back_to_the_host() {
        let error = choose(Some("a b"), None, "host").unwrap_err().to_string();
        assert!(error.contains("--node-name \"a b\""), "{error}");
    }

    #[test]
    fn a_variable_that_is_not_utf8_is_rejected() {
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
    fn the_host_name_is_the_default() {
        let of_host = rustix::system::uname();
        let expected = of_host.nodename().to_string_lossy().to_lowercase();
        match find(None, None) {
            Ok(name) => assert_eq!(name.as_str(), expected),
            Err(error) => assert!(invalid_reason(&expected).is_some(), "{error}"),
        }
    }
}
