//! Clean-up continues after errors and reports them together.

use cni::Error;

#[derive(Default)]
pub(crate) struct Errors(Vec<Error>);

impl Errors {
    pub(crate) fn push(&mut self, error: Error) {
        self.0.push(error);
    }

    pub(crate) fn collect(&mut self, outcome: Result<(), Error>) {
        self.0.extend(outcome.err());
    }

    /// The first error, with the others in its details.
    pub(crate) fn into_result(self) -> Result<(), Error> {
        let mut errors = self.0.into_iter();
        match errors.next() {
            None => Ok(()),
            Some(first) => {
                Err(errors.fold(first, |first, other| first.with_details(&other.to_string())))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_error_is_reported_with_the_others_as_details() {
        let mut errors = Errors::default();
        errors.collect(Ok(()));
        errors.collect(Err(Error::new(11, "first")));
        errors.collect(Err(Error::new(7, "second")));
        let error = errors.into_result().unwrap_err();
        assert_eq!((error.code, error.msg.as_str()), (11, "first"));
        assert!(error.details.contains("second"), "{error}");
        assert!(Errors::default().into_result().is_ok());
    }
}
