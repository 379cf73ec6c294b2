//! Whether a process is ours, and whether it runs as it should.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::Path;

use super::Tailscaled;
use super::process::{Identity, inode};

/// What of a running tailscaled is not as it should be. Only a restart changes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    /// The program was replaced since.
    Program,
    /// It was started with other arguments: these are missing.
    Arguments(Vec<OsString>),
    /// It was started with another value, or none, of this variable.
    Variable(OsString),
    /// It is in another network namespace.
    Namespace,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Program => f.write_str("its program was replaced"),
            Self::Arguments(missing) => {
                let missing: Vec<_> = missing.iter().map(|word| word.to_string_lossy()).collect();
                write!(f, "it runs without {}", missing.join(" "))
            }
            // Not its value: proxies are named with passwords.
            Self::Variable(name) => write!(f, "it has another {}", name.display()),
            Self::Namespace => f.write_str("it is in another network namespace"),
        }
    }
}

impl Tailscaled {
    /// Whether a process is one of this state directory, whatever else it was told.
    pub(super) fn owns(&self, identity: Identity) -> bool {
        let Ok(arguments) = identity.arguments() else {
            return false;
        };
        // With the processes of containers in sight, a path alone says little.
        let inside = |path: &Path| {
            let within = path.strip_prefix("/").unwrap_or(path);
            Path::new(&format!("/proc/{}/root", identity.pid)).join(within)
        };
        let is_same_dir = || {
            let theirs = inode(&inside(&self.state_dir)).ok();
            theirs.is_some() && theirs == inode(&self.state_dir).ok()
        };
        self.is_command_line(&arguments) && is_same_dir()
    }

    fn is_command_line(&self, arguments: &[OsString]) -> bool {
        let Some((program, rest)) = arguments.split_first() else {
            return false;
        };
        let mut state_dir = OsString::from("--statedir=");
        state_dir.push(&self.state_dir);
        Path::new(program).file_name() == self.program.file_name() && rest.contains(&state_dir)
    }

    /// What of a process of ours is not as it should be. What can't be seen is taken for right.
    pub(super) fn differences(
        &self,
        identity: Identity,
        variables: &BTreeMap<OsString, OsString>,
    ) -> Vec<Difference> {
        let mut found = Vec::new();
        let ours = inode(&self.program).ok();
        if ours.is_some() && identity.program().ok() != ours {
            found.push(Difference::Program);
        }
        if let Ok(arguments) = identity.arguments() {
            let wanted = self.arguments().into_iter();
            let missing: Vec<_> = wanted.filter(|word| !arguments.contains(word)).collect();
            if !missing.is_empty() {
                found.push(Difference::Arguments(missing));
            }
        }
        if let Ok(environment) = identity.environment() {
            found.extend(other_variables(&environment, variables));
        }
        let netns = self
            .netns
            .as_deref()
            .unwrap_or(Path::new("/proc/self/ns/net"));
        let (theirs, ours) = (identity.netns().ok(), inode(netns).ok());
        if theirs.is_some() && ours.is_some() && theirs != ours {
            found.push(Difference::Namespace);
        }
        found
    }
}

/// Which variables are not as wanted. The search path is left out: it depends on who started us.
fn other_variables(
    environment: &[OsString],
    wanted: &BTreeMap<OsString, OsString>,
) -> Vec<Difference> {
    let has = |name: &OsStr, value: &OsStr| {
        let mut word = name.to_owned();
        word.push("=");
        word.push(value);
        environment.contains(&word)
    };
    let relevant = wanted.iter().filter(|(name, _)| *name != "PATH");
    let other = relevant.filter(|(name, value)| !has(name, value));
    let mut names: Vec<OsString> = other.map(|(name, _)| name.clone()).collect();
    // What it has from earlier times, and would not get now.
    for name in super::INHERITED {
        let is_there = |word: &OsString| {
            let text = word.as_encoded_bytes();
            text.strip_prefix(name.as_bytes())
                .is_some_and(|rest| rest.starts_with(b"="))
        };
        if name != "PATH"
            && !wanted.contains_key(OsStr::new(name))
            && environment.iter().any(is_there)
        {
            names.push(name.into());
        }
    }
    names.into_iter().map(Difference::Variable).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<OsString> {
        words.iter().map(Into::into).collect()
    }

    #[test]
    fn ours_is_what_has_our_state_directory() {
        let settings = Tailscaled::new("/new/tailscaled", "/var/lib/x", "/run/x.sock");
        let is_ours = |line: &[&str]| settings.is_command_line(&words(line));
        assert!(is_ours(&[
            "/old/tailscaled",
            "--port=1",
            "--statedir=/var/lib/x"
        ]));
        assert!(!is_ours(&["/old/tailscaled", "--statedir=/var/lib/y"]));
        assert!(!is_ours(&["/bin/grep", "--statedir=/var/lib/x"]));
        assert!(!is_ours(&[]));
    }

    #[test]
    fn variables_are_compared_both_ways() {
        let wanted: BTreeMap<OsString, OsString> = [("PATH", "/a"), ("SSL_CERT_FILE", "/ca")]
            .map(|(name, value)| (name.into(), value.into()))
            .into();
        let other = |environment: &[&str]| -> Vec<String> {
            let found = other_variables(&words(environment), &wanted);
            found.iter().map(ToString::to_string).collect()
        };
        assert_eq!(other(&["PATH=/b", "SSL_CERT_FILE=/ca", "HOME=/"]), [""; 0]);
        assert_eq!(other(&["PATH=/b"]), ["it has another SSL_CERT_FILE"]);
        assert_eq!(
            other(&["SSL_CERT_FILE=/ca", "HTTPS_PROXY=http://me:secret@x"]),
            ["it has another HTTPS_PROXY"]
        );
    }
}
