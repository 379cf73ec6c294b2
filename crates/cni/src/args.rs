//! `CNI_ARGS`: pairs that a runtime adds, `K=V;K=V`.

use crate::Error;

/// The pairs of `CNI_ARGS`, in their order.
///
/// Unknown keys are kept, not refused: a meta plugin can't know what its delegates understand,
/// and each of them judges for itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CniArgs {
    text: String,
    pairs: Vec<(String, String)>,
}

impl CniArgs {
    /// Reads the pairs; one without `=` is an error.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let pairs = text
            .split(';')
            .filter(|pair| !pair.is_empty())
            .map(|pair| match pair.split_once('=') {
                Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
                _ => Err(Error::variable(
                    "CNI_ARGS",
                    format_args!("has {pair:?}, which is not of the form KEY=VALUE"),
                )),
            })
            .collect::<Result<_, _>>()?;
        Ok(Self {
            text: text.to_owned(),
            pairs,
        })
    }

    /// The value of `key`; the last one if it is given twice.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.pairs
            .iter()
            .rev()
            .find(|(k, _)| k == key)
            .map(|(_, value)| value.as_str())
    }

    /// The text as the runtime gave it.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_found_by_key() {
        let args = CniArgs::parse("IgnoreUnknown=1;K8S_POD_NAME=web-0;X=a=b;").unwrap();
        assert_eq!(args.get("K8S_POD_NAME"), Some("web-0"));
        assert_eq!(args.get("X"), Some("a=b"));
        assert_eq!(args.get("Y"), None);
    }

    #[test]
    fn a_pair_without_an_equals_sign_is_refused_by_name() {
        for text in ["oops", "a=1;oops", "=1"] {
            let error = CniArgs::parse(text).unwrap_err();
            assert_eq!(error.code, crate::code::INVALID_ENVIRONMENT);
            assert!(error.msg.contains("CNI_ARGS"), "{}", error.msg);
        }
    }
}
