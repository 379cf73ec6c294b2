//! Whether a process is ours, and whether it runs as it should.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::options::{INHERITED, SOCKET, STATE_DIR, Tailscaled, flag_with};
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
    /// Whether a process is the one of these settings: it has our state directory or our socket,
    /// whatever else it was told, and whatever its program is called. One that is to have another state
    /// directory is still in the way of a second one: at the socket, and with its interface and rules.
    pub(super) fn owns(&self, identity: Identity) -> bool {
        let Ok(arguments) = identity.arguments() else {
            return false;
        };
        // With the processes of containers in sight, a path alone says little.
        let inside = |path: &Path| {
            let within = path.strip_prefix("/").unwrap_or(path);
            Path::new(&format!("/proc/{}/root", identity.pid)).join(within)
        };
        let is_same_dir = |dir: &&Path| {
            let theirs = inode(&inside(dir)).ok();
            theirs.is_some() && theirs == inode(dir).ok()
        };
        self.dirs_named(&arguments).iter().any(is_same_dir)
    }

    /// Which directories of ours a command line names, if it is one of a tailscaled that we start: all of
    /// it are flags, each with its value. So no tool that is told the same paths is taken for one.
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

    /// The state directory of the one that runs, if one does: after a change of the configuration it may
    /// be another. It blocks.
    pub fn state_dir_in_use(&self) -> Option<PathBuf> {
        let arguments = self.find()?.arguments().ok()?;
        let mut words = arguments.iter().map(|word| word.as_encoded_bytes());
        let dir = words.find_map(|word| word.strip_prefix(STATE_DIR.as_bytes()))?;
        Some(OsStr::from_bytes(dir).into())
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

fn begins_with(word: &OsStr, prefix: &str) -> bool {
    word.as_encoded_bytes().starts_with(prefix.as_bytes())
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
    for name in INHERITED {
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
    fn ours_is_what_has_our_state_directory_or_our_socket() {
        let settings = Tailscaled::new("/new/tailscaled", "/var/lib/x", "/run/x/ts.sock");
        let dirs = |line: &str| {
            let line: Vec<&str> = line.split_whitespace().collect();
            let named = settings.dirs_named(&words(&line)).into_iter();
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
