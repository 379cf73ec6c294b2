//! A tailscaled and its server that do what real ones can't be made to do at the right moment.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{Method, StatusCode, Uri};
use headscale::{Client, Proxies, Secret};
use serde_json::{Value, json};
use tailscaled::localapi::LocalApi;
use tempfile::TempDir;
use tokio::net::{TcpListener, UnixListener};
use tokio_util::task::AbortOnDropHandle;

use crate::control_server::ControlServer;
use node_config::Config;
use node_core::files::write_atomic;

const KEY: &str = "abcdefg.0123456789abcdef";

/// Both of them, and what they know.
pub(super) struct Fake {
    pub(super) files: TempDir,
    world: Arc<Mutex<World>>,
    url: String,
    _serving: [AbortOnDropHandle<()>; 2],
}

/// What they know.
pub(super) struct World {
    pub(super) state: &'static str,
    /// Whether tailscaled does not say how it is.
    pub(super) is_silent: bool,
    pub(super) prefs: Value,
    pub(super) approved: Vec<String>,
    /// Other members, as the server lists them.
    pub(super) others: Vec<Value>,
    /// What the server is too busy for.
    pub(super) busy: Option<&'static str>,
    /// What the server says to a login. Without it, tailscaled ends in the middle of one.
    pub(super) refusal: Option<&'static str>,
    /// Whether the server has deleted this node, which tailscaled learns when it connects anew.
    pub(super) is_forgotten: bool,
    /// How often it did.
    pub(super) reconnects: usize,
    pub(super) version: &'static str,
    /// Whether the server makes keys.
    pub(super) makes_keys: bool,
    /// What somebody else does while the server is asked for its list.
    pub(super) meddle: Option<fn(&mut World)>,
    /// All that was asked.
    pub(super) calls: Vec<String>,
    /// The keys that logins were tried with.
    pub(super) tried: Vec<String>,
}

impl World {
    /// How often this was asked.
    pub(super) fn count(&self, call: &str) -> usize {
        self.calls.iter().filter(|asked| *asked == call).count()
    }
}

impl Fake {
    /// A member whose networks all lead to it.
    pub(super) async fn start(networks: &[&str]) -> Self {
        let files = TempDir::new().unwrap();
        write_atomic(&files.path().join("api-key"), KEY.as_bytes(), 0o600).unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", tcp.local_addr().unwrap());
        let unix = UnixListener::bind(files.path().join("ts.sock")).unwrap();
        let world = Arc::new(Mutex::new(World {
            state: "Running",
            prefs: json!({
                "ControlURL": url, "Hostname": "n1", "RouteAll": true, "NoSNAT": true,
                "NoStatefulFiltering": true, "AdvertiseRoutes": networks,
            }),
            approved: networks.iter().map(ToString::to_string).collect(),
            others: Vec::new(),
            busy: None,
            refusal: None,
            is_silent: false,
            is_forgotten: false,
            reconnects: 0,
            version: "v0.29.3",
            makes_keys: true,
            meddle: None,
            calls: Vec::new(),
            tried: Vec::new(),
        }));
        let router = Router::new()
            .fallback(answer)
            .with_state(Arc::clone(&world));
        let servers = [
            tokio::spawn(axum::serve(tcp, router.clone()).into_future()),
            tokio::spawn(axum::serve(unix, router).into_future()),
        ];
        let serving = servers.map(|server| {
            AbortOnDropHandle::new(tokio::spawn(async move {
                server.await.unwrap().unwrap();
            }))
        });
        Self {
            files,
            world,
            url,
            _serving: serving,
        }
    }

    pub(super) fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    pub(super) fn config(&self) -> Config {
        let mut config = Config::default();
        config.headscale.url = Some(self.url.clone());
        config.headscale.api_key_file = Some(self.path("api-key"));
        config
    }

    pub(super) fn tailscaled(&self) -> LocalApi {
        LocalApi::new(self.path("ts.sock"))
    }

    /// The same for a node that has a pre-auth key only.
    pub(super) fn config_without_api_key(&self) -> Config {
        let mut config = self.config();
        config.headscale.api_key_file = None;
        config.headscale.pre_auth_key_file = Some(self.path("auth-key"));
        write_atomic(&self.path("auth-key"), b"given", 0o600).unwrap();
        config
    }

    /// The server, asked without a proxy, whatever the environment has.
    pub(super) fn server(&self, config: &Config) -> ControlServer {
        let key = config.headscale.api_key_file.as_ref();
        let key = key.map(|_| Secret::new(KEY));
        let settings = headscale::ClientOptions {
            url: self.url.clone(),
            api_key: key.clone(),
            ca_file: Some(
                lab::certify([127, 0, 0, 1].into(), self.files.path())
                    .unwrap()
                    .ca,
            ),
            timeout: Duration::from_secs(10),
            proxies: Proxies::none(),
        };
        ControlServer::asked_by(Client::new(&settings).unwrap(), key, config)
    }
}

async fn answer(
    State(world): State<Arc<Mutex<World>>>,
    method: Method,
    uri: Uri,
    body: Bytes,
) -> (StatusCode, String) {
    let mut world = world.lock().unwrap();
    let call = format!("{method} {}", uri.path());
    if world.busy == Some(call.as_str()) {
        world.calls.push(call);
        return (StatusCode::SERVICE_UNAVAILABLE, String::new());
    }
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let answer = match call.strip_prefix(&format!("{method} /localapi/v0/")) {
        Some(path) => world.local(&method, path, &body),
        None => world.server(&call, &body),
    };
    world.calls.push(call);
    match answer {
        Some(text) => (StatusCode::OK, text),
        None => (StatusCode::NOT_FOUND, String::new()),
    }
}

impl World {
    fn local(&mut self, method: &Method, path: &str, body: &Value) -> Option<String> {
        let routes = &self.prefs["AdvertiseRoutes"];
        let complaint = |error| format!("You are logged out. The last login error was: {error}");
        let is_told = self.is_forgotten && self.reconnects > 0;
        let answer = match (method.as_str(), path) {
            ("GET", "status") if self.is_silent => return None,
            ("GET", "status") => json!({
                "BackendState": self.state, "HaveNodeKey": true, "TailscaleIPs": ["100.64.0.1"],
                "AuthURL": if is_told { "https://127.0.0.1/register/x" } else { "" },
                "Health": self.refusal.map(complaint).into_iter().collect::<Vec<_>>(),
                "Self": {
                    "PublicKey": "nodekey:ab", "HostName": "n1", "TailscaleIPs": ["100.64.0.1"],
                    "PrimaryRoutes": routes, "Tags": ["tag:k8s-node"], "Online": !is_told,
                },
            }),
            ("GET", "prefs") => self.prefs.clone(),
            ("PATCH", "prefs") => {
                for (name, value) in body.as_object()? {
                    if !name.ends_with("Set") {
                        self.prefs[name] = value.clone();
                    }
                }
                self.prefs.clone()
            }
            ("GET", "watch-ipn-bus") => {
                let refusal = json!({ "ErrMessage": self.refusal });
                return Some(format!("{}\n{refusal}\n", json!({ "State": 2 })));
            }
            ("POST", "start") if *body == json!({}) => {
                self.reconnects += 1;
                json!({})
            }
            ("POST", "start") => {
                self.tried.push(body["AuthKey"].as_str()?.to_owned());
                json!({})
            }
            ("POST", "login-interactive") => json!({}),
            _ => return None,
        };
        Some(answer.to_string())
    }

    fn server(&mut self, call: &str, body: &Value) -> Option<String> {
        let answer = match call {
            "GET /version" => json!({ "version": self.version }),
            "GET /api/v1/node" => {
                let mut nodes = self.others.clone();
                nodes.push(self.node());
                let list = json!({ "nodes": nodes });
                if let Some(meddle) = self.meddle.take() {
                    meddle(self);
                }
                list
            }
            "GET /api/v1/node/1" => json!({ "node": self.node() }),
            "POST /api/v1/node/1/approve_routes" => {
                self.approved = serde_json::from_value(body["routes"].clone()).ok()?;
                json!({ "node": self.node() })
            }
            "DELETE /api/v1/node/2" => {
                self.others.clear();
                json!({})
            }
            "POST /api/v1/preauthkey" if self.makes_keys => {
                let id = self.count(call).to_string();
                json!({ "preAuthKey": { "id": id, "key": format!("made-{id}") } })
            }
            "POST /api/v1/preauthkey/expire" => json!({}),
            _ => return None,
        };
        Some(answer.to_string())
    }

    fn node(&self) -> Value {
        json!({
            "id": "1", "nodeKey": "nodekey:ab", "name": "n1", "givenName": "n1", "online": true,
            "ipAddresses": ["100.64.0.1"], "availableRoutes": self.prefs["AdvertiseRoutes"],
            "approvedRoutes": self.approved, "subnetRoutes": self.approved,
        })
    }
}
