//! What `mtu` and `magic_dns` of the configuration do to a result.

use std::net::IpAddr;

use cni::{Attachment, Error, Keys, NetResult};

/// Settings that show in the result, whichever plugin made it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) mtu_bytes: Option<u32>,
    pub(crate) magic_dns: Option<MagicDns>,
}

/// Names of the tailnet for the pod's resolver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MagicDns {
    base_domain: Option<String>,
    nameservers: Vec<String>,
    search_domains: Vec<String>,
}

impl Shape {
    pub(crate) fn parse(keys: Keys<'_>) -> Result<Self, Error> {
        Ok(Self {
            mtu_bytes: keys.mtu("mtu")?,
            magic_dns: MagicDns::parse(keys)?,
        })
    }

    /// Applies the settings to what the plugins made.
    pub(crate) fn apply(&self, result: &mut NetResult, to: &Attachment) {
        if let Some(magic) = &self.magic_dns {
            magic.apply(result);
        }
        let interface = result
            .interfaces
            .iter_mut()
            .find(|interface| interface.name == to.ifname.as_str() && interface.is_sandboxed());
        if let (Some(mtu), Some(interface)) = (self.mtu_bytes, interface) {
            // What a plugin says of its interface is nearer to the truth than what it was told.
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

    /// Puts our servers and domains ahead of those that IPAM gave.
    fn apply(&self, result: &mut NetResult) {
        let dns = &mut result.dns;
        if let Some(domain) = &self.base_domain {
            dns.domain.clone_from(domain);
        }
        dns.nameservers = first_of_each(&self.nameservers, &dns.nameservers);
        dns.search = first_of_each(&self.search_domains, &dns.search);
    }
}

fn first_of_each(ahead: &[String], behind: &[String]) -> Vec<String> {
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

    fn shaped(conf: &Value, result: Value) -> Value {
        let shape = Shape::parse(Keys::new(conf.as_object().unwrap(), "")).unwrap();
        let mut result = NetResult::from_json(result, Version::LATEST).unwrap();
        let to = Attachment {
            container: ContainerId::new("box").unwrap(),
            ifname: IfName::new("eth0").unwrap(),
            netns: None,
            args: CniArgs::default(),
        };
        shape.apply(&mut result, &to);
        result.to_json(Version::LATEST)
    }

    #[test]
    fn magic_dns_goes_ahead_of_what_ipam_gave() {
        let conf = json!({ "magic_dns": { "enable": true, "base_domain": "cluster.local",
            "nameservers": ["10.2.0.1"], "search_domains": ["c.example"] } });
        let result = json!({ "dns": { "nameservers": ["8.8.8.8", "10.2.0.1"], "domain": "old",
            "search": ["lan"], "options": ["ndots:2"] } });
        assert_eq!(
            shaped(&conf, result)["dns"],
            json!({ "nameservers": ["10.2.0.1", "8.8.8.8"], "domain": "cluster.local",
                    "search": ["c.example", "lan"], "options": ["ndots:2"] })
        );
    }

    #[test]
    fn magic_dns_that_is_off_changes_nothing() {
        let result = json!({ "cniVersion": "1.1.0", "dns": { "nameservers": ["8.8.8.8"] } });
        for magic in [json!({ "enable": false, "base_domain": "x" }), json!({})] {
            let conf = json!({ "magic_dns": magic });
            assert_eq!(shaped(&conf, result.clone()), result);
        }
    }

    #[test]
    fn a_nameserver_that_is_no_address_is_refused() {
        let conf = json!({ "magic_dns": { "nameservers": ["dns.example"] } });
        let error = Shape::parse(Keys::new(conf.as_object().unwrap(), "")).unwrap_err();
        assert!(error.msg.contains("magic_dns.nameservers"), "{error}");
    }

    #[test]
    fn the_mtu_is_filled_in_for_the_pod_s_interface_only() {
        let result = json!({ "interfaces": [
            { "name": "eth0" }, { "name": "eth0", "sandbox": "/ns" }, { "name": "x", "sandbox": "/ns" }
        ] });
        let shaped = shaped(&json!({ "mtu": 1280 }), result);
        let mtus: Vec<_> = (0..3)
            .map(|i| shaped["interfaces"][i].get("mtu").cloned())
            .collect();
        assert_eq!(mtus, [None, Some(json!(1280)), None]);
    }
}
