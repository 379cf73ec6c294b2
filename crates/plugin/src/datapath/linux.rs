//! The native datapath of Linux: a routed veth per pod, no bridge.
//!
//! ADD: lease → [`plan`] → ruleset → [`apply`] → host ports. The link and the owner of the lease
//! follow from the names of container and interface; only host ports have to be recorded for DEL.

mod apply;
mod check;
mod firewall;
mod host_ports;
mod links;
mod multi_interface;
mod netns;
mod plan;

use std::time::Duration;

use attachment::link;
use cni::{Attachment, Error, NetResult, ValidAttachment, Verb, Version, code};
use net::{Netns, Socket};

use self::apply::kernel_error;
use self::plan::PodNetwork;
use super::{NativeStep, tailscaled, unavailable};
use crate::errors::Errors;

pub(crate) use netns::has_interface;

const TAILSCALED_TIMEOUT: Duration = Duration::from_secs(2);

impl NativeStep<'_> {
    /// Attaches a pod. `save_result` records the result before host ports are opened.
    pub(crate) fn attach(
        &self,
        to: &Attachment,
        save_result: &dyn Fn(&NetResult) -> Result<(), Error>,
    ) -> Result<NetResult, Error> {
        let Some(path) = to.netns.as_deref() else {
            return Err(Error::variable("CNI_NETNS", "is missing"));
        };
        let host = Netns::current().map_err(|e| Error::io("open the netns of the host", &e))?;
        let pod =
            Netns::open(path).map_err(|e| Error::io(format_args!("open CNI_NETNS {path}"), &e))?;
        if pod
            .is(&host)
            .map_err(|e| Error::io(format_args!("inspect CNI_NETNS {path}"), &e))?
        {
            // No runtime calls CNI plugins for a pod with hostNetwork.
            return Err(Error::variable(
                "CNI_NETNS",
                format_args!("{path:?} is the netns of the host: nothing to attach"),
            ));
        }
        let leased = self.log.step("ipam", Verb::Add, || self.lease(to))?;
        let network = PodNetwork::plan(to, self.conf, leased)?;
        for warning in self.conf.port_mappings.unserved(&network.ips()) {
            self.log.warn(warning);
        }
        let (nft_socket, ruleset) = self
            .log
            .step("ruleset", Verb::Add, || self.ensure_ruleset(&network))?;
        let host_socket = Socket::route().map_err(kernel_error)?;
        let applied = self.log.step("link", Verb::Add, || {
            self.apply(to, &network, &host, &pod, &host_socket, ruleset)
        });
        if matches!(&applied, Err(error) if error.code == code::ALREADY_ATTACHED) {
            // The interface is not ours, but the lease is.
            self.release(to)?;
        }
        let result = network.result(path, applied?, self.prev_result.clone());
        let ports = self.conf.port_mappings.host_ports(&network.ips());
        if !ports.is_empty() {
            save_result(&result)?;
            let exempt = firewall::exempt_cidrs(self.conf, &network.addresses);
            self.log.step("ports", Verb::Add, || {
                self.open_ports(&nft_socket, &ports, &exempt)
            })?;
        }
        // The kernel closes them when the process ends, which is faster.
        std::mem::forget((host, pod, host_socket, nft_socket));
        Ok(result)
    }

    /// Undoes an attachment, as far as it exists.
    pub(crate) fn detach(&self, of: &Attachment) -> Result<(), Error> {
        let mut errors = Errors::default();
        // Closing the socket that removed ports takes as long as deleting a link, because both wait
        // for an RCU grace period. So the socket is closed last, when that has passed.
        let closed = self.close_ports(of);
        let unlinked = self.delete_link(of);
        let is_unlinked = unlinked.is_ok();
        errors.collect(unlinked);
        if is_unlinked {
            // The next pod must not get an address that still has a link.
            errors.collect(self.log.step("ipam", Verb::Del, || self.release(of)));
        }
        errors.collect(closed.map(drop));
        errors.into_result()
    }

    fn delete_link(&self, of: &Attachment) -> Result<(), Error> {
        self.remove_source_rules(of);
        let socket = Socket::route().map_err(kernel_error)?;
        let name = link::host_name(&of.container, &of.ifname);
        self.log.step("link", Verb::Del, || {
            net::delete_link(&socket, &name).map_err(kernel_error)
        })?;
        Ok(())
    }

    /// Removes the rules of an interface from a pod that keeps running without it.
    fn remove_source_rules(&self, of: &Attachment) {
        let Some(result) = &self.prev_result else {
            return;
        };
        let may_have_rules = self.call.conf.version() < Version::V1_1_0
            || result.routes.iter().any(|route| route.table.is_some());
        let (true, Ok(host), Some(Ok(pod))) = (
            may_have_rules,
            Netns::current(),
            of.netns.as_deref().map(Netns::open),
        ) else {
            return;
        };
        let outcome = pod.visit(&host, || {
            multi_interface::remove_rules(&Socket::route()?, of.ifname.as_str())
        });
        if let Ok(Err(error)) = outcome {
            // A rule for an unused address is harmless.
            self.log.debug(|| error.to_string());
        }
    }

    /// Deletes the links of this network that aren't valid, in one batch.
    pub(crate) fn delete_stale_links(&self) -> Result<(), Error> {
        let valid = self.call.conf.valid_attachments()?;
        links::delete_stale(self.call.conf.name(), &valid)
    }

    /// Removes every link, lease and host port of this network that isn't valid.
    pub(crate) fn gc(&self, valid: &[ValidAttachment]) -> Result<(), Error> {
        let mut errors = Errors::default();
        errors.collect(links::delete_stale(self.call.conf.name(), valid));
        errors.collect(host_ports::remove_orphans());
        errors.collect(self.gc_leases(valid));
        errors.into_result()
    }

    /// Fails if an ADD could not work.
    pub(crate) fn status(&self) -> Result<(), Error> {
        self.ipam_status()?;
        firewall::check_installable()?;
        match &self.conf.tailscale_socket {
            Some(socket) if self.conf.status_strict => {
                tailscaled::check_running(socket, TAILSCALED_TIMEOUT)
            }
            _ => Ok(()),
        }
    }

    /// Refuses an attachment that exists without a record.
    ///
    /// The linked-in lease store refuses it by itself. An IPAM plugin would be asked to release the
    /// lease before a retry.
    pub(crate) fn refuse_existing(&self, to: &Attachment) -> Result<(), Error> {
        if self.conf.ipam_plugin.is_none() {
            return Ok(());
        }
        let path = to.netns.as_deref().unwrap_or_default();
        let is_in_pod = || has_interface(path, to.ifname.as_str());
        if links::exists(&link::host_name(&to.container, &to.ifname))
            && matches!(is_in_pod(), Ok(Some(true)))
        {
            return Err(apply::already_exists(to));
        }
        Ok(())
    }
}
