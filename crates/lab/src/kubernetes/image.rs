//! Container images made from local files, without a registry.
//!
//! Each is an OCI image layout in a tar file: <https://github.com/opencontainers/image-spec>

use std::env::consts::ARCH;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::files;
use crate::process;
use crate::tools::headcni_image_dir;

const BUSYBOX: &str = "/bin/busybox";

/// The default command.
const SLEEP: [&str; 3] = [BUSYBOX, "sleep", "1000000000"];

/// An image for any number of [`Worker`](super::Worker)s.
#[derive(Debug)]
pub struct Image {
    file: PathBuf,
    _dir: TempDir,
}

impl Image {
    /// Busybox. Its default command sleeps.
    pub(super) fn busybox(name: &str) -> Result<Self> {
        let config = json!({ "Cmd": SLEEP, "Env": ["PATH=/bin"] });
        let dir = TempDir::new().context("make a directory for an image")?;
        let root = dir.path().join("root");
        populate(&root).context("copy the files of an image")?;
        Self::of(name, &root, &config, dir)
    }

    /// The files that `image/build --root` wrote.
    pub fn headcni(name: &str) -> Result<Self> {
        let config = json!({
            "Cmd": ["headcni-daemon", "run"],
            "Env": ["PATH=/usr/local/bin:/usr/sbin:/usr/bin"],
        });
        let dir = TempDir::new().context("make a directory for an image")?;
        Self::of(name, &headcni_image_dir(), &config, dir)
    }

    fn of(name: &str, root: &Path, config: &Value, dir: TempDir) -> Result<Self> {
        let made = make(name, root, config, dir.path());
        let file = made.with_context(|| format!("make an image {name}"))?;
        Ok(Self { file, _dir: dir })
    }

    pub(super) fn file(&self) -> &Path {
        &self.file
    }
}

fn make(name: &str, root: &Path, config: &Value, dir: &Path) -> Result<PathBuf> {
    let layout = dir.join("layout");
    let layer = dir.join("layer.tar");
    pack(&layer, root)?;
    let blobs = layout.join("blobs/sha256");
    fs::create_dir_all(&blobs).with_context(|| format!("make {}", blobs.display()))?;
    let layer = add_blob(&blobs, &layer)?;
    let text = |name: &str, value: &Value| -> Result<PathBuf> {
        let path = dir.join(name);
        files::put(&path, value.to_string())?;
        Ok(path)
    };
    let config = text("config.json", &configuration(config, &layer.digest))?;
    let config = add_blob(&blobs, &config)?;
    let manifest = text("manifest.json", &manifest(&config, &layer))?;
    let manifest = add_blob(&blobs, &manifest)?;
    files::put(
        &layout.join("index.json"),
        index(name, &manifest).to_string(),
    )?;
    let version = json!({ "imageLayoutVersion": "1.0.0" });
    files::put(&layout.join("oci-layout"), version.to_string())?;
    let image = dir.join("image.tar");
    pack(&image, &layout)?;
    Ok(image)
}

#[derive(Debug)]
struct Blob {
    digest: String,
    size: u64,
}

impl Blob {
    fn descriptor(&self, media_type: &str) -> Value {
        let media_type = format!("application/vnd.oci.image.{media_type}");
        json!({ "mediaType": media_type, "digest": self.digest, "size": self.size })
    }
}

/// Moves a file to the path that its digest gives.
fn add_blob(blobs: &Path, path: &Path) -> Result<Blob> {
    let output = process::run(Command::new("sha256sum").arg(path))?.stdout;
    let sum = output.split_whitespace().next();
    let sum = sum.with_context(|| format!("sha256sum printed {output:?}"))?;
    let size = fs::metadata(path)?.len();
    fs::rename(path, blobs.join(sum)).with_context(|| format!("move {}", path.display()))?;
    Ok(Blob {
        digest: format!("sha256:{sum}"),
        size,
    })
}

fn populate(root: &Path) -> Result<()> {
    for dir in ["bin", "etc", "tmp"] {
        fs::create_dir_all(root.join(dir))?;
    }
    fs::copy(BUSYBOX, root.join("bin/busybox")).context("copy busybox (it has to be static)")?;
    let applets = process::run(Command::new(BUSYBOX).arg("--list"))?.stdout;
    for applet in applets.lines().filter(|applet| *applet != "busybox") {
        symlink(BUSYBOX, root.join("bin").join(applet))?;
    }
    files::put(&root.join("etc/passwd"), "root:x:0:0:root:/:/bin/sh\n")?;
    files::put(&root.join("etc/group"), "root:x:0:\n")?;
    Ok(())
}

fn pack(archive: &Path, dir: &Path) -> Result<()> {
    let mut tar = Command::new("tar");
    tar.args(["--create", "--owner=0", "--group=0", "--file"]);
    process::run(tar.arg(archive).arg("--directory").arg(dir).arg("."))?;
    Ok(())
}

fn configuration(config: &Value, layer: &str) -> Value {
    json!({
        "architecture": architecture(),
        "os": "linux",
        "config": config,
        "rootfs": { "type": "layers", "diff_ids": [layer] },
    })
}

fn manifest(config: &Blob, layer: &Blob) -> Value {
    json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config.descriptor("config.v1+json"),
        "layers": [layer.descriptor("layer.v1.tar")],
    })
}

fn index(name: &str, manifest: &Blob) -> Value {
    let mut entry = manifest.descriptor("manifest.v1+json");
    entry["platform"] = json!({ "architecture": architecture(), "os": "linux" });
    // containerd reads the image name from this annotation.
    entry["annotations"] = json!({ "io.containerd.image.name": name });
    json!({ "schemaVersion": 2, "manifests": [entry] })
}

/// The name that Go uses.
fn architecture() -> &'static str {
    match ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
