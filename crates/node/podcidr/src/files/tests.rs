use std::fs;
use std::os::unix::fs::{FileTypeExt, symlink};

use rstest::rstest;
use tempfile::TempDir;

use super::*;
use node_config::Networks;
use node_core::files::write_atomic;

const KUBELET: &str = "/var/lib/kubelet/config.yaml";

/// A node's root directory with some files.
fn root(files: &[(&str, &[u8])]) -> TempDir {
    let root = TempDir::new().unwrap();
    for (path, contents) in files {
        write_atomic(&at(&root, path), contents, 0o600).unwrap();
    }
    root
}

fn at(root: &TempDir, path: &str) -> PathBuf {
    root.path().join(path.trim_start_matches('/'))
}

fn pod_cidrs(root: &Path, path: &str) -> Result<String, String> {
    let report = SourceFile::file(PathBuf::from(path)).read(root)?;
    let (_, nets) = report.node.networks.unwrap_or_default();
    Ok(Networks(nets).to_string())
}

#[test]
fn a_file_is_read_under_the_root_and_by_its_path() {
    let root = root(&[(KUBELET, b"podCIDR: 10.244.1.0/24")]);
    assert_eq!(pod_cidrs(root.path(), KUBELET).unwrap(), "10.244.1.0/24");
    let path = at(&root, KUBELET);
    let by_path = pod_cidrs(Path::new("/"), path.to_str().unwrap());
    assert_eq!(by_path.unwrap(), "10.244.1.0/24");
}

#[test]
fn a_missing_file_is_reported() {
    let root = root(&[]);
    assert_eq!(pod_cidrs(root.path(), KUBELET).unwrap_err(), "no such file");
    let nowhere = root.path().join("nowhere");
    assert_eq!(pod_cidrs(&nowhere, KUBELET).unwrap_err(), "no such file");
}

#[rstest]
#[case("config.real")]
#[case("../../../srv/config")]
#[case("/srv/config")]
#[case("../../../../../../../../../../srv/config")]
fn symlinks_are_followed_within_the_root(#[case] target: &str) {
    let root = root(&[
        ("/var/lib/kubelet/config.real", b"podCIDR: 10.244.1.0/24"),
        ("/srv/config", b"podCIDR: 10.244.1.0/24"),
    ]);
    symlink(target, at(&root, KUBELET)).unwrap();
    assert_eq!(pod_cidrs(root.path(), KUBELET).unwrap(), "10.244.1.0/24");
}

#[test]
fn a_symlink_loop_and_a_directory_are_refused() {
    let root = root(&[("/srv/x", b"")]);
    fs::create_dir_all(at(&root, "/var/lib/kubelet")).unwrap();
    symlink("config.yaml", at(&root, KUBELET)).unwrap();
    let error = pod_cidrs(root.path(), KUBELET).unwrap_err();
    assert!(error.starts_with("can't be read"), "{error}");
    fs::remove_file(at(&root, KUBELET)).unwrap();
    symlink("/srv", at(&root, KUBELET)).unwrap();
    let error = pod_cidrs(root.path(), KUBELET).unwrap_err();
    assert_eq!(error, "can't be read: it is not a regular file");
}

#[test]
fn a_pipe_and_a_device_do_not_block() {
    let root = root(&[]);
    let kubelet = at(&root, "/var/lib/kubelet");
    fs::create_dir_all(&kubelet).unwrap();
    let pipe = kubelet.join("config.yaml");
    rustix::fs::mkfifoat(CWD, &pipe, Mode::RUSR | Mode::WUSR).unwrap();
    assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
    let error = pod_cidrs(root.path(), KUBELET).unwrap_err();
    assert_eq!(error, "can't be read: it is not a regular file");
    let error = pod_cidrs(Path::new("/"), "/dev/zero").unwrap_err();
    assert_eq!(error, "can't be read: it is not a regular file");
}

#[test]
fn a_file_of_one_mib_is_read_and_a_larger_one_is_not() {
    let mut text = b"podCIDR: 10.244.1.0/24\n#".to_vec();
    text.resize(1 << 20, b'x');
    let exact = root(&[(KUBELET, &text)]);
    assert_eq!(pod_cidrs(exact.path(), KUBELET).unwrap(), "10.244.1.0/24");
    text.push(b'x');
    let larger = root(&[(KUBELET, &text)]);
    let error = pod_cidrs(larger.path(), KUBELET).unwrap_err();
    assert_eq!(error, "can't be read: it is larger than 1 MiB");
}

#[test]
fn a_binary_file_is_reported() {
    let root = root(&[(KUBELET, b"podCIDR: \xff\xfe")]);
    assert_eq!(pod_cidrs(root.path(), KUBELET).unwrap_err(), "is not text");
}

#[test]
fn places_are_in_the_documented_order() {
    let root = root(&[
        ("/etc/rancher/k3s/config.yaml.d/1.yaml", b""),
        ("/etc/rancher/k3s/config.yaml.d/2.yaml", b""),
        ("/etc/rancher/k3s/config.yaml.d/3.yml", b""),
    ]);
    let node = node_core::node_name::find(Some("worker-1"), None).unwrap();
    let places = places(root.path(), &node);
    let paths: Vec<_> = places.iter().map(|p| p.path.to_str().unwrap()).collect();
    assert_eq!(
        paths,
        [
            "/var/lib/rancher/k3s/agent/etc/node-worker-1.yaml",
            "/etc/rancher/k3s/k3s.yaml",
            "/var/lib/rancher/k3s/agent/etc/kubelet.config",
            "/var/lib/rancher/k3s/agent/etc/kubelet.conf.d/*.conf",
            "/etc/rancher/k3s/config.yaml.d/2.yaml",
            "/etc/rancher/k3s/config.yaml.d/1.yaml",
            "/etc/rancher/k3s/config.yaml",
            "/var/lib/kubelet/config.yaml",
            "/etc/kubernetes/kubeadm-config.yaml",
            "/etc/kubernetes/admin.conf",
            "/etc/kubernetes/manifests/kube-controller-manager.yaml",
            "/etc/kubernetes/manifests/kube-apiserver.yaml",
        ]
    );
    let secret = places.iter().filter(|p| p.echo == Echo::Nothing);
    let secret: Vec<_> = secret.map(|p| p.path.to_str().unwrap()).collect();
    assert_eq!(
        secret,
        ["/etc/rancher/k3s/k3s.yaml", "/etc/kubernetes/admin.conf"]
    );
}

#[test]
fn a_directory_with_too_many_drop_ins_is_skipped() {
    let names: Vec<_> = (0..=MAX_DROP_INS)
        .map(|nth| format!("/etc/rancher/k3s/config.yaml.d/{nth}.yaml"))
        .collect();
    let contents: &[u8] = b"podCIDR: 10.244.1.0/24";
    let files: Vec<_> = names.iter().map(|name| (&**name, contents)).collect();
    let root = root(&files);
    let places = drop_ins(
        root.path(),
        Path::new("/etc/rancher/k3s/config.yaml.d"),
        "yaml",
    );
    let [place] = &places[..] else {
        panic!("{places:?}")
    };
    assert_eq!(place.read(root.path()).unwrap_err(), "too many files");
}
