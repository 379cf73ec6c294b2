//! Errors of the kernel and of its sockets.

use rustix::io::Errno;

/// The kernel rejected a request, or a socket failed.
#[derive(Debug, thiserror::Error)]
pub enum NetError {
    /// The kernel rejected a request.
    #[error("{attempt}: {}", reason(*errno, message))]
    Rejected {
        /// What was attempted, and on what.
        attempt: String,
        /// The kernel's error number.
        errno: Errno,
        /// The kernel's extended acknowledgement, or empty.
        message: String,
    },
    /// A system call on the socket failed.
    #[error("{attempt}")]
    Io {
        /// What was attempted.
        attempt: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
}

impl NetError {
    /// For `map_err`: a system call that failed.
    pub(crate) fn io<E: Into<std::io::Error>>(
        attempt: impl Into<String>,
    ) -> impl FnOnce(E) -> Self {
        let attempt = attempt.into();
        move |source| Self::Io {
            attempt,
            source: source.into(),
        }
    }

    /// Whether the kernel rejected the request with this error.
    pub fn is(&self, wanted: Errno) -> bool {
        matches!(self, Self::Rejected { errno, .. } if *errno == wanted)
    }
}

fn reason(errno: Errno, message: &str) -> String {
    let name = std::io::Error::from(errno);
    if message.is_empty() {
        return name.to_string();
    }
    format!("{message} ({name})")
}
