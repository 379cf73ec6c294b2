//! How the API is reached.

use std::env;
use std::path::PathBuf;
use std::time::Duration;

use kube::Client;
use kube::config::{Config, InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};

use node_config::Kubernetes;

/// For a connection, and for what is sent by it. Watches wait for much longer.
const LIMIT: Duration = Duration::from_secs(15);
/// For what comes back. A watch is told nothing for 290 seconds at the most, then it is begun again. A list
/// would wait for ever where the server is gone and nobody says so.
const SILENCE: Duration = Duration::from_mins(5);
/// Kubernetes sets it in every pod.
const IN_POD: &str = "KUBERNETES_SERVICE_HOST";

/// Why the API can't be asked.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClientError {
    /// Nobody says how.
    #[error(
        "kubernetes.enabled is true, but nobody says how to reach the API: set kubernetes.kubeconfig, or \
         run in a pod"
    )]
    Nowhere,
    /// The file is no use.
    #[error("read kubernetes.kubeconfig {}", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: KubeconfigError,
    },
    /// The pod has not what it needs.
    #[error("use the pod's service account: is automountServiceAccountToken false?")]
    Pod(#[source] InClusterError),
    /// No client can be made.
    #[error("prepare to ask the API")]
    Setup(#[source] kube::Error),
}

/// Where it is known from how the API is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// `kubernetes.kubeconfig`.
    Kubeconfig,
    /// The pod that this is.
    Pod,
    /// It is not asked.
    Nobody,
}

/// From where it is known; nothing if it is to be asked and nobody knows how.
pub(super) fn origin(config: &Kubernetes, is_pod: bool) -> Option<Origin> {
    match (config.enabled, &config.kubeconfig, is_pod) {
        (Some(false), ..) | (None, None, false) => Some(Origin::Nobody),
        (_, Some(_), _) => Some(Origin::Kubeconfig),
        (_, None, true) => Some(Origin::Pod),
        (Some(true), None, false) => None,
    }
}

/// Whether the API is to be asked.
pub(super) fn is_asked(config: &Kubernetes) -> bool {
    origin(config, is_pod()) != Some(Origin::Nobody)
}

fn is_pod() -> bool {
    env::var_os(IN_POD).is_some()
}

/// A client, or nothing if the API is not to be asked.
pub(super) async fn connect(config: &Kubernetes) -> Result<Option<Client>, ClientError> {
    let mut settings = match (origin(config, is_pod()), &config.kubeconfig) {
        (None, _) => return Err(ClientError::Nowhere),
        (Some(Origin::Nobody), _) => return Ok(None),
        (Some(Origin::Kubeconfig), Some(path)) => {
            let failed = |source| ClientError::Kubeconfig {
                path: path.clone(),
                source,
            };
            let file = Kubeconfig::read_from(path).map_err(failed)?;
            let options = KubeConfigOptions::default();
            let made = Config::from_custom_kubeconfig(file, &options).await;
            made.map_err(failed)?
        }
        (Some(Origin::Pod | Origin::Kubeconfig), _) => {
            Config::incluster_env().map_err(ClientError::Pod)?
        }
    };
    settings.connect_timeout = Some(LIMIT);
    settings.write_timeout = Some(LIMIT);
    settings.read_timeout = Some(SILENCE);
    // Silence before a request is nobody's fault.
    settings.reset_reader_on_write = true;
    Client::try_from(settings)
        .map(Some)
        .map_err(ClientError::Setup)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_says_how_is_believed_and_nobody_is_asked_in_vain() {
        let mut config = Kubernetes::default();
        assert_eq!(origin(&config, false), Some(Origin::Nobody));
        assert_eq!(origin(&config, true), Some(Origin::Pod));
        config.kubeconfig = Some("/etc/headcni/kubeconfig".into());
        assert_eq!(origin(&config, false), Some(Origin::Kubeconfig));
        assert_eq!(origin(&config, true), Some(Origin::Kubeconfig));
        config.enabled = Some(false);
        assert_eq!(origin(&config, true), Some(Origin::Nobody));
        config.enabled = Some(true);
        config.kubeconfig = None;
        assert_eq!(origin(&config, false), None);
        assert_eq!(origin(&config, true), Some(Origin::Pod));
    }
}
