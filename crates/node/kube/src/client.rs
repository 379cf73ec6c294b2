//! How the daemon connects to the Kubernetes API.

use std::env;
use std::path::PathBuf;
use std::time::Duration;

use kube::Client;
use kube::config::{Config, InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};

use node_config::Kubernetes;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
const WRITE_TIMEOUT: Duration = Duration::from_secs(15);
/// A watch may be silent for 290 seconds before the server ends it. Without a limit, a list would wait
/// for ever for a server that vanished without closing the connection.
const READ_TIMEOUT: Duration = Duration::from_mins(5);
/// Kubernetes sets it in every pod.
const IN_POD: &str = "KUBERNETES_SERVICE_HOST";

#[derive(Debug, thiserror::Error)]
pub(super) enum ClientError {
    #[error(
        "kubernetes.enabled is true, but there is neither kubernetes.kubeconfig nor a service account: \
         set kubernetes.kubeconfig, or run in a pod"
    )]
    NoCredentials,
    #[error("read kubernetes.kubeconfig {}", path.display())]
    Kubeconfig {
        path: PathBuf,
        #[source]
        source: KubeconfigError,
    },
    #[error("use the pod's service account: is automountServiceAccountToken false?")]
    ServiceAccount(#[source] InClusterError),
    #[error("set up the Kubernetes client")]
    Setup(#[source] kube::Error),
}

/// Which credentials the client uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClientMode {
    Disabled,
    Kubeconfig,
    ServiceAccount,
}

/// `None` if the API is enabled and there are no credentials.
fn client_mode(config: &Kubernetes, is_pod: bool) -> Option<ClientMode> {
    match (config.enabled, &config.kubeconfig, is_pod) {
        (Some(false), ..) | (None, None, false) => Some(ClientMode::Disabled),
        (_, Some(_), _) => Some(ClientMode::Kubeconfig),
        (_, None, true) => Some(ClientMode::ServiceAccount),
        (Some(true), None, false) => None,
    }
}

pub(super) fn is_enabled(config: &Kubernetes) -> bool {
    client_mode(config, is_pod()) != Some(ClientMode::Disabled)
}

fn is_pod() -> bool {
    env::var_os(IN_POD).is_some()
}

/// `None` if the API is disabled.
pub(super) async fn connect(config: &Kubernetes) -> Result<Option<Client>, ClientError> {
    let mut settings = match (client_mode(config, is_pod()), &config.kubeconfig) {
        (None, _) => return Err(ClientError::NoCredentials),
        (Some(ClientMode::Disabled), _) => return Ok(None),
        (Some(ClientMode::Kubeconfig), Some(path)) => {
            let failed = |source| ClientError::Kubeconfig {
                path: path.clone(),
                source,
            };
            let file = Kubeconfig::read_from(path).map_err(failed)?;
            let options = KubeConfigOptions::default();
            let settings = Config::from_custom_kubeconfig(file, &options).await;
            settings.map_err(failed)?
        }
        (Some(ClientMode::ServiceAccount | ClientMode::Kubeconfig), _) => {
            Config::incluster_env().map_err(ClientError::ServiceAccount)?
        }
    };
    settings.connect_timeout = Some(CONNECT_TIMEOUT);
    settings.write_timeout = Some(WRITE_TIMEOUT);
    settings.read_timeout = Some(READ_TIMEOUT);
    // An idle connection is not a timeout.
    settings.reset_reader_on_write = true;
    Client::try_from(settings)
        .map(Some)
        .map_err(ClientError::Setup)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubeconfig_wins_over_the_service_account() {
        let mut config = Kubernetes::default();
        assert_eq!(client_mode(&config, false), Some(ClientMode::Disabled));
        assert_eq!(client_mode(&config, true), Some(ClientMode::ServiceAccount));
        config.kubeconfig = Some("/etc/headcni/kubeconfig".into());
        assert_eq!(client_mode(&config, false), Some(ClientMode::Kubeconfig));
        assert_eq!(client_mode(&config, true), Some(ClientMode::Kubeconfig));
        config.enabled = Some(false);
        assert_eq!(client_mode(&config, true), Some(ClientMode::Disabled));
        config.enabled = Some(true);
        config.kubeconfig = None;
        assert_eq!(client_mode(&config, false), None);
        assert_eq!(client_mode(&config, true), Some(ClientMode::ServiceAccount));
    }
}
