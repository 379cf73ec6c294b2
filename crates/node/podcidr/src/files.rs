//! Files of Kubernetes and k3s that may contain pod CIDRs. Only small regular files are read.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::scan::{Echo, Report, scan};
use node_core::node_name::NodeName;

/// Files of Kubernetes are a few KiB.
const MAX_FILE_BYTES: u64 = 1 << 20;
const MAX_DROP_INS: usize = 64;
const MAX_ENTRIES: usize = 4096;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SourceFile {
    /// Without the root.
    pub(super) path: PathBuf,
    echo: Echo,
    /// Why there is nothing to read.
    absent: Option<&'static str>,
}

/// All files in order of precedence.
pub(super) fn places(root: &Path, node: &NodeName) -> Vec<SourceFile> {
    let k3s_agent = Path::new("/var/lib/rancher/k3s/agent/etc");
    let k3s = Path::new("/etc/rancher/k3s");
    let kubernetes = Path::new("/etc/kubernetes");

    let mut places = vec![
        SourceFile::file(k3s_agent.join(format!("node-{node}.yaml"))),
        SourceFile::kubeconfig(k3s.join("k3s.yaml")),
        SourceFile::file(k3s_agent.join("kubelet.config")),
    ];
    places.extend(drop_ins(root, &k3s_agent.join("kubelet.conf.d"), "conf"));
    places.extend(drop_ins(root, &k3s.join("config.yaml.d"), "yaml"));
    places.extend([
        SourceFile::file(k3s.join("config.yaml")),
        SourceFile::file(PathBuf::from("/var/lib/kubelet/config.yaml")),
        SourceFile::file(kubernetes.join("kubeadm-config.yaml")),
        SourceFile::kubeconfig(kubernetes.join("admin.conf")),
        SourceFile::file(kubernetes.join("manifests/kube-controller-manager.yaml")),
        SourceFile::file(kubernetes.join("manifests/kube-apiserver.yaml")),
    ]);
    places
}

/// The drop-ins of a directory, last one first: it has precedence.
fn drop_ins(root: &Path, dir: &Path, extension: &str) -> Vec<SourceFile> {
    let nothing = |why| {
        let path = dir.join(format!("*.{extension}"));
        let absent = Some(why);
        vec![SourceFile {
            absent,
            ..SourceFile::file(path)
        }]
    };
    let names = match list(root, dir, extension) {
        Ok(names) => names,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return nothing("no such directory");
        }
        Err(_) => return nothing("the directory can't be read"),
    };
    if names.is_empty() {
        return nothing("no such files");
    }
    if names.len() > MAX_DROP_INS {
        return nothing("too many files");
    }
    let paths = names.iter().rev().map(|name| dir.join(name));
    paths.map(SourceFile::file).collect()
}

impl SourceFile {
    fn file(path: PathBuf) -> Self {
        Self {
            path,
            echo: Echo::Values,
            absent: None,
        }
    }

    /// A file with credentials.
    fn kubeconfig(path: PathBuf) -> Self {
        Self {
            echo: Echo::Nothing,
            ..Self::file(path)
        }
    }

    pub(super) fn read(&self, root: &Path) -> Result<Report, String> {
        if let Some(absent) = self.absent {
            return Err(absent.to_owned());
        }
        let bytes = read(root, &self.path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => "no such file".to_owned(),
            _ => format!("can't be read: {error}"),
        })?;
        let text = String::from_utf8(bytes).map_err(|_| "is not text".to_owned())?;
        Ok(scan(&text, self.echo))
    }
}

fn read(root: &Path, path: &Path) -> io::Result<Vec<u8>> {
    // A pipe would block; a terminal could become the controlling one.
    let file = File::from(open(root, path, OFlags::NONBLOCK | OFlags::NOCTTY)?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut bytes = Vec::new();
    let read = file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    if read as u64 > MAX_FILE_BYTES {
        return Err(io::Error::other("it is larger than 1 MiB"));
    }
    Ok(bytes)
}

/// The sorted file names with this extension.
fn list(root: &Path, dir: &Path, extension: &str) -> io::Result<Vec<PathBuf>> {
    let dir = rustix::fs::Dir::new(open(root, dir, OFlags::DIRECTORY)?)?;
    let mut names = Vec::new();
    for entry in dir.take(MAX_ENTRIES) {
        let entry = entry?;
        let name = std::ffi::OsStr::from_bytes(entry.file_name().to_bytes());
        if Path::new(name)
            .extension()
            .is_some_and(|it| it == extension)
        {
            names.push(PathBuf::from(name));
        }
    }
    names.sort();
    Ok(names)
}

/// Opens a path with `root` as root directory.
fn open(root: &Path, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::RDONLY | OFlags::CLOEXEC;
    if root == Path::new("/") {
        return Ok(rustix::fs::open(path, flags, Mode::empty())?);
    }
    // Links to absolute paths stay below the root.
    let root = rustix::fs::openat(CWD, root, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let mut tries = 0;
    loop {
        // EAGAIN: a rename interfered, see openat2(2).
        match rustix::fs::openat2(&root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT) {
            Err(Errno::AGAIN) if tries < 8 => tries += 1,
            result => return Ok(result?),
        }
    }
}

#[cfg(test)]
mod tests;
