//! Finds the networks that another one is part of, without a look at all of them: a member may serve
//! tens of thousands. Pure.

use std::collections::{BTreeSet, HashMap};

use ipnet::IpNet;

/// Networks, each with what is known of it.
pub(crate) struct PrefixMap<T> {
    /// Which sizes there are: a few, because nodes' networks are alike.
    sizes: BTreeSet<u8>,
    known: HashMap<IpNet, Vec<T>>,
}

impl<T> PrefixMap<T> {
    /// What is known of this network, and of all that it is part of; of the largest first.
    pub(crate) fn of(&self, network: &IpNet) -> impl Iterator<Item = &T> {
        let sizes = self.sizes.range(..=network.prefix_len());
        let around = sizes.filter_map(|size| IpNet::new(network.addr(), *size).ok());
        let known = around.filter_map(|around| self.known.get(&around.trunc()));
        known.flatten()
    }
}

impl<T> FromIterator<(IpNet, T)> for PrefixMap<T> {
    fn from_iter<I: IntoIterator<Item = (IpNet, T)>>(all: I) -> Self {
        let (mut sizes, mut known) = (BTreeSet::new(), HashMap::<IpNet, Vec<T>>::new());
        for (network, what) in all {
            sizes.insert(network.prefix_len());
            known.entry(network.trunc()).or_default().push(what);
        }
        Self { sizes, known }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_is_found_by_its_parts_and_by_nothing_else() {
        let all = [
            "10.244.2.0/24",
            "10.0.0.0/8",
            "10.244.3.0/24",
            "fd00:244::/64",
        ];
        let around: PrefixMap<&str> = all
            .iter()
            .map(|text| (text.parse().unwrap(), *text))
            .collect();
        let of = |text: &str| -> Vec<&str> {
            let network: IpNet = text.parse().unwrap();
            around.of(&network).copied().collect()
        };
        assert_eq!(of("10.244.2.7/32"), ["10.0.0.0/8", "10.244.2.0/24"]);
        assert_eq!(of("10.244.2.0/24"), ["10.0.0.0/8", "10.244.2.0/24"]);
        assert_eq!(of("10.244.2.0/23"), ["10.0.0.0/8"]);
        assert_eq!(of("0.0.0.0/0"), [""; 0]);
        assert_eq!(of("fd00:244::9/128"), ["fd00:244::/64"]);
        assert_eq!(of("a00::/24"), [""; 0]);
    }
}
