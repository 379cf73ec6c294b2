//! Overrides that `mtu` and `magic_dns` of the configuration apply to a result.

use std::net::IpAddr;

use cni::{Attachment, Error, Keys, NetResult};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResultOverrides {
    pub(crate) mtu_bytes: Option<u32>,
    pub(crate) magic_dns: Option<MagicDns>,
}

/// DNS settings of the tailnet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MagicDns {
    base_domain: Option<String>,
    nameservers: Vec<String>,
    search_domains: Vec<String>,
}

impl ResultOverrides {
    pub(crate) fn parse(keys: Keys<'_>) -> Result<Self, Error> {
        Ok(Self {
            mtu_bytes: keys.mtu("mtu")?,
            magic_dns: MagicDns::parse(keys)?,
        })
    }

    pub(crate) fn apply_mtu(&self, result: &mut NetResult, to: &Attachment) {
        let interface = result
            .interfaces
            .iter_mut()
            .find(|interface| interface.name == to.ifname.as_str() && interface.is_sandboxed());
        if let (Some(mtu), Some(interface)) = (self.mtu_bytes, interface) {
            // A plugin knows the MTU of its interface better than its configuration.
            interface.mtu.get_or_insert(mtu);
        }
    }
}

impl MagicDns {
    fn parse(keys: Keys<'_>) -> Result<Option<Self>, Error> {
        let Some(map) = keys.object("magic_dns")? else {
            return Ok(None);
        };
        let path = keys.name("magic_dns");
        let keys = Keys::new(map, &path);
        let magic = Self {
            base_domain: keys.text("base_domain")?.map(str::to_owned),
            nameservers: keys.texts("nameservers")?,
            search_domains: keys.texts("search_domains")?,
        };
        if magic
            .nameservers
            .iter()
            .any(|server| server.parse::<IpAddr>().is_err())
        {
            return Err(keys.wrong("nameservers", "a list of IP addresses"));
        }
        Ok(keys.flag("enable")?.unwrap_or(false).then_some(magic))
    }

    /// Prepends the servers and domains to those of the IPAM plugin.
    pub(crate) fn apply(&self, result: &mut NetResult) {
        let dns = &mut result.dns;
        if let Some(domain) = &self.base_domain {
            dns.domain.clone_from(domain);
        }
        dns.nameservers = merge(&self.nameservers, &dns.nameservers);
        dns.search = merge(&self.search_domains, &dns.search);
    }
}

fn merge(ahead: &[String], behind: &[String]) -> Vec<String> {
    let mut all: Vec<String> = Vec::with_capacity(ahead.len() + behind.len());
    for item in ahead.iter().chain(behind) {
        if !all.contains(item) {
            all.push(item.clone());
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use cni::{CniArgs, ContainerId, IfName, Version};
    use serde_json::{Value, json};

    use super::*;

    fn overridden(conf: &Value, result: Value) -> Value {
        let overrides = ResultOverrides::parse(Keys::new(conf.as_object().unwrap(), "")).unwrap();
        let mut result = NetResult::from_json(result, Version::LATEST).unwrap();
        let to = Attachment {
            container: ContainerId::new("box").unwrap(),
            ifname: IfName::new("eth0").unwrap(),
            netns: None,
            args: CniArgs::default(),
        };
        overrides.apply_mtu(&mut result, &to);
        if let Some(magic) = &overrides.magic_dns {
            magic.apply(&mut result);
        }
        result.to_json(Version::LATEST)
    }

    #[test]
    fn magic_dns_is_prepended_to_the_dns_of_ipam() {
        let conf = json!({ "magic_dns": { "enable": true, "base_domain": "cluster.local",
            "nameservers": ["10.2.0.1"], "search_domains": ["c.example"] } });
        let result = json!({ "dns": { "nameservers": ["8.8.8.8", "10.2.0.1"], "domain": "old",
            "search": ["lan"], "options": ["ndots:2"] } });
        assert_eq!(
            overridden(&conf, result)["dns"],
            json!({ "nameservers": ["10.2.0.1", "8.8.8.8"], "domain": "cluster.local",
                    "search": ["c.example", "lan"], "options": ["ndots:2"] })
        );
    }

    #[test]
    fn disabled_magic_dns_changes_nothing() {
        let result = json!({ "cniVersion": "1.1.0", "dns": { "nameservers": ["8.8.8.8"] } });
        for magic in [json!({ "enable": false, "base_domain": "x" }), json!({})] {
            let conf = json!({ "magic_dns": magic });
            assert_eq!(overridden(&conf, result.clone()), result);
        }
    }

    #[test]
    fn a_nameserver_must_be_an_ip_address() {
        let conf = json!({ "magic_dns": { "nameservers": ["dns.example"] } });
        let error = ResultOverrides::parse(Keys::new(conf.as_object().unwrap(), "")).unwrap_err();
        assert!(error.msg.contains("magic_dns.nameservers"), "{error}");
    }

    #[test]
    fn the_mtu_is_set_on_the_interface_of_the_pod_only() {
        let result = json!({ "interfaces": [
            { "name": "eth0" }, { "name": "eth0", "sandbox": "/ns" }, { "name": "x", "sandbox": "/ns" }
        ] });
        let overridden = overridden(&json!({ "mtu": 1280 }), result);
        let mtus: Vec<_> = (0..3)
            .map(|i| overridden["interfaces"][i].get("mtu").cloned())
            .collect();
        assert_eq!(mtus, [None, Some(json!(1280)), None]);
    }
}
