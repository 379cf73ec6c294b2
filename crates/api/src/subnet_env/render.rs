//! `subnet.env` as it is written.

use std::fmt;

use super::{FAMILIES, IPMASQ, MTU, NodeSubnet, SubnetEnv, list};

impl SubnetEnv {
    /// The file's text, of which [`SubnetEnv::parse`] makes the same again.
    ///
    /// No beginning of the last line is a line itself, so that no cut goes unnoticed.
    pub fn render(&self) -> String {
        let mut lines = Vec::new();
        for family in &self.families {
            let is_ipv6 = family.networks.iter().any(|net| net.addr().is_ipv6());
            let (network, subnet) = FAMILIES[usize::from(is_ipv6)];
            lines.push(format!("{network}={}", list(&family.networks)));
            lines.push(format!("{subnet}={}", list(&family.subnets)));
        }
        lines.push(format!("{MTU}={}", self.mtu_bytes));
        lines.push(format!("{IPMASQ}={}\n", self.node_masquerades));
        lines.join("\n")
    }
}

impl fmt::Display for NodeSubnet {
    /// With the gateway in the host bits, if there is one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = self.gateway.unwrap_or(self.net.addr());
        write!(f, "{address}/{}", self.net.prefix_len())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ipnet::{IpNet, Ipv4Net, Ipv6Net};
    use proptest::prelude::*;

    use super::super::Family;
    use super::*;

    fn read(text: &str) -> Option<SubnetEnv> {
        SubnetEnv::parse(text, Path::new("subnet.env")).ok()
    }

    fn family(network: IpNet, bits: u8, gateway: Option<u8>) -> Family {
        let net = IpNet::new(network.addr(), network.prefix_len() + bits)
            .unwrap()
            .trunc();
        let gateway = gateway.and_then(|number| net.hosts().nth(usize::from(number)));
        Family {
            networks: vec![network],
            subnets: vec![NodeSubnet { net, gateway }],
        }
    }

    prop_compose! {
        fn any_subnets()(
            v4 in proptest::option::of((any::<u32>(), 8u8..20, 0u8..8, proptest::option::of(0u8..2))),
            v6 in proptest::option::of((any::<u128>(), 32u8..56, 0u8..64, proptest::option::of(1u8..2))),
            mtu_bytes in 1280u32..65535,
            node_masquerades: bool,
        ) -> SubnetEnv {
            let v4 = v4.map(|(bits, length, more, gateway)| {
                let net = Ipv4Net::new(bits.into(), length).unwrap().trunc();
                family(net.into(), more, gateway)
            });
            let v6 = v6.map(|(bits, length, more, gateway)| {
                let net = Ipv6Net::new(bits.into(), length).unwrap().trunc();
                family(net.into(), more, gateway)
            });
            SubnetEnv { families: v4.into_iter().chain(v6).collect(), mtu_bytes, node_masquerades }
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_the_same(subnets in any_subnets()) {
            prop_assume!(!subnets.families.is_empty());
            prop_assert_eq!(read(&subnets.render()), Some(subnets));
        }

        #[test]
        fn a_cut_makes_it_unreadable_or_changes_nothing(subnets in any_subnets()) {
            prop_assume!(!subnets.families.is_empty());
            let text = subnets.render();
            for length in 0..text.len() {
                if let Some(cut) = read(&text[..length]) {
                    prop_assert_eq!(&cut, &subnets, "cut off after {} bytes", length);
                }
            }
        }
    }

    #[test]
    fn the_text_has_a_line_per_key_and_names_the_gateway_by_host_bits() {
        let text = "HEADCNI_NETWORK=10.244.0.0/16\nHEADCNI_SUBNET=10.244.1.1/24\n\
                    HEADCNI_IPV6_NETWORK=fd00:244::/48\nHEADCNI_IPV6_SUBNET=fd00:244:0:1::/64\n\
                    HEADCNI_MTU=1280\nHEADCNI_IPMASQ=true\n";
        assert_eq!(read(text).unwrap().render(), text);
    }
}
