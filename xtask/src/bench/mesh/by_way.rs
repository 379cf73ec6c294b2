//! The same, measured by every way in turn.

use anyhow::Result;

use super::Family;
use super::ratio::Ratio;
use super::way::Way;

/// What was measured by a family.
#[derive(Debug)]
pub(super) struct ByWay<T> {
    pub(super) family: Family,
    pub(super) underlay: Vec<T>,
    /// As many as of pods: those at the same place were measured together.
    pub(super) nodes: Vec<T>,
    pub(super) pods: Vec<T>,
}

impl<T> ByWay<T> {
    pub(super) fn none(family: Family) -> Self {
        Self {
            family,
            underlay: Vec::new(),
            nodes: Vec::new(),
            pods: Vec::new(),
        }
    }

    /// Has pods and nodes take so many turns.
    pub(super) fn measure_round(
        &mut self,
        turns: usize,
        measure: impl Fn(Way) -> Result<T>,
    ) -> Result<()> {
        self.underlay.push(measure(Way::Underlay)?);
        for turn in 0..turns {
            // Neither is always the first of a pair.
            if turn % 2 == 0 {
                self.nodes.push(measure(Way::Nodes)?);
                self.pods.push(measure(Way::Pods)?);
            } else {
                self.pods.push(measure(Way::Pods)?);
                self.nodes.push(measure(Way::Nodes)?);
            }
        }
        Ok(())
    }

    /// What pods have of what nodes have.
    pub(super) fn pods_to_nodes(&self, number: impl Fn(&T) -> f64) -> Ratio {
        Ratio::of_pairs(
            &numbers(&self.pods, &number),
            &numbers(&self.nodes, &number),
        )
    }

    /// The same of what is the better the less it is.
    pub(super) fn nodes_to_pods(&self, number: impl Fn(&T) -> f64) -> Ratio {
        Ratio::of_pairs(
            &numbers(&self.nodes, &number),
            &numbers(&self.pods, &number),
        )
    }
}

/// One number of each.
pub(super) fn numbers<T>(measured: &[T], number: impl Fn(&T) -> f64) -> Vec<f64> {
    measured.iter().map(number).collect()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn pods_and_nodes_take_turns_and_neither_is_always_first() {
        let turns = RefCell::new(Vec::new());
        let mut all = ByWay::none(Family::Ipv4);
        all.measure_round(5, |way| {
            turns.borrow_mut().push(way);
            Ok(turns.borrow().len())
        })
        .unwrap();
        assert_eq!(all.underlay, [1]);
        assert_eq!(all.nodes, [2, 5, 6, 9, 10]);
        assert_eq!(all.pods, [3, 4, 7, 8, 11]);
        assert_eq!(turns.borrow()[..3], [Way::Underlay, Way::Nodes, Way::Pods]);
    }
}
