//! Which addresses of pods that are in none of the node's networks get a route of their own. Nothing is
//! touched here.

use std::collections::BTreeSet;

use ipnet::IpNet;

use node_core::routing::MAX_EXTRA_HOST_ROUTES;

/// Addresses of living pods that are in none of the node's networks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtraHostRoutes {
    /// Those that get a route.
    pub routed: BTreeSet<IpNet>,
    /// Those for which there is no room.
    pub left_out: BTreeSet<IpNet>,
}

impl ExtraHostRoutes {
    /// Whoever is advertised already stays: a new pod must not cost a living one its route.
    pub fn choose(living: BTreeSet<IpNet>, advertised: &[IpNet]) -> Self {
        let has_route = |address: &IpNet| advertised.contains(address);
        let (kept, new): (Vec<IpNet>, Vec<IpNet>) = living.into_iter().partition(has_route);
        let mut all = kept.into_iter().chain(new);
        Self {
            routed: all.by_ref().take(MAX_EXTRA_HOST_ROUTES).collect(),
            left_out: all.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: usize) -> IpNet {
        format!("10.244.200.{number}/32").parse().unwrap()
    }

    fn advertised(outside: &ExtraHostRoutes) -> Vec<IpNet> {
        outside.routed.iter().copied().collect()
    }

    #[test]
    fn the_living_keep_their_routes_and_who_is_left_out_is_named() {
        let before = ExtraHostRoutes::choose((101..=164).map(address).collect(), &[]);
        assert_eq!(before.routed.len(), MAX_EXTRA_HOST_ROUTES);
        assert!(before.left_out.is_empty());
        // Lower ones and higher ones come, and nobody goes.
        let now = ExtraHostRoutes::choose((100..=165).map(address).collect(), &advertised(&before));
        assert_eq!(now.routed, before.routed);
        assert_eq!(now.left_out, [address(100), address(165)].into());
    }

    #[test]
    fn one_that_goes_makes_room() {
        let before = ExtraHostRoutes::choose((101..=164).map(address).collect(), &[]);
        let mut living: BTreeSet<IpNet> = (101..=165).map(address).collect();
        let full = ExtraHostRoutes::choose(living.clone(), &advertised(&before));
        assert_eq!(full.left_out, [address(165)].into());
        living.remove(&address(130));
        let now = ExtraHostRoutes::choose(living.clone(), &advertised(&full));
        assert_eq!(now.routed, living);
        assert!(now.left_out.is_empty());
    }

    #[test]
    fn of_more_than_there_is_room_for_at_once_the_first_get_it() {
        let all = ExtraHostRoutes::choose((1..=70).map(address).collect(), &[]);
        assert_eq!(all.routed, (1..=64).map(address).collect());
        assert_eq!(all.left_out, (65..=70).map(address).collect());
    }

    #[test]
    fn what_was_advertised_and_lives_no_more_takes_no_room() {
        let dead: Vec<IpNet> = (1..=64).map(address).collect();
        let living: BTreeSet<IpNet> = (101..=164).map(address).collect();
        assert_eq!(
            ExtraHostRoutes::choose(living.clone(), &dead).routed,
            living
        );
    }
}
