//! The admin server over time: it waits for its address, and takes over what changes.

use std::future::Future;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{AdminError, Limits, Server, Sources};
use node_config::NodeConfig;

/// How soon an address that is in use is tried again.
const RETRY: Duration = Duration::from_secs(2);

/// Starts what answers on `/healthz`, and gives what keeps it going. An address that is not free
/// yet is waited for beside everything else: pods don't need it.
pub async fn begin(
    sources: Sources,
    settings: watch::Receiver<NodeConfig>,
    end: CancellationToken,
) -> Result<impl Future<Output = ()>, AdminError> {
    let server = match start(&sources, &settings, &end).await {
        Ok(server) => Some(server),
        Err(error) if error.may_pass() => {
            tracing::error!(%error, "trying again");
            None
        }
        Err(error) => return Err(error),
    };
    Ok(keep(server, sources, settings, end))
}

async fn start(
    sources: &Sources,
    settings: &watch::Receiver<NodeConfig>,
    end: &CancellationToken,
) -> Result<Server, AdminError> {
    let monitoring = settings.borrow().config.monitoring.clone();
    Server::start(&monitoring, sources.clone(), Limits::default(), end).await
}

/// Serves as soon as the address is free, and takes over what SIGHUP changes.
async fn keep(
    mut server: Option<Server>,
    sources: Sources,
    mut settings: watch::Receiver<NodeConfig>,
    end: CancellationToken,
) {
    let server = loop {
        if let Some(server) = server {
            break server;
        }
        tokio::select! {
            () = end.cancelled() => return,
            () = tokio::time::sleep(RETRY) => {}
        }
        server = start(&sources, &settings, &end).await.ok();
    };
    loop {
        server.reload(&settings.borrow_and_update().config.monitoring);
        tokio::select! {
            () = end.cancelled() => break,
            changed = settings.changed() => if changed.is_err() { break },
        }
    }
    server.shutdown().await;
}
