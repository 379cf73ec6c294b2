//! Samples of the same figure for every pair of endpoints.

use anyhow::Result;

use super::IpFamily;
use super::ratio::Ratio;
use super::two_nodes::Endpoints;

#[derive(Debug)]
pub(super) struct Samples<T> {
    pub(super) family: IpFamily,
    pub(super) underlay: Vec<T>,
    /// The nth samples of nodes and of pods were measured together.
    pub(super) nodes: Vec<T>,
    pub(super) pods: Vec<T>,
}

impl<T> Samples<T> {
    pub(super) fn none(family: IpFamily) -> Self {
        Self {
            family,
            underlay: Vec::new(),
            nodes: Vec::new(),
            pods: Vec::new(),
        }
    }

    /// Alternates between pods and nodes.
    pub(super) fn measure_round(
        &mut self,
        count: usize,
        measure: impl Fn(Endpoints) -> Result<T>,
    ) -> Result<()> {
        self.underlay.push(measure(Endpoints::Underlay)?);
        for nth in 0..count {
            // Neither is always the first of a pair.
            if nth % 2 == 0 {
                self.nodes.push(measure(Endpoints::Nodes)?);
                self.pods.push(measure(Endpoints::Pods)?);
            } else {
                self.pods.push(measure(Endpoints::Pods)?);
                self.nodes.push(measure(Endpoints::Nodes)?);
            }
        }
        Ok(())
    }

    /// For figures of which more is better.
    pub(super) fn pods_to_nodes(&self, number: impl Fn(&T) -> f64) -> Ratio {
        Ratio::of_pairs(
            &numbers(&self.pods, &number),
            &numbers(&self.nodes, &number),
        )
    }

    /// For figures of which less is better.
    pub(super) fn nodes_to_pods(&self, number: impl Fn(&T) -> f64) -> Ratio {
        Ratio::of_pairs(
            &numbers(&self.nodes, &number),
            &numbers(&self.pods, &number),
        )
    }
}

pub(super) fn numbers<T>(measured: &[T], number: impl Fn(&T) -> f64) -> Vec<f64> {
    measured.iter().map(number).collect()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn pods_and_nodes_alternate_and_neither_is_always_first() {
        let measured = RefCell::new(Vec::new());
        let mut all = Samples::none(IpFamily::Ipv4);
        all.measure_round(5, |ends| {
            measured.borrow_mut().push(ends);
            Ok(measured.borrow().len())
        })
        .unwrap();
        assert_eq!(all.underlay, [1]);
        assert_eq!(all.nodes, [2, 5, 6, 9, 10]);
        assert_eq!(all.pods, [3, 4, 7, 8, 11]);
        let first = [Endpoints::Underlay, Endpoints::Nodes, Endpoints::Pods];
        assert_eq!(measured.borrow()[..3], first);
    }
}
