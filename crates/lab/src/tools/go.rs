//! Programs built from Go modules.

use std::path::PathBuf;

use super::cache_dir;

/// The set that a tool belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// For `make test`.
    Tests,
    /// For `make e2e`. Its build takes long.
    Kubernetes,
}

impl Part {
    /// The command that builds it.
    pub fn command(self) -> &'static str {
        match self {
            Self::Tests => "make tools",
            Self::Kubernetes => "make tools PART=kubernetes",
        }
    }
}

/// Programs built from one Go module at one version.
#[derive(Debug, Clone, Copy)]
pub struct GoModule {
    /// Prefix of its directory in the cache.
    pub name: &'static str,
    pub path: &'static str,
    /// With its `v`.
    pub version: &'static str,
    /// Main packages, relative to the module; `.` is the module's root.
    pub packages: &'static [&'static str],
    /// `-X` flags of the linker; `{version}` is the version without its `v`. Programs that are built as a
    /// dependency cannot read their version from the build info.
    pub stamps: &'static [&'static str],
    /// Version of the published staging modules that replace those in the same repository.
    pub siblings: Option<&'static str>,
    pub part: Part,
}

impl GoModule {
    /// It may not exist yet.
    pub fn bin_dir(&self) -> PathBuf {
        cache_dir()
            .join("tools")
            .join(format!("{}-{}", self.name, self.version))
            .join("bin")
    }

    /// Packages whose program is not in the cache.
    pub fn missing(&self) -> Vec<&'static str> {
        let dir = self.bin_dir();
        let lacks = |package: &&&'static str| !dir.join(self.program_of(package)).is_file();
        self.packages.iter().filter(lacks).copied().collect()
    }

    /// # Panics
    ///
    /// If one is missing.
    pub fn program(&self, name: &str) -> PathBuf {
        self.installed().join(name)
    }

    pub fn program_of(&self, package: &'static str) -> &'static str {
        match package {
            "." => self.name,
            package => package.rsplit('/').next().unwrap_or(package),
        }
    }

    pub(super) fn installed(&self) -> PathBuf {
        let (dir, missing) = (self.bin_dir(), self.missing());
        assert!(
            missing.is_empty(),
            "{} {} lacks {missing:?} in {}: run \"{}\"",
            self.name,
            self.version,
            dir.display(),
            self.part.command()
        );
        dir
    }
}

#[cfg(test)]
mod tests {
    use super::super::kubernetes::ETCD;
    use super::super::{CNI, CNI_PLUGINS};

    #[test]
    fn a_program_has_the_name_of_its_package() {
        let host_local = CNI_PLUGINS.program_of("plugins/ipam/host-local");
        assert_eq!(host_local, "host-local");
        assert_eq!(CNI.program_of("cnitool"), "cnitool");
    }

    #[test]
    fn the_program_of_the_root_package_has_the_name_of_the_module() {
        assert_eq!(ETCD.program_of("."), "etcd");
    }
}
