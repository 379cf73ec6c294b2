//! `make bench`: `delegate` is the overhead of headcni over its delegate, `ipam` is headcni-ipam against
//! host-local, `native` is the native datapath against the reference plugins and the kernel's minimum,
//! `daemon` is the daemon's memory, CPU and effect on ADD, `mesh` is pod to pod against node to node.
//!
//! Cases alternate call by call, so that a busy moment of the machine affects all of them. State is on
//! the disk of the target directory, as on a node: a tmpfs would flatter us.

mod burst;
mod call;
mod daemon;
mod delegate;
mod ipam;
mod memory;
mod mesh;
mod native;
mod order;
mod sandbox;
mod table;

use std::env;
use std::path::Path;

use anyhow::{Result, bail};

use crate::dist;
use crate::privilege::require_root_available;
use crate::tools::{self, ToolSet};

/// Marks the second start of this program, as root and inside the namespaces.
const INSIDE: &str = "--inside";

const DEFAULT_ITERATIONS: usize = 200;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Part {
    Daemon,
    Delegate,
    Ipam,
    Mesh,
    Native,
}

impl Part {
    /// In the order of a whole run. `ipam` is last: it removes many files, and ext4 is slow to allocate
    /// inodes for a while afterwards.
    const ALL: [Self; 5] = [
        Self::Delegate,
        Self::Native,
        Self::Daemon,
        Self::Mesh,
        Self::Ipam,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Daemon => "daemon",
            Self::Delegate => "delegate",
            Self::Ipam => "ipam",
            Self::Mesh => "mesh",
            Self::Native => "native",
        }
    }

    fn parse(name: &str) -> Result<Self> {
        match Self::ALL.into_iter().find(|part| part.name() == name) {
            Some(part) => Ok(part),
            None => {
                bail!("bench has the parts daemon, delegate, ipam, mesh and native, not {name:?}")
            }
        }
    }

    fn measure(self, iterations: usize, state: &Path) -> Result<()> {
        match self {
            Self::Daemon => daemon::measure(iterations, state),
            Self::Delegate => delegate::measure(iterations, state),
            Self::Ipam => ipam::measure(iterations, state),
            Self::Mesh => mesh::measure(iterations, state),
            Self::Native => native::measure(iterations, state),
        }
    }
}

/// `cargo xtask bench [PART] [--iterations N]`.
pub(crate) fn run(args: &[String]) -> Result<()> {
    if let [flag, part, count, state] = args
        && flag == INSIDE
    {
        sandbox::end_with_parent()?;
        return Part::parse(part)?.measure(positive(count)?, Path::new(state));
    }
    let (parts, iterations) = parse(args)?;
    require_root_available("make bench")?;
    tools::ensure("make bench", &ToolSet::bench())?;
    if env::var_os("HEADCNI_BIN_DIR").is_none() {
        dist::build()?;
    }
    if parts.contains(&Part::Native) {
        native::build_floor()?;
    }
    let iterations = iterations.to_string();
    parts
        .iter()
        .try_for_each(|part| sandbox::enter(&["bench", INSIDE, part.name(), &iterations]))
}

fn parse(args: &[String]) -> Result<(Vec<Part>, usize)> {
    let (part, rest) = match args.split_first() {
        Some((name, rest)) if !name.starts_with('-') => (Some(Part::parse(name)?), rest),
        _ => (None, args),
    };
    let iterations = match rest {
        [] => DEFAULT_ITERATIONS,
        [flag, count] if flag == "--iterations" => positive(count)?,
        _ => bail!("bench takes a part and --iterations N, not {args:?}"),
    };
    Ok((
        part.map_or(Part::ALL.to_vec(), |part| vec![part]),
        iterations,
    ))
}

fn positive(text: &str) -> Result<usize> {
    match text.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => bail!("--iterations takes a number above 0, not {text:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &str) -> Option<(Vec<Part>, usize)> {
        let args: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        parse(&args).ok()
    }

    #[test]
    fn a_name_selects_a_part_and_none_selects_all() {
        let all = Part::ALL.to_vec();
        assert_eq!(parsed(""), Some((all.clone(), DEFAULT_ITERATIONS)));
        assert_eq!(parsed("--iterations 7"), Some((all, 7)));
        assert_eq!(parsed("ipam --iterations 7"), Some((vec![Part::Ipam], 7)));
        assert_eq!(
            parsed("delegate"),
            Some((vec![Part::Delegate], DEFAULT_ITERATIONS))
        );
    }

    #[test]
    fn invalid_arguments_are_refused() {
        for words in ["ipan", "--iterations", "--iterations 0", "ipam delegate"] {
            assert_eq!(parsed(words), None, "{words}");
        }
    }
}
