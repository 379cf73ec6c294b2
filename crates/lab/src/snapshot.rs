//! The state of a node as lines of text, to assert that nothing remains.

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::ignore::Ignore;
use crate::netns::Netns;
use crate::node::Node;
use crate::wait::eventually;

/// How long the kernel may take to remove the links of a deleted netns.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Longer files are shown as a hash.
const SHOWN_BYTES: usize = 300;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Section {
    Links,
    Addresses,
    Routes,
    PolicyRules,
    Neighbours,
    Iptables,
    Nft,
    Files,
}

/// The state of a node's network and files.
#[derive(Clone)]
pub struct Snapshot {
    lines: BTreeMap<Section, Vec<String>>,
    dirs: Vec<String>,
    ignore: Ignore,
}

impl Snapshot {
    pub(crate) fn take(node: &Node, dirs: &[&str]) -> Result<Self> {
        // The kernel adds IPv6 link-local addresses asynchronously.
        let mut addresses = node.addresses()?;
        addresses.retain(|address| !address.cidr.starts_with("fe80:"));
        let mut routes = node.routes()?;
        routes.retain(|route| !follows_from_address(route));
        let addresses = addresses
            .iter()
            .map(|a| format!("{} dev {}", a.cidr, a.dev));
        let mut files = Vec::new();
        for dir in dirs {
            list_files(&node.path(dir), dir, &mut files)?;
        }
        let mut lines = BTreeMap::from([
            (Section::Links, node.links()?),
            (Section::Addresses, addresses.collect()),
            (Section::Routes, routes),
            (Section::PolicyRules, ip_lines(node, &["rule"])?),
            // Learned neighbours come and go.
            (
                Section::Neighbours,
                ip_lines(node, &["neighbour", "show", "nud", "permanent"])?,
            ),
            (Section::Iptables, node.iptables_lines()?),
            (Section::Nft, node.nft_lines()?),
            (Section::Files, files),
        ]);
        for lines in lines.values_mut() {
            lines.sort();
        }
        let dirs = dirs.iter().map(ToString::to_string).collect();
        Ok(Self {
            lines,
            dirs,
            ignore: Ignore::new(),
        })
    }

    /// Leaves these out, here and in what [`Node::assert_unchanged`] compares.
    #[must_use]
    pub fn ignoring(mut self, ignore: Ignore) -> Self {
        for (section, lines) in &mut self.lines {
            lines.retain(|line| !ignore.covers(*section, line));
        }
        self.ignore = self.ignore.and(ignore);
        self
    }

    /// Removed (`-`) and added (`+`) lines.
    pub fn difference(&self, later: &Self) -> String {
        let mut text = String::new();
        for (section, lines) in &self.lines {
            let now = later.lines.get(section).map_or(&[][..], Vec::as_slice);
            let gone = surplus(lines, now).map(|line| format!("  - {line}\n"));
            let new = surplus(now, lines).map(|line| format!("  + {line}\n"));
            let changes: String = gone.chain(new).collect();
            if !changes.is_empty() {
                let _ = write!(text, "{section:?}\n{changes}");
            }
        }
        text
    }

    /// The error is the difference.
    pub(crate) fn await_same(&self, node: &Node) -> Result<(), String> {
        let dirs: Vec<_> = self.dirs.iter().map(String::as_str).collect();
        let mut difference = String::new();
        let same = eventually(TIMEOUT, "unchanged", || {
            difference = match Self::take(node, &dirs) {
                Ok(now) => self.difference(&now.ignoring(self.ignore.clone())),
                Err(error) => format!("no snapshot: {error:#}\n"),
            };
            difference.is_empty().then_some(())
        });
        same.map_err(|_| difference)
    }
}

impl PartialEq for Snapshot {
    fn eq(&self, other: &Self) -> bool {
        self.lines == other.lines
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (section, lines) in &self.lines {
            writeln!(f, "{section:?}")?;
            lines
                .iter()
                .try_for_each(|line| writeln!(f, "    {line}"))?;
        }
        Ok(())
    }
}

/// Whether the kernel derives the route from an address.
fn follows_from_address(route: &str) -> bool {
    let is_local = route.starts_with("local ") || route.contains(" table local proto kernel ");
    is_local || route.starts_with("fe80::/64 ")
}

/// The lines that occur more often in `some` than in `others`.
fn surplus<'a>(some: &'a [String], others: &[String]) -> impl Iterator<Item = &'a String> {
    let mut left = others.to_vec();
    some.iter().filter(
        move |line| match left.iter().position(|other| other == *line) {
            Some(found) => {
                left.remove(found);
                false
            }
            None => true,
        },
    )
}

fn ip_lines(node: &Node, args: &[&str]) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    for family in ["-4", "-6"] {
        let text = node.run(["ip", family].iter().chain(args))?.stdout;
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        lines.extend(text.lines().map(|line| format!("{family} {}", words(line))));
    }
    Ok(lines)
}

/// `name` is the node's path of `dir`. Empty directories are left out.
fn list_files(dir: &Path, name: &str, files: &mut Vec<String>) -> Result<()> {
    let list = match fs::read_dir(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        list => list.with_context(|| format!("list {name}"))?,
    };
    for entry in list {
        let entry = entry.with_context(|| format!("list {name}"))?;
        let name = format!(
            "{}/{}",
            name.trim_end_matches('/'),
            entry.file_name().display()
        );
        let about = entry.metadata().with_context(|| format!("stat {name}"))?;
        if about.is_dir() {
            list_files(&entry.path(), &name, files)?;
        } else {
            let mode = about.permissions().mode() & 0o7777;
            files.push(format!("{name} {mode:04o} {}", contents(&entry.path())));
        }
    }
    Ok(())
}

fn contents(path: &Path) -> String {
    if let Ok(target) = fs::read_link(path) {
        return format!("-> {}", target.display());
    }
    match fs::read(path) {
        Ok(bytes) if bytes.len() <= SHOWN_BYTES => format!("{:?}", String::from_utf8_lossy(&bytes)),
        Ok(bytes) => {
            let mut hasher = DefaultHasher::new();
            bytes.hash(&mut hasher);
            format!("{} bytes, hash {:016x}", bytes.len(), hasher.finish())
        }
        // A socket, for example.
        Err(error) => format!("({})", error.kind()),
    }
}
