use std::fs;

use cni::{ContainerId, IfName, NetworkName};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::kernel_state::KernelState;

/// Records in a directory, and a fake kernel.
struct Scene {
    dir: TempDir,
}

impl Scene {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        Self { dir }
    }

    fn store(&self) -> attachment::RecordStore {
        attachment::RecordStore::new(self.dir.path(), &NetworkName::new("net").unwrap())
    }

    /// Writes a record as a native ADD does.
    fn write(&self, container: &str, progress: &str, address: &str) -> Key {
        let key = Key::new("net", container, "eth0").unwrap();
        let record = json!({
            "boot": attachment::boot_id(), "netns": "/run/netns/p", "netns_identity": null,
            "args": "K8S_POD_NAMESPACE=web;K8S_POD_NAME=web-0;K8S_POD_UID=1",
            "progress": progress,
            "steps": [{ "index": 0, "progress": progress, "plugin": { "native": {
                "port_mappings": { "mappings": [
                    { "host": "any", "protocol": "tcp", "port": 8080, "pod_port": 80 },
                ] },
            } } }],
            "result": {
                "interfaces": [
                    { "name": key.host_link(), "mac": "02:00:00:00:00:01" },
                    { "name": "eth0", "mac": "02:00:00:00:00:02", "sandbox": "/run/netns/p" },
                ],
                "ips": [{ "address": format!("{address}/24"), "interface": 1 }],
            },
        });
        self.write_raw(container, &record);
        key
    }

    fn write_raw(&self, container: &str, record: &Value) {
        let held = self
            .store()
            .lock_for_add(
                &cni::Attachment {
                    container: ContainerId::new(container).unwrap(),
                    ifname: IfName::new("eth0").unwrap(),
                    netns: None,
                    args: cni::CniArgs::default(),
                },
                std::time::Duration::from_secs(1),
            )
            .unwrap();
        held.save(&serde_json::from_value(record.clone()).unwrap())
            .unwrap();
    }

    fn remove(&self, container: &str) {
        let name = format!("net/{container}@eth0.json");
        fs::remove_file(self.dir.path().join(name)).unwrap();
    }

    /// An observation in which these attachments have links.
    fn observed(&self, links: &[&Key]) -> ObservedPods {
        let mut observed = ObservedPods {
            kernel: Some(KernelState::with_links(links)),
            ..ObservedPods::default()
        };
        for (container, ifname) in self.store().attachments().unwrap() {
            let key = Key::new("net", container.as_str(), ifname.as_str()).unwrap();
            let sight = self.store().snapshot(&key.attachment()).unwrap().unwrap();
            observed
                .records
                .insert(key.clone(), ObservedRecord::of(&key, sight));
        }
        observed
    }
}

fn states(view: &View) -> Vec<(String, PodState)> {
    let all = view.snapshot().into_iter();
    all.map(|one| (one.container, one.state)).collect()
}

fn mounts() -> MountTable {
    MountTable::default()
}

#[test]
fn a_resync_finds_the_state_of_attachments() {
    let scene = Scene::new();
    let a = scene.write("a", "done", "10.0.0.2");
    scene.write("b", "done", "10.0.0.3");
    scene.write("c", "started", "10.0.0.4");
    let view = View::default();
    view.replace(view.revision(), &scene.observed(&[&a]), &mounts());
    let expected = [
        ("a".to_owned(), PodState::Attached),
        ("b".to_owned(), PodState::Gone),
        ("c".to_owned(), PodState::HalfMade),
    ];
    assert_eq!(states(&view), expected);
    assert_eq!(view.attached(), 1);

    let shown = serde_json::to_value(&view.snapshot()[0]).unwrap();
    assert!(shown["sinceUnixMs"].as_u64().unwrap() > 0);
    let mut shown = shown.as_object().unwrap().clone();
    shown.remove("sinceUnixMs");
    assert_eq!(
        Value::Object(shown),
        json!({
            "network": "net", "container": "a", "ifname": "eth0", "state": "attached",
            "pod": { "namespace": "web", "name": "web-0", "uid": "1" },
            "ips": ["10.0.0.2"], "hostLink": a.host_link(), "mac": "02:00:00:00:00:02",
        })
    );
}

#[test]
fn only_running_pods_have_links_and_host_ports_to_restore() {
    let scene = Scene::new();
    let a = scene.write("a", "done", "10.0.0.2");
    scene.write("b", "done", "10.0.0.3");
    let view = View::default();
    view.replace(view.revision(), &scene.observed(&[&a]), &mounts());
    let [link] = &view.pod_links()[..] else {
        panic!("{:?}", view.pod_links())
    };
    assert_eq!(link.host_link, a.host_link());
    assert_eq!(link.host_mac.to_string(), "02:00:00:00:00:01");
    assert_eq!(link.pod_mac.to_string(), "02:00:00:00:00:02");
    assert_eq!(link.addresses, ["10.0.0.2".parse::<IpAddr>().unwrap()]);
    let [port] = &view.host_ports()[..] else {
        panic!("{:?}", view.host_ports())
    };
    assert_eq!((port.port, port.pod_port), (8080, 80));
    assert_eq!(port.pod.to_string(), "10.0.0.2");
}

#[test]
fn an_update_during_a_resync_is_newer_than_the_resync() {
    let scene = Scene::new();
    let a = scene.write("a", "done", "10.0.0.2");
    let view = View::default();
    let revision = view.revision();
    let old = scene.observed(&[&a]);

    scene.remove("a");
    let b = scene.write("b", "done", "10.0.0.3");
    let now = scene.observed(&[&b]);
    view.update_one(&a, &now, &mounts());
    view.update_one(&b, &now, &mounts());
    view.replace(revision, &old, &mounts());
    assert_eq!(states(&view), [("b".to_owned(), PodState::Attached)]);
    assert_eq!(view.differences(&now, &mounts()), [""; 0]);

    let revision = view.revision();
    view.replace(revision, &scene.observed(&[&b]), &mounts());
    assert_eq!(states(&view), [("b".to_owned(), PodState::Attached)]);
}

#[test]
fn an_unreadable_store_removes_no_attachment() {
    let scene = Scene::new();
    let a = scene.write("a", "done", "10.0.0.2");
    let view = View::default();
    view.replace(view.revision(), &scene.observed(&[&a]), &mounts());
    let unreadable = ObservedPods {
        is_incomplete: true,
        kernel: Some(KernelState::default()),
        ..ObservedPods::default()
    };
    view.replace(view.revision(), &unreadable, &mounts());
    view.update_one(&a, &unreadable, &mounts());
    assert_eq!(states(&view), [("a".to_owned(), PodState::Attached)]);
    let no_kernel = ObservedPods::default();
    view.replace(view.revision(), &no_kernel, &mounts());
    assert_eq!(view.attached(), 1, "the kernel could not be queried");
    let empty = ObservedPods {
        kernel: Some(KernelState::default()),
        ..ObservedPods::default()
    };
    view.replace(view.revision(), &empty, &mounts());
    assert_eq!(view.attached(), 0, "proven absence");
}

#[test]
fn a_pod_without_record_is_known_by_its_link() {
    let scene = Scene::new();
    let a = scene.write("a", "done", "10.0.0.2");
    fs::remove_dir_all(scene.dir.path().join("net")).unwrap();
    let view = View::default();
    view.replace(view.revision(), &scene.observed(&[&a]), &mounts());
    assert_eq!(states(&view), [("a".to_owned(), PodState::Attached)]);
    assert_eq!(view.differences(&scene.observed(&[&a]), &mounts()), [""; 0]);
}

#[test]
fn differences_are_reported() {
    let scene = Scene::new();
    let a = scene.write("a", "done", "10.0.0.2");
    let b = scene.write("b", "done", "10.0.0.3");
    let view = View::default();
    view.replace(view.revision(), &scene.observed(&[&a, &b]), &mounts());
    scene.remove("a");
    let c = scene.write("c", "done", "10.0.0.4");
    let differences = view.differences(&scene.observed(&[&c]), &mounts());
    let [first, second, third] = &differences[..] else {
        panic!("{differences:?}")
    };
    assert!(first.contains("container b") && first.contains("Gone"));
    assert!(second.contains("container c") && second.contains("not known"));
    assert!(third.contains("container a") && third.contains("does not exist"));
}

#[test]
fn the_oldest_failure_is_dropped() {
    let view = View::default();
    let key = Key::new("net", "a", "eth0").unwrap();
    view.record_failure(&key, &Event::default());
    assert_eq!(view.failures(), []);
    for n in 0..=MAX_FAILURES {
        let event = Event {
            verb: "ADD".to_owned(),
            code: Some(u32::try_from(n).unwrap()),
            ..Event::default()
        };
        view.record_failure(&key, &event);
    }
    let codes: Vec<u32> = view.failures().iter().map(|one| one.code).collect();
    assert_eq!((codes.len(), codes[0]), (MAX_FAILURES, 1));
}
