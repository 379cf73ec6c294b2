//! A node with pods, and a path for the daemon's socket.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

pub(crate) use lab::tools::{cni_path, headcni};
use lab::{Call, Netns, Node, Outcome, Pod};
use serde_json::{Value, json};

use crate::server::SOON;

pub(crate) const SOCKET: &str = "/run/headcni/daemon.sock";
/// The plugin's log, if a configuration has it.
pub(crate) const LOG: &str = "/var/log/headcni.log";

/// The `CNI_ARGS` of a Kubernetes runtime.
pub(crate) const ARGS: &str =
    "IgnoreUnknown=1;K8S_POD_NAMESPACE=web;K8S_POD_NAME=web-0;K8S_POD_UID=1-2-3";

pub(crate) fn native() -> Value {
    json!({
        "cniVersion": "1.1.0", "name": "net", "type": "headcni",
        "ipam": { "type": "headcni-ipam", "subnet": "10.9.0.0/24" },
    })
}

/// A network of the reference bridge plugin.
pub(crate) fn delegating() -> Value {
    json!({
        "cniVersion": "1.1.0", "name": "net", "type": "headcni",
        "delegate": { "type": "bridge", "bridge": "cni0" },
        "ipam": { "type": "host-local", "subnet": "10.8.0.0/24" },
    })
}

pub(crate) fn with(mut conf: Value, key: &str, value: Value) -> Value {
    conf[key] = value;
    conf
}

/// The same network with a log.
pub(crate) fn logging(conf: Value) -> Value {
    with(conf, "log_file", LOG.into())
}

pub(crate) fn call(verb: &str, conf: &Value, pod: &Pod) -> Call {
    Call::new(verb)
        .path(cni_path())
        .conf(conf)
        .pod(pod)
        .args(ARGS)
}

/// A node.
pub(crate) struct Scene {
    pub(crate) node: Node,
}

impl Scene {
    /// A node without a daemon.
    pub(crate) fn new() -> Self {
        let node = Node::new("n1").unwrap();
        // The host may have a log of its own.
        node.run(["rm", "-f", LOG]).unwrap();
        Self { node }
    }

    /// A node that had a pod already: the nft tables that all pods share exist.
    pub(crate) fn used() -> Self {
        let scene = Self::new();
        let pod = scene.node.pod("first").unwrap();
        scene.done("ADD", &native(), &pod);
        scene.done("DEL", &native(), &pod);
        pod.delete().unwrap();
        scene
    }

    /// The socket's path as this process sees it.
    pub(crate) fn socket(&self) -> PathBuf {
        self.node.path(SOCKET)
    }

    /// Calls headcni; it must succeed.
    #[track_caller]
    pub(crate) fn done(&self, verb: &str, conf: &Value, pod: &Pod) -> Outcome {
        let outcome = self.run(&call(verb, conf, pod));
        if let Err(error) = outcome.ok() {
            panic!("{verb}: {error}");
        }
        outcome
    }

    pub(crate) fn run(&self, call: &Call) -> Outcome {
        call.run(&self.node, headcni()).unwrap()
    }
}

/// A client that sends arbitrary bytes.
pub(crate) struct RawClient {
    stream: UnixStream,
}

impl RawClient {
    pub(crate) fn connect(path: &Path) -> Self {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        Self { stream }
    }

    /// Sends bytes; the server may have closed the connection.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    /// Reads until the server closes the connection.
    pub(crate) fn read_to_end(&mut self) -> String {
        let mut bytes = Vec::new();
        // Data that the server did not read resets the connection.
        if let Err(error) = self.stream.read_to_end(&mut bytes) {
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        }
        String::from_utf8(bytes).unwrap()
    }
}
