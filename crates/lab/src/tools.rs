//! The real programs that tests run against: versions and paths.
//!
//! `make tools` installs them in a cache outside the checkout, one directory per version, which all
//! checkouts share. This module fetches nothing.

mod go;
pub mod kubernetes;

use std::env;
use std::path::{Path, PathBuf};

pub use go::{GoModule, Part};

/// Debian packages that a mesh and `make demo` need on the host.
pub const MESH_PACKAGES: &[&str] = &[
    "busybox-static",
    "iperf3",
    "iproute2",
    "iptables",
    "iputils-ping",
    "nftables",
    "procps",
];

/// Debian packages that only tests and benchmarks need. systemd is for systemd-networkd.
pub const TEST_PACKAGES: &[&str] = &[
    "conntrack",
    "containerd",
    "ethtool",
    "runc",
    "socat",
    "strace",
    "systemd",
    "tcpdump",
];

/// podman of Debian 12 with the libraries that a minimal Debian 12 lacks. podman 5 supports CNI only with a
/// build tag. It is not installed because the package writes to the host's `/etc/cni/net.d`.
pub const PODMAN: DebianTree = DebianTree {
    name: "podman",
    version: "4.3.1",
    packages: &[
        "conmon",
        "golang-github-containers-common",
        "libassuan0",
        "libdevmapper1.02.1",
        "libglib2.0-0",
        "libgpgme11",
        "libsubid4",
    ],
};

/// The reference CNI plugins.
pub const CNI_PLUGINS: GoModule = GoModule {
    name: "cni-plugins",
    path: "github.com/containernetworking/plugins",
    version: "v1.9.1",
    packages: &[
        "plugins/ipam/host-local",
        "plugins/ipam/static",
        "plugins/main/bridge",
        "plugins/main/loopback",
        "plugins/main/ptp",
        "plugins/meta/bandwidth",
        "plugins/meta/firewall",
        "plugins/meta/portmap",
        "plugins/meta/tuning",
    ],
    stamps: &[],
    siblings: None,
    part: Part::Tests,
};

/// cnitool and the test plugins of libcni.
pub const CNI: GoModule = GoModule {
    name: "cni",
    path: "github.com/containernetworking/cni",
    version: "v1.3.1",
    packages: &["cnitool", "plugins/test/noop", "plugins/test/sleep"],
    stamps: &[],
    siblings: None,
    part: Part::Tests,
};

pub const TAILSCALE: GoModule = GoModule {
    name: "tailscale",
    path: "tailscale.com",
    version: "v1.102.5",
    packages: &["cmd/tailscale", "cmd/tailscaled"],
    stamps: &[
        "tailscale.com/version.longStamp={version}",
        "tailscale.com/version.shortStamp={version}",
    ],
    siblings: None,
    part: Part::Tests,
};

/// The newest supported Headscale.
pub const HEADSCALE: GoModule = headscale("v0.29.3");

/// One version of each supported API generation, newest first.
pub const HEADSCALES: &[GoModule] = &[
    HEADSCALE,
    headscale("v0.28.0"),
    headscale("v0.27.1"),
    headscale("v0.26.1"),
];

const fn headscale(version: &'static str) -> GoModule {
    GoModule {
        name: "headscale",
        path: "github.com/juanfont/headscale",
        version,
        packages: &["cmd/headscale"],
        stamps: &[],
        siblings: None,
        part: Part::Tests,
    }
}

/// Every Go module that `make tools` builds, the most needed first.
pub fn go_modules() -> impl Iterator<Item = &'static GoModule> {
    [CNI, CNI_PLUGINS, TAILSCALE].iter().chain(HEADSCALES)
}

/// Debian packages that are unpacked in the cache, not installed.
#[derive(Debug, Clone, Copy)]
pub struct DebianTree {
    /// The main package.
    pub name: &'static str,
    /// The upstream version, any Debian revision.
    pub version: &'static str,
    /// Further packages for the same directory, in apt's preferred version.
    pub packages: &'static [&'static str],
}

impl DebianTree {
    /// The root of its files, which may not exist yet.
    pub fn dir(&self) -> PathBuf {
        cache_dir()
            .join("tools")
            .join(format!("{}-{}", self.name, self.version))
    }

    pub fn missing(&self) -> Vec<&'static str> {
        // Every package has this: https://www.debian.org/doc/debian-policy/ch-docs.html
        let doc = self.dir().join("usr/share/doc");
        let lacks = |package: &&str| doc.join(package).symlink_metadata().is_err();
        let packages = self.packages.iter().copied();
        packages.chain([self.name]).filter(lacks).collect()
    }

    fn unpacked(&self) -> PathBuf {
        let (dir, missing) = (self.dir(), self.missing());
        assert!(
            missing.is_empty(),
            "{} lacks {missing:?}: run \"make tools\"",
            dir.display()
        );
        dir
    }
}

/// Directory of the reference plugins: `bridge`, `host-local`, `portmap` and so on.
///
/// # Panics
///
/// If one is missing.
pub fn cni_plugin_dir() -> PathBuf {
    CNI_PLUGINS.installed()
}

/// Directory of the test plugins `noop` and `sleep`.
///
/// # Panics
///
/// If one is missing.
pub fn test_plugin_dir() -> PathBuf {
    CNI.installed()
}

/// The reference CNI runtime, `cnitool`.
///
/// # Panics
///
/// If it is missing.
pub fn cnitool() -> PathBuf {
    CNI.installed().join("cnitool")
}

/// Root of podman's files: `usr/bin/podman`, `etc/containers` and so on.
///
/// # Panics
///
/// If a package is missing.
pub fn podman_dir() -> PathBuf {
    PODMAN.unpacked()
}

/// Directory of the headcni programs under test: `$HEADCNI_BIN_DIR`, else `dist/bin`.
///
/// # Panics
///
/// If `headcni` is not in it.
pub fn headcni_bin_dir() -> PathBuf {
    let dir = env_path("HEADCNI_BIN_DIR").unwrap_or_else(|| workspace_dir().join("dist/bin"));
    assert!(
        dir.join("headcni").is_file(),
        "no headcni in {}: run \"make build\"",
        dir.display()
    );
    dir
}

/// The plugin under test.
pub fn headcni() -> PathBuf {
    headcni_bin_dir().join("headcni")
}

/// The daemon under test.
pub fn headcni_daemon() -> PathBuf {
    headcni_bin_dir().join("headcni-daemon")
}

/// The files of the image under test: `$HEADCNI_IMAGE_DIR`, else `dist/image`.
///
/// # Panics
///
/// If they are not there.
pub fn headcni_image_dir() -> PathBuf {
    let dir = env_path("HEADCNI_IMAGE_DIR").unwrap_or_else(|| workspace_dir().join("dist/image"));
    assert!(
        dir.join("usr/local/bin/headcni-daemon").is_file(),
        "no image in {}: run \"image/build --root dist/image\"",
        dir.display()
    );
    dir
}

/// A `CNI_PATH` with our plugins, the reference plugins, and `noop`.
pub fn cni_path() -> String {
    let dirs = [headcni_bin_dir(), cni_plugin_dir(), test_plugin_dir()];
    dirs.map(|dir| dir.display().to_string()).join(":")
}

/// `$HEADCNI_CACHE`, else `headcni` in the user's cache directory.
///
/// # Panics
///
/// If the user has no home directory and neither variable is set.
pub fn cache_dir() -> PathBuf {
    env_path("HEADCNI_CACHE")
        .or_else(|| env_path("XDG_CACHE_HOME").map(|dir| dir.join("headcni")))
        .or_else(|| env::home_dir().map(|home| home.join(".cache/headcni")))
        .expect("no home directory for the cache: set HEADCNI_CACHE")
}

/// The checkout that this was built from.
pub fn workspace_dir() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_path_buf()
}

/// A relative path is relative to the checkout: Cargo runs tests in each crate's directory.
fn env_path(name: &str) -> Option<PathBuf> {
    let value = env::var_os(name).filter(|value| !value.is_empty())?;
    Some(workspace_dir().join(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workspace_has_the_lock_file() {
        assert!(workspace_dir().join("Cargo.lock").is_file());
    }

    #[test]
    fn each_version_has_its_own_directory() {
        assert!(
            CNI_PLUGINS
                .bin_dir()
                .ends_with("tools/cni-plugins-v1.9.1/bin")
        );
        assert!(CNI.bin_dir().ends_with("tools/cni-v1.3.1/bin"));
        assert!(PODMAN.dir().ends_with("tools/podman-4.3.1"));
    }
}
