//! The environment of a call, read once and passed down.

use std::ffi::{OsStr, OsString};
use std::rc::Rc;

use crate::Error;

/// All variables of a call: ours to read, and the delegates' to inherit.
///
/// A clone is the same list. There are few that anybody asks for, so that putting them in order
/// would take longer than looking through them.
#[derive(Clone, Debug, Default)]
pub struct Env(Rc<Vec<(OsString, OsString)>>);

impl Env {
    /// The environment of this process.
    pub fn of_process() -> Self {
        Self(Rc::new(std::env::vars_os().collect()))
    }

    /// The variable's value; unset and empty are the same in CNI.
    pub fn get(&self, name: &str) -> Result<Option<&str>, Error> {
        // Of two with one name, the later one counts.
        let found = self.0.iter().rfind(|(key, _)| key == name);
        match found.map(|(_, value)| value) {
            None => Ok(None),
            Some(value) if value.is_empty() => Ok(None),
            Some(value) => value.to_str().map(Some).ok_or_else(|| {
                Error::variable(name, format_args!("{} is not UTF-8", value.display()))
            }),
        }
    }

    /// The same environment with one variable set to `value`.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<OsString>) -> Self {
        Rc::make_mut(&mut self.0).push((name.into(), value.into()));
        self
    }

    /// Every variable with its value; of two with one name, the later one counts.
    pub fn iter(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_os_str(), value.as_os_str()))
    }
}

impl<K: Into<OsString>, V: Into<OsString>> FromIterator<(K, V)> for Env {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        let pairs = pairs.into_iter();
        Self(Rc::new(
            pairs
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
        ))
    }
}
