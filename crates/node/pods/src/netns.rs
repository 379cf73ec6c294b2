//! Whether a pod's netns still exists, and whether this process would see it.
//!
//! A runtime bind-mounts a netns on a file. A container without mount propagation does not see these
//! mounts, so a netns counts as absent only where mounts propagate.

use std::cell::OnceCell;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use attachment::netns::{NetnsId, NetnsPath};

use super::orphan_policy::Presence;

/// The initial PID namespace: `PROC_PID_INIT_INO` in `include/linux/proc_ns.h`.
const INITIAL_PID_NAMESPACE: &str = "pid:[4026531836]";
/// Enough for ten thousand containers.
const MAX_MOUNTINFO_BYTES: u64 = 16 * 1024 * 1024;

/// The mounts of this process, read on first use.
#[derive(Debug, Default)]
pub(super) struct MountTable {
    listed: OnceCell<String>,
}

impl MountTable {
    /// Whether the netns of an attachment still exists.
    pub(super) fn netns_presence(&self, path: Option<&str>, made_in: Option<&NetnsId>) -> Presence {
        let (Some(path), Some(made_in)) = (path, made_in) else {
            return Presence::Unknown;
        };
        if !Path::new(path).is_absolute() {
            return Presence::Unknown;
        }
        let is_gone = match attachment::netns::inspect(path) {
            NetnsPath::Netns(now) if now.may_equal(made_in) => return Presence::Present,
            // Another netns has the path.
            NetnsPath::Netns(_) => true,
            NetnsPath::Missing => is_absent(path),
            NetnsPath::NotNetns => false,
        };
        if is_gone && self.sees_mounts_beside(path) {
            Presence::Absent
        } else {
            Presence::Unknown
        }
    }

    /// Whether mounts in the directory of `path` propagate to this process.
    fn sees_mounts_beside(&self, path: &str) -> bool {
        let Some(dir) = Path::new(path).parent() else {
            return false;
        };
        // A missing directory proves nothing.
        match fs::canonicalize(dir) {
            Ok(dir) => is_host_mount_ns() || is_propagated(self.list(), &dir),
            Err(_) => false,
        }
    }

    fn list(&self) -> &str {
        self.listed.get_or_init(|| {
            let mut text = String::new();
            let read = File::open("/proc/self/mountinfo")
                .and_then(|file| file.take(MAX_MOUNTINFO_BYTES).read_to_string(&mut text));
            // A truncated list could lack the relevant line.
            let is_whole = read.is_ok_and(|length| (length as u64) < MAX_MOUNTINFO_BYTES);
            if is_whole { text } else { String::new() }
        })
    }
}

/// Other errors than ENOENT prove nothing.
fn is_absent(path: &str) -> bool {
    let found = Path::new(path).symlink_metadata();
    found.is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

/// Whether this process is in the mount namespace of the host.
fn is_host_mount_ns() -> bool {
    let link = |path: &str| fs::read_link(path).ok();
    link("/proc/self/ns/pid") == Some(INITIAL_PID_NAMESPACE.into())
        && link("/proc/self/ns/mnt").is_some_and(|own| link("/proc/1/ns/mnt") == Some(own))
}

/// Whether mounts in `dir` propagate to this process.
/// <https://www.kernel.org/doc/html/latest/filesystems/proc.html#proc-pid-mountinfo-information-about-mounts>
fn is_propagated(mountinfo: &str, dir: &Path) -> bool {
    let mut covering: Option<(PathBuf, bool)> = None;
    for line in mountinfo.lines() {
        let Some((before, _)) = line.split_once(" - ") else {
            continue;
        };
        let mut fields = before.split(' ');
        let Some(point) = fields.nth(4).map(unescape) else {
            continue;
        };
        let propagates = fields
            .skip(1)
            .any(|field| field.starts_with("shared:") || field.starts_with("master:"));
        let is_nearer = covering
            .as_ref()
            .is_none_or(|(nearest, _)| point.components().count() >= nearest.components().count());
        if dir.starts_with(&point) && is_nearer {
            covering = Some((point, propagates));
        }
    }
    // A container's root may be a slave mount, but no netns is mounted below it.
    covering.is_some_and(|(point, propagates)| propagates && point != Path::new("/"))
}

/// White space and backslashes are written as `\040`.
fn unescape(text: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let escaped = match rest {
            [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..] => {
                Some((a - b'0') * 64 + (b - b'0') * 8 + (c - b'0'))
            }
            _ => None,
        };
        bytes.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { &rest[4..] } else { tail };
    }
    PathBuf::from(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const HOST: &str = "\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
25 22 0:22 / /run rw,nosuid shared:5 - tmpfs tmpfs rw
90 25 0:4 net:[4026532300] /run/netns/cni-1 rw shared:40 - nsfs nsfs rw
";
    const PROPAGATED: &str = "\
900 800 0:99 / / rw,relatime master:300 - overlay overlay rw
901 900 0:22 /netns /run/netns rw master:5 - tmpfs tmpfs rw
";
    const PRIVATE: &str = "\
900 800 0:99 / / rw,relatime master:300 - overlay overlay rw
901 900 0:22 /netns /run/netns rw - tmpfs tmpfs rw
902 901 0:4 net:[4026532300] /run/netns/cni-1 rw - nsfs nsfs rw
";
    const COVERED: &str = "\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
25 22 0:22 / /run/netns rw shared:5 - tmpfs tmpfs rw
26 25 0:23 / /run/netns rw - tmpfs tmpfs rw
";
    const IMAGE_ONLY: &str = "900 800 0:99 / / rw,relatime master:300 - overlay overlay rw\n";

    #[rstest]
    #[case::host(HOST, true)]
    #[case::container_with_propagation(PROPAGATED, true)]
    #[case::container_without_propagation(PRIVATE, false)]
    #[case::covered_by_another_mount(COVERED, false)]
    #[case::directory_of_the_image(IMAGE_ONLY, false)]
    #[case::no_list("", false)]
    #[case::nonsense("a b c\n - \n1 2 3 4", false)]
    fn propagation_follows_the_nearest_mount(#[case] list: &str, #[case] arrives: bool) {
        assert_eq!(is_propagated(list, Path::new("/run/netns")), arrives);
    }

    #[test]
    fn escapes_in_mount_points_are_decoded() {
        assert_eq!(unescape(r"/a\040b\134c"), Path::new(r"/a b\c"));
        assert_eq!(unescape(r"/a\0"), Path::new(r"/a\0"));
    }

    #[test]
    fn a_directory_with_the_same_prefix_is_another_one() {
        let list = "1 0 0:1 / /run/net rw shared:1 - tmpfs t rw\n";
        assert!(!is_propagated(list, Path::new("/run/netns")));
    }

    #[test]
    fn without_a_path_or_an_identity_the_netns_is_unknown() {
        let mounts = MountTable::default();
        let identity = NetnsId::of("/proc/self/ns/net").unwrap();
        assert_eq!(
            mounts.netns_presence(None, Some(&identity)),
            Presence::Unknown
        );
        assert_eq!(
            mounts.netns_presence(Some("/run/netns/x"), None),
            Presence::Unknown
        );
        assert_eq!(
            mounts.netns_presence(Some("x"), Some(&identity)),
            Presence::Unknown
        );
    }

    #[test]
    fn a_netns_is_present_while_its_identity_matches() {
        let mounts = MountTable::default();
        let identity = NetnsId::of("/proc/self/ns/net").unwrap();
        let presence = |path| mounts.netns_presence(Some(path), Some(&identity));
        assert_eq!(presence("/proc/self/ns/net"), Presence::Present);
        // /proc/PID vanishes with its process, not with the netns.
        assert_eq!(presence("/proc/4194305/ns/net"), Presence::Unknown);
        assert_eq!(presence("/nonexistent/netns/p"), Presence::Unknown);
        assert_eq!(presence("/proc/self"), Presence::Unknown);
    }
}
