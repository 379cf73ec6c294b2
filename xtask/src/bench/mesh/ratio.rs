//! Ratios with their standard error.

use std::fmt::{self, Display, Formatter};

/// A ratio of means with its standard error.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ratio {
    pub(super) value: f64,
    error: f64,
}

impl Ratio {
    /// Of pairs that were measured together: what slows both down does not change their ratio.
    #[expect(
        clippy::cast_precision_loss,
        reason = "there are fewer than 2^52 samples"
    )]
    pub(super) fn of_pairs(of: &[f64], to: &[f64]) -> Self {
        let value = mean(of) / mean(to);
        let count = of.len().min(to.len()) as f64;
        let rests = of.iter().zip(to).map(|(of, to)| of - value * to);
        let squares: f64 = rests.map(|rest| rest * rest).sum();
        let error = (squares / (count * (count - 1.0))).sqrt() / mean(to);
        Self { value, error }
    }
}

impl Display for Ratio {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} ± {:.3}", self.value, self.error)
    }
}

/// Not a number if there are no samples.
#[expect(
    clippy::cast_precision_loss,
    reason = "there are fewer than 2^52 samples"
)]
pub(super) fn mean(numbers: &[f64]) -> f64 {
    numbers.iter().sum::<f64>() / numbers.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_ignores_what_slows_both_down() {
        let ratio = Ratio::of_pairs(&[9.0, 90.0, 1.8], &[10.0, 100.0, 2.0]);
        assert_eq!(ratio.to_string(), "0.900 ± 0.000");
    }

    #[test]
    fn the_error_is_how_much_pairs_differ() {
        let ratio = Ratio::of_pairs(&[8.0, 12.0], &[10.0, 10.0]);
        assert_eq!(ratio.to_string(), "1.000 ± 0.200");
    }

    #[test]
    fn without_samples_there_is_no_ratio() {
        assert!(Ratio::of_pairs(&[], &[]).value.is_nan());
    }
}
