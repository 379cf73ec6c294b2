//! The verbs of the IPAM plugin, for whoever has a call at hand.

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use cni::{Attachment, Call, Error, IpConfig, NetResult, Pod, ValidAttachment, code};
use ipnet::IpNet;
use serde_json::Map;

use crate::conf::Settings;
use crate::store::{LeaseRequest, Owner, Store, StoreError, own_code};

/// How often a call is tried when the store is in a passing trouble.
const MAX_TRIES: u32 = 3;

/// The verbs for a caller who knows the id of this boot: the kernel isn't asked for it again.
#[derive(Clone, Copy, Debug)]
pub struct InBoot<'a>(&'a str);

/// The verbs in the boot of this id. An empty id is none, and then the kernel is asked.
pub fn in_boot(id: &str) -> InBoot<'_> {
    InBoot(id)
}

impl InBoot<'_> {
    /// As [`add`].
    pub fn add(self, call: &Call, to: &Attachment) -> Result<NetResult, Error> {
        let settings = Settings::parse(&call.conf, &to.args)?;
        lease(settings, &Settings::store(&call.conf)?.in_boot(self.0), to)
    }

    /// As [`del`].
    pub fn del(self, call: &Call, of: &Attachment) -> Result<(), Error> {
        let store = Settings::store_for_cleaning(&call.conf)?;
        release(&store.in_boot(self.0), of)
    }
}

/// Leases addresses for an attachment.
pub fn add(call: &Call, to: &Attachment) -> Result<NetResult, Error> {
    let settings = Settings::parse(&call.conf, &to.args)?;
    lease(settings, &Settings::store(&call.conf)?, to)
}

fn lease(settings: Settings, store: &Store, to: &Attachment) -> Result<NetResult, Error> {
    let owner = Owner::new(&to.container, &to.ifname);
    let pod = Pod::from_args(&to.args);
    let leased = retried(|| {
        store.open()?.lease(&LeaseRequest {
            owner: &owner,
            pod: pod.as_ref(),
            sets: &settings.sets,
            requested: &settings.requested,
            strategy: settings.strategy,
            is_live: None,
        })
    })?;
    let ips = leased.iter().map(|(address, range)| IpConfig {
        interface: None,
        address: IpNet::new(*address, range.subnet().prefix_len()).unwrap_or((*address).into()),
        gateway: Some(range.gateway()),
        extra: Map::new(),
    });
    Ok(NetResult {
        ips: ips.collect(),
        routes: settings.routes,
        dns: settings.dns,
        ..NetResult::default()
    })
}

/// Releases what an attachment has.
pub fn del(call: &Call, of: &Attachment) -> Result<(), Error> {
    release(&Settings::store_for_cleaning(&call.conf)?, of)
}

fn release(store: &Store, of: &Attachment) -> Result<(), Error> {
    let owner = Owner::new(&of.container, &of.ifname);
    retried(|| match store.open_existing()? {
        None => Ok(()),
        Some(mut session) => session.release(&owner).map(drop),
    })?;
    Ok(())
}

/// Fails unless the attachment has what the result of its ADD says.
pub fn check(call: &Call, of: &Attachment) -> Result<(), Error> {
    let settings = Settings::parse(&call.conf, &of.args)?;
    let owner = Owner::new(&of.container, &of.ifname);
    let lease = match Settings::store(&call.conf)?.open_existing()? {
        None => None,
        Some(mut session) => session.lease_of(&owner)?,
    };
    let Some(lease) = lease else {
        return Err(Error::new(
            own_code::NOT_LEASED,
            format!("{owner} has no lease"),
        ));
    };
    let stated = call.conf.prev_result()?.unwrap_or_default();
    let is_ours = |ip: &&IpConfig| {
        settings
            .sets
            .iter()
            .any(|set| set.range_of(ip.address.addr()).is_some())
    };
    match stated
        .ips
        .iter()
        .filter(is_ours)
        .find(|ip| !lease.addresses.contains(&ip.address.addr()))
    {
        None => Ok(()),
        Some(ip) => Err(Error::new(
            own_code::NOT_LEASED,
            format!(
                "{owner} has no lease for {}, which prevResult names",
                ip.address.addr()
            ),
        )),
    }
}

/// Releases whatever isn't in `valid`.
pub fn collect_garbage(call: &Call, valid: &[ValidAttachment]) -> Result<(), Error> {
    let Some(mut session) = Settings::store_for_cleaning(&call.conf)?.open_existing()? else {
        return Ok(());
    };
    let containers: BTreeSet<&str> = valid.iter().map(|v| v.container_id.as_str()).collect();
    let pairs: BTreeSet<(&str, &str)> = valid
        .iter()
        .map(|v| (v.container_id.as_str(), v.ifname.as_str()))
        .collect();
    session.collect(&|owner| match owner.ifname() {
        Some(ifname) => pairs.contains(&(owner.container(), ifname)),
        None => containers.contains(owner.container()),
    })?;
    Ok(())
}

/// Fails if an ADD could not work.
pub fn status(call: &Call) -> Result<(), Error> {
    let unavailable = |error: StoreError| Error {
        code: code::NOT_AVAILABLE,
        ..Error::from(error)
    };
    let settings = Settings::parse(&call.conf, &cni::CniArgs::default())?;
    let session = Settings::store(&call.conf)?.open().map_err(unavailable)?;
    session.check_room().map_err(unavailable)?;
    if !settings.is_status_strict {
        return Ok(());
    }
    for set in &settings.sets {
        let usage = session.usage(set).map_err(unavailable)?;
        if usage.leased >= usage.capacity {
            return Err(Error::new(
                code::NOT_AVAILABLE,
                format!(
                    "{set} is full: {} of {} leased",
                    usage.leased, usage.capacity
                ),
            ));
        }
    }
    Ok(())
}

fn retried<T>(mut attempt: impl FnMut() -> Result<T, StoreError>) -> Result<T, StoreError> {
    let mut pause = Duration::from_millis(10);
    for _ in 1..MAX_TRIES {
        match attempt() {
            Err(error) if error.is_passing() => {
                thread::sleep(pause);
                pause *= 4;
            }
            outcome => return outcome,
        }
    }
    attempt()
}
