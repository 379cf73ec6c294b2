//! Starts, reloads and stops the admin server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::profile::Profiles;
use super::{AdminContext, AdminError, routes};
use crate::connections::{self, ConnectionLimits};
use node_config::Monitoring;
use node_config::NodeConfig;

/// How often an address that is in use is tried again.
const RETRY: Duration = Duration::from_secs(2);

/// What clients of the admin server may use.
pub const LIMITS: ConnectionLimits = ConnectionLimits {
    connections: 32,
    header: Duration::from_secs(5),
    response: Duration::from_secs(15),
    request_bytes: 16 << 10,
    shutdown: Duration::from_millis(500),
};

/// The running admin server.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    profiles: Arc<Profiles>,
    shutdown: CancellationToken,
    task: JoinHandle<()>,
}

impl Server {
    /// Listens on `monitoring.address` and serves until `shutdown`.
    pub async fn start(
        monitoring: &Monitoring,
        context: AdminContext,
        limits: ConnectionLimits,
        shutdown: &CancellationToken,
    ) -> Result<Self, AdminError> {
        let configured = monitoring.address;
        let bind = async {
            let listener = TcpListener::bind(configured).await?;
            let address = listener.local_addr()?;
            Ok((listener, address))
        };
        let (listener, address) = bind
            .await
            .map_err(|error| AdminError::new(configured, error))?;
        let profiles = Arc::new(Profiles::new(monitoring));
        let router = routes::router(context, Arc::clone(&profiles));
        let shutdown = shutdown.child_token();
        let serving = connections::serve(listener, |_| true, router, limits, shutdown.clone());
        let task = tokio::spawn(serving);
        tracing::info!(%address, "serving health and metrics");
        Ok(Self {
            address,
            profiles,
            shutdown,
            task,
        })
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Applies `monitoring.pprof`. Another address needs a restart.
    pub fn reload(&self, monitoring: &Monitoring) {
        self.profiles.reload(monitoring);
    }

    /// Stops it: at once if no request is open, else in less than a second.
    pub async fn shutdown(self) {
        self.shutdown.cancel();
        // An error means that the task is gone, too.
        let _ = self.task.await;
    }
}

/// Starts the admin server and returns its task. If the address is in use, the task retries: pods
/// do not need the admin server.
pub async fn start(
    context: AdminContext,
    settings: watch::Receiver<NodeConfig>,
    shutdown: CancellationToken,
) -> Result<impl Future<Output = ()>, AdminError> {
    let server = match start_once(&context, &settings, &shutdown).await {
        Ok(server) => Some(server),
        Err(error) if error.is_temporary() => {
            tracing::error!(%error, "failed to start the admin server, retrying");
            None
        }
        Err(error) => return Err(error),
    };
    Ok(run(server, context, settings, shutdown))
}

async fn start_once(
    context: &AdminContext,
    settings: &watch::Receiver<NodeConfig>,
    shutdown: &CancellationToken,
) -> Result<Server, AdminError> {
    let monitoring = settings.borrow().config.monitoring.clone();
    Server::start(&monitoring, context.clone(), LIMITS, shutdown).await
}

async fn run(
    mut server: Option<Server>,
    context: AdminContext,
    mut settings: watch::Receiver<NodeConfig>,
    shutdown: CancellationToken,
) {
    let server = loop {
        if let Some(server) = server {
            break server;
        }
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(RETRY) => {}
        }
        server = start_once(&context, &settings, &shutdown).await.ok();
    };
    loop {
        server.reload(&settings.borrow_and_update().config.monitoring);
        tokio::select! {
            () = shutdown.cancelled() => break,
            changed = settings.changed() => if changed.is_err() { break },
        }
    }
    server.shutdown().await;
}
