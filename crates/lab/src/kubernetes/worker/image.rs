//! The image of all pods, made from the busybox of this machine: no registry is asked.
//!
//! It is an image layout in one file: <https://github.com/opencontainers/image-spec>

use std::env::consts::ARCH;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::files;
use crate::process;

const BUSYBOX: &str = "/bin/busybox";

/// What a container does that is told nothing.
const SLEEP: [&str; 3] = [BUSYBOX, "sleep", "1000000000"];

/// Makes an image with this name, in a new directory `dir`, and returns its file.
pub(super) fn make(name: &str, dir: &Path) -> Result<PathBuf> {
    let (root, layout) = (dir.join("root"), dir.join("layout"));
    furnish(&root).context("lay out the files of an image")?;
    let layer = dir.join("layer.tar");
    pack(&layer, &root)?;
    let blobs = layout.join("blobs/sha256");
    fs::create_dir_all(&blobs).with_context(|| format!("make {}", blobs.display()))?;
    let layer = add_blob(&blobs, &layer)?;
    let text = |name: &str, value: &Value| -> Result<PathBuf> {
        let path = dir.join(name);
        files::put(&path, value.to_string())?;
        Ok(path)
    };
    let config = text("config.json", &config(&layer.digest))?;
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

/// A file of the image, known by its contents.
#[derive(Debug)]
struct Blob {
    digest: String,
    size: u64,
}

impl Blob {
    fn described(&self, media_type: &str) -> Value {
        let media_type = format!("application/vnd.oci.image.{media_type}");
        json!({ "mediaType": media_type, "digest": self.digest, "size": self.size })
    }
}

/// Moves a file to where its contents say.
fn add_blob(blobs: &Path, path: &Path) -> Result<Blob> {
    let said = process::run(Command::new("sha256sum").arg(path))?.stdout;
    let sum = said.split_whitespace().next();
    let sum = sum.with_context(|| format!("sha256sum said {said:?}"))?;
    let size = fs::metadata(path)?.len();
    fs::rename(path, blobs.join(sum)).with_context(|| format!("move {}", path.display()))?;
    Ok(Blob {
        digest: format!("sha256:{sum}"),
        size,
    })
}

fn furnish(root: &Path) -> Result<()> {
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

fn config(layer: &str) -> Value {
    json!({
        "architecture": architecture(),
        "os": "linux",
        "config": { "Cmd": SLEEP, "Env": ["PATH=/bin"] },
        "rootfs": { "type": "layers", "diff_ids": [layer] },
    })
}

fn manifest(config: &Blob, layer: &Blob) -> Value {
    json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config.described("config.v1+json"),
        "layers": [layer.described("layer.v1.tar")],
    })
}

fn index(name: &str, manifest: &Blob) -> Value {
    let mut entry = manifest.described("manifest.v1+json");
    entry["platform"] = json!({ "architecture": architecture(), "os": "linux" });
    // containerd takes the whole name from here.
    entry["annotations"] = json!({ "io.containerd.image.name": name });
    json!({ "schemaVersion": 2, "manifests": [entry] })
}

/// Go has names of its own.
fn architecture() -> &'static str {
    match ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
