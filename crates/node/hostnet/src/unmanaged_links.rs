//! Tells NetworkManager and systemd-networkd to keep off our links, rules and routes: by files in
//! their directories, where they are installed.
//!
//! They read such files when they start or are told to. We don't tell them: a reload is the
//! administrator's decision, and until then the passes repair what they undo.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::{NetworkError, Place};
use node_config::UnmanagedLinks;
use node_core::files::write_atomic;

/// The first line of files that are ours to change.
const MARK: &str = "# Written by headcni-daemon; see network.unmanagedLinks.";

/// A file that keeps somebody off.
struct Notice {
    path: &'static str,
    /// It is written if one of these is there.
    signs: &'static [&'static str],
    text: &'static str,
    /// What makes it count.
    reload: &'static str,
}

const NOTICES: [Notice; 3] = [
    Notice {
        path: "etc/NetworkManager/conf.d/90-headcni.conf",
        signs: &["etc/NetworkManager", "usr/sbin/NetworkManager"],
        text: "[keyfile]\nunmanaged-devices+=interface-name:hc*;interface-name:headcni*\n",
        reload: "nmcli general reload",
    },
    Notice {
        path: "etc/systemd/network/05-headcni.network",
        signs: &[
            "usr/lib/systemd/systemd-networkd",
            "lib/systemd/systemd-networkd",
        ],
        text: "[Match]\nName=hc* headcni*\n\n[Link]\nUnmanaged=yes\n",
        reload: "networkctl reload",
    },
    // By default it deletes every rule and route that it did not make, when it starts.
    Notice {
        path: "etc/systemd/networkd.conf.d/90-headcni.conf",
        signs: &["run/systemd/netif/links"],
        text: "[Network]\nManageForeignRoutingPolicyRules=no\nManageForeignRoutes=no\n",
        reload: "systemctl restart systemd-networkd",
    },
];

/// Writes or removes the files. What was done, in words.
pub(super) fn ensure(
    place: &Place,
    unmanaged_links: UnmanagedLinks,
) -> Result<Vec<String>, NetworkError> {
    let mut done = Vec::new();
    for notice in &NOTICES {
        let path = place.root.join(notice.path);
        let is_wanted =
            unmanaged_links == UnmanagedLinks::Auto && is_installed(&place.root, notice);
        let wanted = is_wanted.then(|| format!("{MARK}\n{}", notice.text));
        let found = read(&path).map_err(failure("read", &path))?;
        match (&found, &wanted) {
            (found, wanted) if found == wanted => {}
            // Whoever has written it in our place knows better.
            (Some(text), _) if !text.starts_with(MARK) => {}
            (_, Some(text)) => {
                write_atomic(&path, text.as_bytes(), 0o644).map_err(failure("write", &path))?;
                let (path, reload) = (path.display(), notice.reload);
                done.push(format!(
                    "{path} was written; `{reload}` makes it count at once"
                ));
            }
            (_, None) => {
                fs::remove_file(&path).map_err(failure("remove", &path))?;
                done.push(format!("{} was removed", path.display()));
            }
        }
    }
    Ok(done)
}

fn is_installed(root: &Path, notice: &Notice) -> bool {
    notice.signs.iter().any(|sign| root.join(sign).exists())
}

fn read(path: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        // Some other thing of this name, which can't be ours.
        Err(error) if error.kind() == ErrorKind::InvalidData => Ok(Some(String::new())),
        text => text.map(Some),
    }
}

fn failure(attempt: &'static str, path: &Path) -> impl FnOnce(io::Error) -> NetworkError {
    let path: PathBuf = path.to_owned();
    move |source| NetworkError::File {
        attempt,
        path,
        source,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir_all, read_to_string};

    use tempfile::TempDir;

    use super::*;

    fn machine(signs: &[&str]) -> (TempDir, Place) {
        let root = TempDir::new().unwrap();
        for sign in signs {
            create_dir_all(root.path().join(sign)).unwrap();
        }
        let place = Place {
            state_dir: root.path().join("state"),
            root: root.path().to_owned(),
        };
        (root, place)
    }

    #[test]
    fn nobody_is_told_who_is_not_there() {
        let (root, place) = machine(&[]);
        assert!(ensure(&place, UnmanagedLinks::Auto).unwrap().is_empty());
        assert!(!root.path().join("etc").exists());
    }

    #[test]
    fn those_who_are_there_are_told_once_and_no_longer_than_wanted() {
        let (root, place) = machine(&[
            "etc/NetworkManager",
            "usr/lib/systemd/systemd-networkd",
            "run/systemd/netif/links",
        ]);
        let told = ensure(&place, UnmanagedLinks::Auto).unwrap();
        assert_eq!(told.len(), 3, "{told:?}");
        assert!(told[0].contains("nmcli general reload"), "{told:?}");
        for notice in &NOTICES {
            let text = read_to_string(root.path().join(notice.path)).unwrap();
            assert!(
                text.starts_with(MARK) && text.ends_with(notice.text),
                "{text}"
            );
        }
        assert!(ensure(&place, UnmanagedLinks::Auto).unwrap().is_empty());
        assert_eq!(ensure(&place, UnmanagedLinks::Off).unwrap().len(), 3);
        assert!(NOTICES.iter().all(|n| !root.path().join(n.path).exists()));
        assert!(ensure(&place, UnmanagedLinks::Off).unwrap().is_empty());
    }

    #[test]
    fn networkd_that_does_not_run_keeps_its_own_settings() {
        let (root, place) = machine(&["usr/lib/systemd/systemd-networkd"]);
        assert_eq!(ensure(&place, UnmanagedLinks::Auto).unwrap().len(), 1);
        assert!(!root.path().join("etc/systemd/networkd.conf.d").exists());
    }

    #[test]
    fn a_file_that_somebody_else_wrote_stays() {
        let (root, place) = machine(&["etc/NetworkManager/conf.d"]);
        let path = root.path().join(NOTICES[0].path);
        write_atomic(&path, b"[keyfile]\n", 0o644).unwrap();
        for unmanaged_links in [UnmanagedLinks::Auto, UnmanagedLinks::Off] {
            assert!(ensure(&place, unmanaged_links).unwrap().is_empty());
            assert_eq!(read_to_string(&path).unwrap(), "[keyfile]\n");
        }
    }

    #[test]
    fn an_edited_file_of_ours_is_put_back() {
        let (root, place) = machine(&["etc/NetworkManager"]);
        ensure(&place, UnmanagedLinks::Auto).unwrap();
        let path = root.path().join(NOTICES[0].path);
        write_atomic(&path, format!("{MARK}\nedited\n").as_bytes(), 0o644).unwrap();
        assert_eq!(ensure(&place, UnmanagedLinks::Auto).unwrap().len(), 1);
        assert!(read_to_string(&path).unwrap().ends_with(NOTICES[0].text));
    }
}
