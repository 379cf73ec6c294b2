//! Recognises our tailscaled process, and compares it with the spec.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::process::{Identity, inode};
use super::spec::{INHERITED, SOCKET, STATE_DIR, TailscaledSpec, flag_with};

/// How a running tailscaled differs from its spec. Only a restart changes that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Drift {
    /// The executable was replaced.
    Program,
    /// These arguments are missing.
    Arguments(Vec<OsString>),
    /// This environment variable is missing, extra, or has another value.
    Variable(OsString),
    Netns,
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Program => f.write_str("executable replaced"),
            Self::Arguments(missing) => {
                let missing: Vec<_> = missing.iter().map(|word| word.to_string_lossy()).collect();
                write!(f, "missing arguments {}", missing.join(" "))
            }
            // Not the value: proxy URLs contain passwords.
            Self::Variable(name) => write!(f, "different {}", name.display()),
            Self::Netns => f.write_str("different netns"),
        }
    }
}

impl TailscaledSpec {
    /// Whether a process is our tailscaled: it uses our state directory or our socket, whatever its
    /// executable and other flags are. After a change of the state directory the old process still
    /// occupies the socket, the interface and the rules.
    pub(super) fn matches(&self, identity: Identity) -> bool {
        let Ok(arguments) = identity.arguments() else {
            return false;
        };
        // A process of a container may have the same path in another mount namespace.
        let inside = |path: &Path| {
            let within = path.strip_prefix("/").unwrap_or(path);
            Path::new(&format!("/proc/{}/root", identity.pid)).join(within)
        };
        let is_same_dir = |dir: &&Path| {
            let found = inode(&inside(dir)).ok();
            found.is_some() && found == inode(dir).ok()
        };
        self.dirs_named(&arguments).iter().any(is_same_dir)
    }

    /// The directories of this spec in a command line that consists only of `--flag=value`, as we start
    /// tailscaled. Tools that get the same paths as arguments don't match.
    fn dirs_named(&self, arguments: &[OsString]) -> Vec<&Path> {
        let flags = arguments.get(1..).unwrap_or_default();
        let has = |prefix: &str| flags.iter().any(|word| begins_with(word, prefix));
        let is_tailscaled = flags.iter().all(|word| begins_with(word, "--"))
            && ["--tun=", STATE_DIR, SOCKET].into_iter().all(has);
        if !is_tailscaled {
            return Vec::new();
        }
        let ours = [
            (STATE_DIR, &self.state_dir, Some(self.state_dir.as_path())),
            (SOCKET, &self.socket, self.socket.parent()),
        ];
        let named = ours
            .into_iter()
            .filter(|(flag, path, _)| flags.contains(&flag_with(flag, path)));
        named.filter_map(|(_, _, dir)| dir).collect()
    }

    /// The state directory of the running process, which may be that of an earlier configuration. Blocks.
    pub fn running_state_dir(&self) -> Option<PathBuf> {
        let arguments = self.find()?.arguments().ok()?;
        let mut words = arguments.iter().map(|word| word.as_encoded_bytes());
        let dir = words.find_map(|word| word.strip_prefix(STATE_DIR.as_bytes()))?;
        Some(OsStr::from_bytes(dir).into())
    }

    /// What can't be read is not reported.
    pub(super) fn drift(
        &self,
        identity: Identity,
        variables: &BTreeMap<OsString, OsString>,
    ) -> Vec<Drift> {
        let mut found = Vec::new();
        let ours = inode(&self.program).ok();
        if ours.is_some() && identity.program().ok() != ours {
            found.push(Drift::Program);
        }
        if let Ok(arguments) = identity.arguments() {
            let desired = self.arguments().into_iter();
            let missing: Vec<_> = desired.filter(|word| !arguments.contains(word)).collect();
            if !missing.is_empty() {
                found.push(Drift::Arguments(missing));
            }
        }
        if let Ok(environment) = identity.environment() {
            found.extend(changed_variables(&environment, variables));
        }
        let netns = self
            .netns
            .as_deref()
            .unwrap_or(Path::new("/proc/self/ns/net"));
        let (theirs, ours) = (identity.netns().ok(), inode(netns).ok());
        if theirs.is_some() && ours.is_some() && theirs != ours {
            found.push(Drift::Netns);
        }
        found
    }
}

fn begins_with(word: &OsStr, prefix: &str) -> bool {
    word.as_encoded_bytes().starts_with(prefix.as_bytes())
}

/// `PATH` is ignored: it depends on how this process was started.
fn changed_variables(
    environment: &[OsString],
    desired: &BTreeMap<OsString, OsString>,
) -> Vec<Drift> {
    let has = |name: &OsStr, value: &OsStr| {
        let mut word = name.to_owned();
        word.push("=");
        word.push(value);
        environment.contains(&word)
    };
    let relevant = desired.iter().filter(|(name, _)| *name != "PATH");
    let changed = relevant.filter(|(name, value)| !has(name, value));
    let mut names: Vec<OsString> = changed.map(|(name, _)| name.clone()).collect();
    // Variables that it would not inherit now.
    for name in INHERITED {
        let is_there = |word: &OsString| {
            let text = word.as_encoded_bytes();
            text.strip_prefix(name.as_bytes())
                .is_some_and(|rest| rest.starts_with(b"="))
        };
        if name != "PATH"
            && !desired.contains_key(OsStr::new(name))
            && environment.iter().any(is_there)
        {
            names.push(name.into());
        }
    }
    names.into_iter().map(Drift::Variable).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<OsString> {
        words.iter().map(Into::into).collect()
    }

    #[test]
    fn a_process_matches_by_state_directory_or_socket() {
        let spec = TailscaledSpec::new("/new/tailscaled", "/var/lib/x", "/run/x/ts.sock");
        let dirs = |line: &str| {
            let line: Vec<&str> = line.split_whitespace().collect();
            let named = spec.dirs_named(&words(&line)).into_iter();
            let named = named.map(|dir| dir.display().to_string());
            named.collect::<Vec<_>>()
        };
        let rest = "--tun=y --port=1";
        let both = format!("/old/other {rest} --statedir=/var/lib/x --socket=/run/x/ts.sock");
        assert_eq!(dirs(&both), ["/var/lib/x", "/run/x"]);
        let moved = format!("/old/tailscaled {rest} --statedir=/y --socket=/run/x/ts.sock");
        assert_eq!(dirs(&moved), ["/run/x"]);
        let other = format!("/old/tailscaled {rest} --statedir=/y --socket=/run/y/ts.sock");
        assert_eq!(dirs(&other), [""; 0]);
        for line in [
            "",
            "/bin/grep --statedir=/var/lib/x",
            "/bin/tailscale --socket=/run/x/ts.sock status",
            &format!("/bin/strace {both}"),
        ] {
            assert_eq!(dirs(line), [""; 0], "{line}");
        }
    }

    #[test]
    fn missing_and_extra_variables_are_drift() {
        let desired: BTreeMap<OsString, OsString> = [("PATH", "/a"), ("SSL_CERT_FILE", "/ca")]
            .map(|(name, value)| (name.into(), value.into()))
            .into();
        let changed = |environment: &[&str]| -> Vec<String> {
            let found = changed_variables(&words(environment), &desired);
            found.iter().map(ToString::to_string).collect()
        };
        assert_eq!(
            changed(&["PATH=/b", "SSL_CERT_FILE=/ca", "HOME=/"]),
            [""; 0]
        );
        assert_eq!(changed(&["PATH=/b"]), ["different SSL_CERT_FILE"]);
        assert_eq!(
            changed(&["SSL_CERT_FILE=/ca", "HTTPS_PROXY=http://me:secret@x"]),
            ["different HTTPS_PROXY"]
        );
    }
}
