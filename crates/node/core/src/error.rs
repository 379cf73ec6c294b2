//! Errors as text, for conditions and logs.

use std::error::Error;

/// The error and its sources in one line.
pub fn display_chain(error: &(impl Error + ?Sized)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let source = error.to_string();
        // Some messages end with that of their source.
        if !text.ends_with(&source) {
            text = format!("{text}: {source}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("write {name}{}", if *.repeats_source { ": no room" } else { "" })]
    struct Outer {
        name: &'static str,
        repeats_source: bool,
        #[source]
        source: io::Error,
    }

    #[test]
    fn sources_follow_and_none_is_repeated() {
        let outer = |repeats_source| Outer {
            name: "x",
            repeats_source,
            source: io::Error::other("no room"),
        };
        assert_eq!(display_chain(&outer(false)), "write x: no room");
        assert_eq!(display_chain(&outer(true)), "write x: no room");
    }
}
