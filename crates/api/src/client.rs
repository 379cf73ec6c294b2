//! A typed client of the daemon's API.

use std::path::PathBuf;
use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::http::{HttpClient, HttpError, Response};
use crate::messages::{
    Condition, ErrorBody, Interface, Lease, MAX_RESPONSE_BYTES, Pod, PodCidr, Resource, Route,
    Status,
};

/// Why the daemon's answer is missing.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The daemon can't be reached, or its response is incomplete.
    #[error("get {resource} from headcni-daemon: is it running, and are you root?")]
    Http {
        /// The resource.
        resource: Resource,
        /// What failed.
        #[source]
        source: HttpError,
    },
    /// The daemon answered with an error.
    #[error("get {resource} from headcni-daemon: {status}: {message}")]
    Status {
        /// The resource.
        resource: Resource,
        /// The HTTP status code.
        status: u16,
        /// The daemon's error message.
        message: String,
    },
    /// The body is not the expected JSON.
    #[error("decode {resource} from headcni-daemon")]
    Decode {
        /// The resource.
        resource: Resource,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
}

/// A client of the daemon. Each call is a request of its own.
#[derive(Clone, Debug)]
pub struct Client {
    http: HttpClient,
}

impl Client {
    /// A client of the daemon at `socket`; no call takes longer than `timeout`.
    pub fn new(socket: impl Into<PathBuf>, timeout: Duration) -> Self {
        Self {
            http: HttpClient::new(socket)
                .timeout(timeout)
                .max_body_bytes(MAX_RESPONSE_BYTES),
        }
    }

    /// A summary of the daemon and its node.
    pub fn status(&self) -> Result<Status, ClientError> {
        self.get(Resource::Status)
    }

    /// The pods of the node.
    pub fn pods(&self) -> Result<Vec<Pod>, ClientError> {
        self.get(Resource::Pods)
    }

    /// The addresses in use.
    pub fn leases(&self) -> Result<Vec<Lease>, ClientError> {
        self.get(Resource::Leases)
    }

    /// The host sides of the pods' veths.
    pub fn interfaces(&self) -> Result<Vec<Interface>, ClientError> {
        self.get(Resource::Interfaces)
    }

    /// The routes that headcni installed.
    pub fn routes(&self) -> Result<Vec<Route>, ClientError> {
        self.get(Resource::Routes)
    }

    /// The node's pod CIDRs.
    pub fn pod_cidr(&self) -> Result<PodCidr, ClientError> {
        self.get(Resource::PodCidr)
    }

    /// The daemon's conditions.
    pub fn conditions(&self) -> Result<Vec<Condition>, ClientError> {
        self.get(Resource::Conditions)
    }

    fn get<T: DeserializeOwned>(&self, resource: Resource) -> Result<T, ClientError> {
        let response = self.http.get(&resource.path());
        let Response { status, body } =
            response.map_err(|source| ClientError::Http { resource, source })?;
        if status != 200 {
            let body: ErrorBody = serde_json::from_slice(&body).unwrap_or_default();
            return Err(ClientError::Status {
                resource,
                status,
                message: body.error,
            });
        }
        serde_json::from_slice(&body).map_err(|source| ClientError::Decode { resource, source })
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;
    use std::thread;

    use rstest::rstest;

    use super::*;

    fn status_of(response: &str) -> Result<Status, ClientError> {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        let listener = UnixListener::bind(&socket).unwrap();
        let response = response.to_owned();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1000];
            let count = stream.read(&mut request).unwrap();
            assert!(request[..count].starts_with(b"GET /v1/status HTTP/1.1\r\n"));
            stream.write_all(response.as_bytes()).unwrap();
        });
        let status = Client::new(&socket, Duration::from_secs(20)).status();
        server.join().unwrap();
        status
    }

    #[test]
    fn a_response_is_decoded() {
        let status = status_of("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{\"pods\":7}");
        assert_eq!(status.unwrap().pods, 7);
    }

    #[rstest]
    #[case(
        "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 16\r\n\r\n{\"error\":\"oops\"}",
        "500: oops"
    )]
    #[case("HTTP/1.1 404 Not Found\r\nContent-Length: 1\r\n\r\nx", "404: ")]
    #[case("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", "decode status")]
    fn an_error_names_resource_and_cause(#[case] response: &str, #[case] part: &str) {
        let error = status_of(response).unwrap_err().to_string();
        assert!(error.contains(part) && error.contains("status"), "{error}");
    }

    #[test]
    fn a_daemon_that_is_away_is_an_error_with_a_remedy() {
        let client = Client::new("/nonexistent/s", Duration::from_secs(1));
        let error = client.status().unwrap_err().to_string();
        assert!(error.contains("is it running"), "{error}");
    }
}
