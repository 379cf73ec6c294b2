//! What the kernel refused, in words.

use rustix::io::Errno;

/// The kernel said no.
#[derive(Debug, thiserror::Error)]
pub enum NetError {
    /// A request was refused.
    #[error("{attempt}: {}", reason(*errno, words))]
    Refused {
        /// What was attempted, and on what.
        attempt: String,
        /// The kernel's error number.
        errno: Errno,
        /// The kernel's own words, if it had any.
        words: String,
    },
    /// The conversation itself failed.
    #[error("{attempt}")]
    Talk {
        /// What was attempted.
        attempt: String,
        /// Why it failed.
        #[source]
        source: std::io::Error,
    },
}

impl NetError {
    /// For `map_err`: a system call that failed.
    pub(crate) fn talk<E: Into<std::io::Error>>(
        attempt: impl Into<String>,
    ) -> impl FnOnce(E) -> Self {
        let attempt = attempt.into();
        move |source| Self::Talk {
            attempt,
            source: source.into(),
        }
    }

    /// Whether the kernel refused with this error.
    pub fn is(&self, wanted: Errno) -> bool {
        matches!(self, Self::Refused { errno, .. } if *errno == wanted)
    }
}

fn reason(errno: Errno, words: &str) -> String {
    let name = std::io::Error::from(errno);
    if words.is_empty() {
        return name.to_string();
    }
    format!("{words} ({name})")
}
