//! The datapath of our own: a routed veth per pod, no bridge.
//!
//! Addresses first, the link last; what a failed ADD leaves is undone by DEL. Everything that a
//! DEL needs follows from the names of container and interface: the link's name, the lease's
//! owner. Only hostPorts have to be on record.

mod check;
mod conf;
mod firewall;
mod kernel;
mod lease;
mod links;
mod ports;
mod settings;
mod several;
mod tailscaled;
mod wiring;

use std::path::Path;
use std::time::Duration;

use cni::call_log::CallLog;
use cni::{
    Attachment, Call, Error, Keys, NetConf, NetResult, ValidAttachment, Verb, Version, code,
};
use net::{Netns, Socket};
use serde_json::{Map, Value};
use state::link;

pub(crate) use conf::complete;
use kernel::{Blueprint, Site, refused};
use lease::Source;
use settings::Settings;
use wiring::Wiring;

use crate::errors::Errors;
use crate::netns;

/// How long tailscaled may take to say how it is.
const TAILSCALED_PATIENCE: Duration = Duration::from_secs(2);

/// One step of a call, done in this process.
pub(crate) struct Native<'a> {
    /// The call as this step sees it: with its own, complete configuration.
    call: Call,
    log: &'a CallLog<'a>,
    timeout: Duration,
    data_dir: &'a Path,
}

impl<'a> Native<'a> {
    /// A step with the configuration `conf`.
    pub(crate) fn new(
        verb: Verb,
        conf: Map<String, Value>,
        of: &Call,
        log: &'a CallLog<'a>,
        timeout: Duration,
        data_dir: &'a Path,
    ) -> Result<Self, Error> {
        let call = Call {
            verb,
            conf: NetConf::from_keys(conf)?,
            env: of.env.clone(),
        };
        Ok(Self {
            call,
            log,
            timeout,
            data_dir,
        })
    }

    fn keys(&self) -> Keys<'_> {
        Keys::new(self.call.conf.keys(), "")
    }

    /// Does whatever else than ADD is asked.
    pub(crate) fn call(&self, of: Option<&Attachment>) -> Result<(), Error> {
        match (self.call.verb, of) {
            (Verb::Del, Some(of)) => self.del(of),
            (Verb::Check, Some(of)) => self.check(of),
            (Verb::Gc, _) => self.gc(&self.call.conf.valid_attachments()?),
            (Verb::Status, _) => self.status(),
            (verb, _) => Err(Error::config(format!("{verb} is not for a step"))),
        }
    }

    /// Attaches a pod. `remember` puts what it has by then on record.
    pub(crate) fn add(
        &self,
        to: &Attachment,
        remember: &dyn Fn(&NetResult) -> Result<(), Error>,
    ) -> Result<NetResult, Error> {
        let previous = self.call.conf.prev_result()?;
        let settings = Settings::parse(self.keys(), &to.args)?;
        for note in &settings.notes {
            self.log.warn(note.clone());
        }
        let Some(path) = to.netns.as_deref() else {
            return Err(Error::variable("CNI_NETNS", "is missing"));
        };
        let home = Netns::current().map_err(|e| Error::io("open our own namespace", &e))?;
        let pod =
            Netns::open(path).map_err(|e| Error::io(format_args!("open CNI_NETNS {path}"), &e))?;
        if pod
            .is(&home)
            .map_err(|e| Error::io(format_args!("look at CNI_NETNS {path}"), &e))?
        {
            // A pod with hostNetwork has this one, and no runtime calls us for it.
            return Err(Error::variable(
                "CNI_NETNS",
                format_args!("{path:?} is the node's own namespace: nothing is to be attached"),
            ));
        }
        let leased = self.log.step("ipam", Verb::Add, || self.lease(to))?;
        let wiring = Wiring::new(to, &settings, leased)?;
        for note in settings.ports.unserved(&wiring.ips()) {
            self.log.warn(note);
        }
        let (filter, novelty) = self.log.step("ruleset", Verb::Add, || {
            self.ensure_ruleset(&settings, &wiring)
        })?;
        let host_socket = Socket::route().map_err(refused)?;
        let site = Site {
            home: &home,
            pod: &pod,
            host_socket: &host_socket,
            log: self.log,
        };
        let alias = link::alias(self.call.conf.name(), &to.container, &to.ifname);
        let blueprint = Blueprint {
            wiring: &wiring,
            settings: &settings,
            to,
            alias: &alias,
            novelty,
        };
        let built = self.log.step("link", Verb::Add, || site.build(&blueprint));
        if matches!(&built, Err(error) if error.code == code::ALREADY_ATTACHED) {
            // The interface is somebody else's, but the addresses are ours.
            self.release(to)?;
        }
        let place = built?;
        let result = wiring.result(path, place, previous);
        let ports = settings.host_ports(&wiring.ips());
        if !ports.is_empty() {
            remember(&result)?;
            let excluded = firewall::networks(&settings.exempt, &wiring.addresses);
            self.log.step("ports", Verb::Add, || {
                self.open_ports(&filter, &ports, &excluded)
            })?;
        }
        // The process ends in a moment, and closes them then.
        std::mem::forget((home, pod, host_socket, filter));
        Ok(result)
    }

    /// Undoes an attachment, as far as there is something of it.
    pub(crate) fn del(&self, of: &Attachment) -> Result<(), Error> {
        let mut errors = Errors::default();
        // To close a socket that ports were removed by takes as long as to delete a link, but not
        // after that: both wait for the same moment of the kernel.
        let closed = self.close_ports(of);
        let unlinked = self.unlink(of);
        let is_unlinked = unlinked.is_ok();
        errors.keep(unlinked);
        if is_unlinked {
            // Not while the link may be there: the next pod with the address would share it.
            errors.keep(self.log.step("ipam", Verb::Del, || self.release(of)));
        }
        errors.keep(closed.map(drop));
        errors.into_result()
    }

    fn unlink(&self, of: &Attachment) -> Result<(), Error> {
        self.leave_second_place(of);
        let socket = Socket::route().map_err(refused)?;
        let name = link::host_name(&of.container, &of.ifname);
        self.log.step("link", Verb::Del, || {
            net::delete_link(&socket, &name).map_err(refused)
        })?;
        Ok(())
    }

    /// Removes the rules of an interface from a pod that lives on without it.
    fn leave_second_place(&self, of: &Attachment) {
        let Ok(Some(result)) = self.call.conf.prev_result() else {
            return;
        };
        let may_have_rules = self.call.conf.version() < Version::V1_1_0
            || result.routes.iter().any(|route| route.table.is_some());
        let (true, Ok(home), Some(Ok(pod))) = (
            may_have_rules,
            Netns::current(),
            of.netns.as_deref().map(Netns::open),
        ) else {
            return;
        };
        let outcome = pod.visit(&home, || {
            several::leave(&Socket::route()?, of.ifname.as_str())
        });
        if let Ok(Err(error)) = outcome {
            // A rule for an address that nobody has harms nobody.
            self.log.debug(|| error.to_string());
        }
    }

    /// Removes the links of this network that aren't valid, all at once.
    pub(crate) fn unlink_invalid(&self) -> Result<(), Error> {
        let valid = self.call.conf.valid_attachments()?;
        links::delete_all_but(self.call.conf.name(), &valid)
    }

    /// Removes every link and lease of this network that isn't valid.
    pub(crate) fn gc(&self, valid: &[ValidAttachment]) -> Result<(), Error> {
        let mut errors = Errors::default();
        errors.keep(links::delete_all_but(self.call.conf.name(), valid));
        errors.keep(ports::collect());
        errors.keep(self.collect_leases(valid));
        errors.into_result()
    }

    /// Fails if an ADD could not work here.
    pub(crate) fn status(&self) -> Result<(), Error> {
        let settings = Settings::parse(self.keys(), &cni::CniArgs::default())?;
        self.lease_status()?;
        Self::check_ruleset_can_be()?;
        match &settings.tailscale_socket {
            Some(socket) if settings.is_status_strict => {
                tailscaled::check_running(socket, TAILSCALED_PATIENCE)
            }
            _ => Ok(()),
        }
    }

    /// Refuses an attachment that lives though nothing is on record about it.
    ///
    /// The store that is linked in tells by itself. An IPAM plugin may not, and it would be asked
    /// to release what it gave before it is tried again.
    pub(crate) fn refuse_attached(conf: &Map<String, Value>, to: &Attachment) -> Result<(), Error> {
        if Self::executed_ipam(conf).is_none() {
            return Ok(());
        }
        let path = to.netns.as_deref().unwrap_or_default();
        let is_in_pod = || netns::has_interface(path, to.ifname.as_str());
        if links::is_there(&link::host_name(&to.container, &to.ifname))
            && matches!(is_in_pod(), Ok(Some(true)))
        {
            return Err(kernel::already_there(to));
        }
        Ok(())
    }

    /// The plugin that is going to be executed for addresses, if one is.
    pub(crate) fn executed_ipam(conf: &Map<String, Value>) -> Option<cni::PluginType> {
        match Source::of(Keys::new(conf, "")) {
            Ok(Source::Executed(kind)) => Some(kind),
            _ => None,
        }
    }
}

/// STATUS's way of saying that something isn't there.
pub(crate) fn unavailable(msg: impl Into<String>) -> Error {
    Error::new(code::NOT_AVAILABLE, msg)
}
