//! The CNI verbs of an IPAM plugin.

use std::collections::BTreeSet;
use std::fmt;

use cni::{Attachment, Call, CniArgs, Error, IpConfig, NetResult, Pod, ValidAttachment, code};
use ipnet::IpNet;
use serde_json::Map;

use crate::conf::IpamConf;
use crate::retry::retry;
use crate::store::{LeaseOwner, LeaseRequest, LeaseStore, StoreError, ipam_code};

/// The verbs of an IPAM plugin, for one CNI call.
#[derive(Clone, Copy)]
pub struct Verbs<'a> {
    call: &'a Call,
    boot_id: &'a str,
    debug: &'a dyn Fn(fmt::Arguments<'_>),
}

impl<'a> Verbs<'a> {
    /// The verbs for this call.
    pub fn new(call: &'a Call) -> Self {
        Self {
            call,
            boot_id: "",
            debug: &|_| (),
        }
    }

    /// Saves reading the boot ID from the kernel. An empty one is ignored.
    #[must_use]
    pub fn boot_id(self, boot_id: &'a str) -> Self {
        Self { boot_id, ..self }
    }

    /// Sets where debug messages go.
    #[must_use]
    pub fn debug(self, debug: &'a dyn Fn(fmt::Arguments<'_>)) -> Self {
        Self { debug, ..self }
    }

    /// ADD: leases an address from each range set.
    pub fn add(&self, to: &Attachment) -> Result<NetResult, Error> {
        let conf = IpamConf::parse(&self.call.conf, &to.args)?;
        let store = self.use_store(IpamConf::store(&self.call.conf)?);
        let owner = LeaseOwner::new(&to.container, &to.ifname);
        let pod = Pod::from_args(&to.args);
        for set in &conf.sets {
            (self.debug)(format_args!("range set {set}, strategy {}", conf.strategy));
        }
        let leased = self.with_retry(|| {
            store.open()?.lease(&LeaseRequest {
                owner: &owner,
                pod: pod.as_ref(),
                sets: &conf.sets,
                requested: &conf.requested,
                strategy: conf.strategy,
            })
        })?;
        for (address, range) in &leased {
            (self.debug)(format_args!("leased {address} from {range} to {owner}"));
        }
        let ips = leased.iter().map(|(address, range)| IpConfig {
            interface: None,
            address: IpNet::new(*address, range.subnet().prefix_len()).unwrap_or((*address).into()),
            gateway: Some(range.gateway()),
            extra: Map::new(),
        });
        Ok(NetResult {
            ips: ips.collect(),
            routes: conf.routes,
            dns: conf.dns,
            ..NetResult::default()
        })
    }

    /// DEL: releases the lease of an attachment.
    pub fn del(&self, of: &Attachment) -> Result<(), Error> {
        let store = self.use_store(IpamConf::store_for_cleanup(&self.call.conf)?);
        let owner = LeaseOwner::new(&of.container, &of.ifname);
        let released = self.with_retry(|| match store.open_existing()? {
            None => Ok(Vec::new()),
            Some(mut store) => store.release(&owner),
        })?;
        (self.debug)(format_args!("released {released:?} of {owner}"));
        Ok(())
    }

    /// CHECK: fails unless the attachment has a lease for the addresses in `prevResult`.
    pub fn check(&self, of: &Attachment) -> Result<(), Error> {
        let conf = IpamConf::parse(&self.call.conf, &of.args)?;
        let store = self.use_store(IpamConf::store(&self.call.conf)?);
        let owner = LeaseOwner::new(&of.container, &of.ifname);
        let not_leased = |text: String| Error::new(ipam_code::NOT_LEASED, text);
        let lease = match store.open_existing()? {
            None => None,
            Some(mut store) => store.lease_of(&owner)?,
        };
        let Some(lease) = lease else {
            return Err(not_leased(format!("{owner} has no lease")));
        };
        let prev_result = self.call.conf.prev_result()?.unwrap_or_default();
        for ip in prev_result.ips.iter().map(|ip| ip.address.addr()) {
            let is_ours = conf.sets.iter().any(|set| set.range_of(ip).is_some());
            if is_ours && !lease.addresses.contains(&ip) {
                let text = format!("{owner} has no lease for {ip}, which is in prevResult");
                return Err(not_leased(text));
            }
        }
        Ok(())
    }

    /// GC: releases the leases of all attachments that are not in `valid`.
    pub fn gc(&self, valid: &[ValidAttachment]) -> Result<(), Error> {
        let store = self.use_store(IpamConf::store_for_cleanup(&self.call.conf)?);
        let Some(mut store) = store.open_existing()? else {
            return Ok(());
        };
        let containers: BTreeSet<&str> = valid.iter().map(|v| v.container_id.as_str()).collect();
        let pairs: BTreeSet<(&str, &str)> = valid
            .iter()
            .map(|v| (v.container_id.as_str(), v.ifname.as_str()))
            .collect();
        let released = store.release_orphans(&|owner| match owner.ifname() {
            Some(ifname) => pairs.contains(&(owner.container(), ifname)),
            None => containers.contains(owner.container()),
        })?;
        for lease in released {
            let (addresses, owner) = (&lease.addresses, &lease.owner);
            (self.debug)(format_args!("released {addresses:?} of {owner}"));
        }
        Ok(())
    }

    /// STATUS: fails if an ADD can't succeed.
    pub fn status(&self) -> Result<(), Error> {
        let unavailable = |error: StoreError| Error {
            code: code::NOT_AVAILABLE,
            ..Error::from(error)
        };
        let conf = IpamConf::parse(&self.call.conf, &CniArgs::default())?;
        let store = self.use_store(IpamConf::store(&self.call.conf)?);
        let store = store.open().map_err(unavailable)?;
        store.check_disk_space().map_err(unavailable)?;
        if !conf.is_status_strict {
            return Ok(());
        }
        for set in &conf.sets {
            let usage = store.usage(set).map_err(unavailable)?;
            let (leased, capacity) = (usage.leased, usage.capacity);
            if leased >= capacity {
                let text = format!("{set} is full: {leased} of {capacity} leased");
                return Err(Error::new(code::NOT_AVAILABLE, text));
            }
        }
        Ok(())
    }

    fn use_store(&self, store: LeaseStore) -> LeaseStore {
        (self.debug)(format_args!("lease store {}", store.dir().display()));
        store.with_boot_id(self.boot_id)
    }

    fn with_retry<T>(
        &self,
        attempt: impl FnMut() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        retry(attempt, |error| {
            if !error.is_retryable() {
                return Err(error);
            }
            let error = Error::from(error);
            (self.debug)(format_args!(
                "retrying after: {}: {}",
                error.msg, error.details
            ));
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests;
