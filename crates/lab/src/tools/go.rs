//! Programs that are built from Go modules.

use std::path::PathBuf;

use super::cache_dir;

/// Who needs a tool, and so which command fetches it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// What `make test` runs.
    Tests,
    /// What `make e2e` runs. It takes long to build, so it does not come with the rest.
    Kubernetes,
}

impl Part {
    /// What to type to get it.
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
    /// Name of its directory in the cache, before the version.
    pub name: &'static str,
    /// Module path.
    pub path: &'static str,
    /// Version with its `v`.
    pub version: &'static str,
    /// Main packages, relative to the module. The last part names the program; the module's own
    /// package is `.`, and its program has the name of the module here.
    pub packages: &'static [&'static str],
    /// Variables with their values; `{version}` is the version without its `v`. Programs commonly read
    /// it from what Go knows about the main module, which they are not where they are built as
    /// somebody's dependency.
    pub stamps: &'static [&'static str],
    /// Version of the modules that live in the same repository, if the module takes them from there. A
    /// dependency can't: it gets them as they are published.
    pub siblings: Option<&'static str>,
    /// Who needs it.
    pub part: Part,
}

impl GoModule {
    /// Where its programs lie, whether or not they have been built.
    pub fn bin_dir(&self) -> PathBuf {
        cache_dir()
            .join("tools")
            .join(format!("{}-{}", self.name, self.version))
            .join("bin")
    }

    /// The packages whose program is not in the cache.
    pub fn missing(&self) -> Vec<&'static str> {
        let dir = self.bin_dir();
        let lacks = |package: &&&'static str| !dir.join(self.program_of(package)).is_file();
        self.packages.iter().filter(lacks).copied().collect()
    }

    /// One of its programs.
    ///
    /// # Panics
    ///
    /// If one is missing.
    pub fn program(&self, name: &str) -> PathBuf {
        self.installed().join(name)
    }

    /// The program that one of its packages builds.
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
    fn a_program_is_named_after_the_last_part_of_its_package() {
        let host_local = CNI_PLUGINS.program_of("plugins/ipam/host-local");
        assert_eq!(host_local, "host-local");
        assert_eq!(CNI.program_of("cnitool"), "cnitool");
    }

    #[test]
    fn the_program_of_a_module_itself_has_the_name_of_the_module() {
        assert_eq!(ETCD.program_of("."), "etcd");
    }
}
