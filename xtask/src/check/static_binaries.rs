//! Our programs need no dynamic linker and no shared library: they run on whatever libc a node has.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::dist;
use crate::process::output;

pub(super) fn check() -> Result<()> {
    for program in dist::programs() {
        let path = dist::bin_dir().join(program.bin);
        let mut readelf = Command::new("readelf");
        readelf
            .args(["--wide", "--program-headers", "--dynamic"])
            .arg(&path);
        let headers = output(&mut readelf).context("readelf is part of Debian's binutils")?;
        if let Some(line) = dynamic_line(&headers) {
            bail!("{} is not static: {line}", path.display());
        }
    }
    Ok(())
}

/// The first line about an interpreter or a shared library. A static position-independent program
/// has a dynamic section too: it relocates itself.
fn dynamic_line(headers: &str) -> Option<&str> {
    let mut lines = headers.lines().map(str::trim);
    lines.find(|line| line.starts_with("INTERP") || line.contains("(NEEDED)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_dynamic_test_program_is_recognised() {
        let this = std::env::current_exe().unwrap();
        let mut readelf = Command::new("readelf");
        let headers = output(readelf.args(["--wide", "-l", "-d"]).arg(this)).unwrap();
        assert!(dynamic_line(&headers).is_some(), "{headers}");
    }

    #[test]
    fn a_position_independent_static_program_is_static() {
        let headers = "  LOAD  0x0\n  DYNAMIC 0x1\n 0x07 (RELA) 0x2c0\n";
        assert_eq!(dynamic_line(headers), None);
    }
}
