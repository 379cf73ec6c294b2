//! The order of measurements in a round.

/// A permutation of `count` cases that differs from round to round: a case that follows a slow one
/// finds other caches than a case that follows a quick one.
pub(super) fn order(round: usize, count: usize) -> impl Iterator<Item = usize> {
    // One and primes: a step that doesn't divide the count visits all.
    const STEPS: [usize; 8] = [1, 5, 7, 11, 13, 17, 19, 23];
    let steps = STEPS.map(|step| if count.is_multiple_of(step) { 1 } else { step });
    let step = steps[round % steps.len()];
    (0..count).map(move |nth| (round + nth * step) % count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_visits_every_case_once() {
        for (round, count) in (0..100).flat_map(|round| [1, 3, 7, 9, 24].map(|n| (round, n))) {
            let mut visited: Vec<usize> = order(round, count).collect();
            visited.sort_unstable();
            assert_eq!(visited, (0..count).collect::<Vec<_>>(), "round {round}");
        }
    }
}
