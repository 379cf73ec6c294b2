//! hostPorts: elements of maps in the kernel, kept on record with the attachment.

use std::net::IpAddr;

use cni::{Attachment, Error, Keys, NetResult, code};
use net::host_ports::{self, HostPort, HostPortError, Protocol};
use net::{Socket, conntrack};

use super::Native;
use super::kernel::refused;
use super::settings::Ports;
use crate::state;

impl Native<'_> {
    /// Publishes a pod's ports.
    pub(super) fn open_ports(&self, socket: &Socket, ports: &[HostPort]) -> Result<(), Error> {
        if ports.is_empty() {
            return Ok(());
        }
        host_ports::add(socket, ports).map_err(not_published)?;
        self.forget_flows(socket, ports);
        Ok(())
    }

    /// Takes back the ports of an attachment, as far as they are still its own.
    pub(super) fn close_ports(&self, of: &Attachment) -> Result<(), Error> {
        // Without a result no ADD came so far as to publish anything.
        let Ok(Some(result)) = self.call.conf.prev_result() else {
            return Ok(());
        };
        let ports = ports_of(self.keys(), &result, of);
        if ports.is_empty() {
            return Ok(());
        }
        let socket = Socket::netfilter().map_err(refused)?;
        host_ports::remove(&socket, &ports).map_err(refused)?;
        self.forget_flows(&socket, &ports);
        Ok(())
    }

    /// Publishes the ports of every pod again, from what is on record, after a wipe.
    pub(super) fn reopen_ports(&self, socket: &Socket) {
        for (of, record) in state::settled_records(self.data_dir) {
            let Some(result) = &record.result else {
                continue;
            };
            let steps = record.steps.iter().filter(|step| step.kind == "headcni");
            for step in steps {
                let ports = ports_of(Keys::new(&step.config, ""), result, &of);
                if let Err(error) = self.open_ports(socket, &ports) {
                    self.log.warn(format!(
                        "publish the ports of container {} again: {}",
                        of.container, error.msg
                    ));
                }
            }
        }
    }

    /// A UDP flow that the kernel remembers would go on to where it went before.
    fn forget_flows(&self, socket: &Socket, ports: &[HostPort]) {
        if !ports.iter().any(|port| port.protocol == Protocol::Udp) {
            return;
        }
        let forgotten = local_addresses()
            .and_then(|local| conntrack::forget_udp(socket, ports, &local).map_err(refused));
        if let Err(error) = forgotten {
            self.log
                .warn(format!("old UDP flows may go on: {}", error.msg));
        }
    }
}

/// The hostPorts that an attachment has by its configuration and the result of its ADD.
fn ports_of(conf: Keys<'_>, result: &NetResult, of: &Attachment) -> Vec<HostPort> {
    let is_ours = |index: usize| {
        result
            .interfaces
            .get(index)
            .is_some_and(|interface| interface.name == of.ifname.as_str())
    };
    let addresses: Vec<IpAddr> = result
        .ips
        .iter()
        .filter(|ip| ip.interface.is_none_or(is_ours))
        .map(|ip| ip.address.addr())
        .collect();
    Ports::for_cleaning(conf.map()).on(&addresses)
}

fn local_addresses() -> Result<Vec<IpAddr>, Error> {
    let socket = Socket::route().map_err(refused)?;
    let addresses = net::addresses(&socket).map_err(refused)?;
    Ok(addresses.iter().map(|found| found.net.addr()).collect())
}

fn not_published(error: HostPortError) -> Error {
    let code = match &error {
        // The pod that has it may be on its way out.
        HostPortError::Taken { .. } | HostPortError::NoTable => code::TRY_AGAIN_LATER,
        HostPortError::MixedFamilies { .. } => code::INVALID_CONFIG,
        HostPortError::Net(_) => code::IO_FAILURE,
    };
    let error = Error::caused(code, &error);
    Error {
        msg: format!("hostPort: {}", error.msg),
        ..error
    }
}
