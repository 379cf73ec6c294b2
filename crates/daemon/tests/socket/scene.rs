//! A node with pods, and a place for the daemon's socket.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

pub(crate) use lab::tools::{cni_path, headcni};
use lab::{Call, Netns, Node, Outcome, Pod};
use serde_json::{Value, json};

use crate::server::SOON;

pub(crate) const SOCKET: &str = "/run/headcni/daemon.sock";
pub(crate) const SPOOL: &str = "/run/headcni/events.spool";

/// What Kubernetes' runtimes say of a pod.
pub(crate) const ARGS: &str =
    "IgnoreUnknown=1;K8S_POD_NAMESPACE=web;K8S_POD_NAME=web-0;K8S_POD_UID=1-2-3";

/// A native network.
pub(crate) fn native() -> Value {
    json!({
        "cniVersion": "1.1.0", "name": "net", "type": "headcni",
        "ipam": { "type": "headcni-ipam", "subnet": "10.9.0.0/24" },
    })
}

/// A network by the reference bridge.
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

pub(crate) fn call(verb: &str, conf: &Value, pod: &Pod) -> Call {
    Call::new(verb)
        .path(cni_path())
        .conf(conf)
        .pod(pod)
        .args(ARGS)
}

/// A machine for pods.
pub(crate) struct Scene {
    pub(crate) node: Node,
}

impl Scene {
    /// A machine without a daemon.
    pub(crate) fn new() -> Self {
        let node = Node::new("n1").unwrap();
        Self { node }
    }

    /// A machine that has had a pod: what the first one leaves for all others is there.
    pub(crate) fn used() -> Self {
        let scene = Self::new();
        let pod = scene.node.pod("first").unwrap();
        scene.done("ADD", &native(), &pod);
        scene.done("DEL", &native(), &pod);
        pod.delete().unwrap();
        scene
    }

    /// Where this process finds the socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.node.path(SOCKET)
    }

    /// As if a daemon had been there, and was killed.
    pub(crate) fn deserted(self) -> Self {
        self.node.run(["mkdir", "/run/headcni"]).unwrap();
        drop(UnixListener::bind(self.socket()).unwrap());
        self
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

    /// Calls headcni, whatever comes of it.
    pub(crate) fn run(&self, call: &Call) -> Outcome {
        call.run(&self.node, headcni()).unwrap()
    }
}

/// A client that says whatever it likes.
pub(crate) struct Client {
    stream: BufReader<UnixStream>,
}

impl Client {
    pub(crate) fn connect(path: &std::path::Path) -> Self {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        Self {
            stream: BufReader::new(stream),
        }
    }

    /// Says something, whether or not anybody still listens.
    pub(crate) fn say(&mut self, bytes: &[u8]) {
        let _ = self.stream.get_mut().write_all(bytes);
    }

    /// The next line of JSON.
    pub(crate) fn hear(&mut self) -> Value {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    /// All that comes until the other side hangs up.
    pub(crate) fn hear_out(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        // A connection may also be reset, if something was not listened to.
        if let Err(error) = self.stream.read_to_end(&mut rest) {
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        }
        rest
    }
}
