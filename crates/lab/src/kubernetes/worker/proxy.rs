//! kube-proxy, which can be restarted in another mode.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::{Machine, config, put};
use crate::kubernetes::ControlPlane;
use crate::kubernetes::flags::flag;
use crate::kubernetes::program::Program;
use crate::kubernetes::user::User;
use crate::tools::kubernetes::KUBERNETES;

const CONFIG: &str = "kube-proxy.json";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyMode {
    Nftables,
    /// The default of most clusters.
    Iptables,
}

#[derive(Debug)]
pub(super) struct Proxy {
    program: Program,
    node: String,
    user: User,
    dir: PathBuf,
}

impl Proxy {
    /// Does not start it.
    pub(super) fn new(dir: &Path, node: &str, plane: &ControlPlane) -> Result<Self> {
        let args = vec![flag("config", dir.join(CONFIG))];
        let path = KUBERNETES.program("kube-proxy");
        let proxy = Self {
            program: Program::new(dir, "kube-proxy", path, args),
            node: node.to_owned(),
            user: plane.user("system:kube-proxy", None)?,
            dir: dir.to_owned(),
        };
        proxy.configure(ProxyMode::Nftables)?;
        Ok(proxy)
    }

    pub(super) fn start(&mut self, machine: &Machine) -> Result<()> {
        self.program.start(machine)
    }

    pub(super) fn use_mode(&mut self, mode: ProxyMode, machine: &Machine) -> Result<()> {
        self.program.kill()?;
        self.configure(mode)?;
        self.program.start(machine)
    }

    pub(super) fn log(&self) -> String {
        self.program.log()
    }

    fn configure(&self, mode: ProxyMode) -> Result<()> {
        let config = config::proxy(&self.node, self.user.kubeconfig(), mode);
        put(&self.dir, CONFIG, config.to_string()).map(drop)
    }
}
