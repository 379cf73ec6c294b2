//! Errors in one line, for conditions and logs.

use std::error::Error;

/// An error with everything that led to it.
pub fn display_chain(error: &(impl Error + ?Sized)) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        // Some say in their own words what their cause has said.
        if !words.ends_with(&text) {
            words = format!("{words}: {text}");
        }
        cause = error.source();
    }
    words
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("write {name}{}", if *.is_wordy { ": no room" } else { "" })]
    struct Outer {
        name: &'static str,
        is_wordy: bool,
        #[source]
        source: io::Error,
    }

    #[test]
    fn causes_follow_and_nothing_is_said_twice() {
        let outer = |is_wordy| Outer {
            name: "x",
            is_wordy,
            source: io::Error::other("no room"),
        };
        assert_eq!(display_chain(&outer(false)), "write x: no room");
        assert_eq!(display_chain(&outer(true)), "write x: no room");
    }
}
