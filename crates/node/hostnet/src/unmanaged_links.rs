//! Drop-in files that make NetworkManager and systemd-networkd ignore our links, rules and routes, where
//! they are installed.
//!
//! The daemon does not reload them, which is the administrator's decision. Until then, each reconcile
//! repairs what they undo.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use super::{HostPaths, HostnetError};
use node_config::UnmanagedLinks;
use node_core::files::write_atomic;

/// The first line of managed files.
const MARK: &str = "# Written by headcni-daemon; see network.unmanagedLinks.";

struct DropIn {
    path: &'static str,
    /// Written if one of these exists.
    signs: &'static [&'static str],
    text: &'static str,
    /// Applies it.
    reload: &'static str,
}

const DROP_INS: [DropIn; 3] = [
    DropIn {
        path: "etc/NetworkManager/conf.d/90-headcni.conf",
        signs: &["etc/NetworkManager", "usr/sbin/NetworkManager"],
        text: "[keyfile]\nunmanaged-devices+=interface-name:hc*;interface-name:headcni*\n",
        reload: "nmcli general reload",
    },
    DropIn {
        path: "etc/systemd/network/05-headcni.network",
        signs: &[
            "usr/lib/systemd/systemd-networkd",
            "lib/systemd/systemd-networkd",
        ],
        text: "[Match]\nName=hc* headcni*\n\n[Link]\nUnmanaged=yes\n",
        reload: "networkctl reload",
    },
    // By default networkd deletes foreign rules and routes when it starts.
    DropIn {
        path: "etc/systemd/networkd.conf.d/90-headcni.conf",
        signs: &["run/systemd/netif/links"],
        text: "[Network]\nManageForeignRoutingPolicyRules=no\nManageForeignRoutes=no\n",
        reload: "systemctl restart systemd-networkd",
    },
];

/// Writes or removes the files, and returns the changes for the log.
pub(super) fn ensure(
    paths: &HostPaths,
    unmanaged_links: UnmanagedLinks,
) -> Result<Vec<String>, HostnetError> {
    let mut done = Vec::new();
    for drop_in in &DROP_INS {
        let path = paths.root.join(drop_in.path);
        let is_wanted =
            unmanaged_links == UnmanagedLinks::Auto && is_installed(&paths.root, drop_in);
        let wanted = is_wanted.then(|| format!("{MARK}\n{}", drop_in.text));
        let found = read(&path).map_err(HostnetError::file("read", &path))?;
        match (&found, &wanted) {
            (found, wanted) if found == wanted => {}
            // An administrator replaced it.
            (Some(text), _) if !text.starts_with(MARK) => {}
            (_, Some(text)) => {
                write_atomic(&path, text.as_bytes(), 0o644)
                    .map_err(HostnetError::file("write", &path))?;
                let (path, reload) = (path.display(), drop_in.reload);
                done.push(format!("write {path}; `{reload}` applies it at once"));
            }
            (_, None) => {
                fs::remove_file(&path).map_err(HostnetError::file("remove", &path))?;
                done.push(format!("remove {}", path.display()));
            }
        }
    }
    Ok(done)
}

fn is_installed(root: &Path, drop_in: &DropIn) -> bool {
    drop_in.signs.iter().any(|sign| root.join(sign).exists())
}

fn read(path: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        // Not text, so not ours.
        Err(error) if error.kind() == ErrorKind::InvalidData => Ok(Some(String::new())),
        text => text.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir_all, read_to_string};

    use tempfile::TempDir;

    use super::*;

    fn machine(signs: &[&str]) -> (TempDir, HostPaths) {
        let root = TempDir::new().unwrap();
        for sign in signs {
            create_dir_all(root.path().join(sign)).unwrap();
        }
        let paths = HostPaths {
            state_dir: root.path().join("state"),
            root: root.path().to_owned(),
        };
        (root, paths)
    }

    #[test]
    fn nothing_is_written_where_neither_is_installed() {
        let (root, paths) = machine(&[]);
        assert!(ensure(&paths, UnmanagedLinks::Auto).unwrap().is_empty());
        assert!(!root.path().join("etc").exists());
    }

    #[test]
    fn drop_ins_are_written_once_and_removed_when_disabled() {
        let (root, paths) = machine(&[
            "etc/NetworkManager",
            "usr/lib/systemd/systemd-networkd",
            "run/systemd/netif/links",
        ]);
        let written = ensure(&paths, UnmanagedLinks::Auto).unwrap();
        assert_eq!(written.len(), 3, "{written:?}");
        assert!(written[0].contains("nmcli general reload"), "{written:?}");
        for drop_in in &DROP_INS {
            let text = read_to_string(root.path().join(drop_in.path)).unwrap();
            assert!(
                text.starts_with(MARK) && text.ends_with(drop_in.text),
                "{text}"
            );
        }
        assert!(ensure(&paths, UnmanagedLinks::Auto).unwrap().is_empty());
        assert_eq!(ensure(&paths, UnmanagedLinks::Off).unwrap().len(), 3);
        assert!(DROP_INS.iter().all(|n| !root.path().join(n.path).exists()));
        assert!(ensure(&paths, UnmanagedLinks::Off).unwrap().is_empty());
    }

    #[test]
    fn networkd_is_not_reconfigured_while_it_does_not_run() {
        let (root, paths) = machine(&["usr/lib/systemd/systemd-networkd"]);
        assert_eq!(ensure(&paths, UnmanagedLinks::Auto).unwrap().len(), 1);
        assert!(!root.path().join("etc/systemd/networkd.conf.d").exists());
    }

    #[test]
    fn an_unmanaged_file_stays() {
        let (root, paths) = machine(&["etc/NetworkManager/conf.d"]);
        let path = root.path().join(DROP_INS[0].path);
        write_atomic(&path, b"[keyfile]\n", 0o644).unwrap();
        for unmanaged_links in [UnmanagedLinks::Auto, UnmanagedLinks::Off] {
            assert!(ensure(&paths, unmanaged_links).unwrap().is_empty());
            assert_eq!(read_to_string(&path).unwrap(), "[keyfile]\n");
        }
    }

    #[test]
    fn an_edited_managed_file_is_restored() {
        let (root, paths) = machine(&["etc/NetworkManager"]);
        ensure(&paths, UnmanagedLinks::Auto).unwrap();
        let path = root.path().join(DROP_INS[0].path);
        write_atomic(&path, format!("{MARK}\nedited\n").as_bytes(), 0o644).unwrap();
        assert_eq!(ensure(&paths, UnmanagedLinks::Auto).unwrap().len(), 1);
        assert!(read_to_string(&path).unwrap().ends_with(DROP_INS[0].text));
    }
}
