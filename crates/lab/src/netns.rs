//! What can be done in any network namespace, a node's or a pod's.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::panic;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::{Context, Result};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::Value;

use crate::process::{self, Output};
use crate::traffic;

/// One address of one link.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    /// Name of the link.
    pub dev: String,
    /// Address and prefix length, as in `10.0.0.2/24`.
    pub cidr: String,
}

/// A network namespace to run things in: a [`Node`](crate::Node)'s or a [`Pod`](crate::Pod)'s.
pub trait Netns {
    /// A command that will run here: in this network, with the node's files, in `/`, and with hardly
    /// anything of this process's environment.
    ///
    /// It becomes the program by exec, so the child's process id is the program's own.
    fn command(&self, program: impl AsRef<OsStr>) -> Command;

    /// A path by which this process can open the namespace.
    fn netns_file(&self) -> PathBuf;

    /// Runs a program with its arguments; it must succeed.
    fn run<S: AsRef<OsStr>>(&self, line: impl IntoIterator<Item = S>) -> Result<Output> {
        process::run(&mut command_of(self, line)?)
    }

    /// Runs a program with its arguments, whatever its exit status.
    fn attempt<S: AsRef<OsStr>>(&self, line: impl IntoIterator<Item = S>) -> Result<Output> {
        process::attempt(&mut command_of(self, line)?)
    }

    /// Does `work` on a thread that lives in this network (with this process's own files):
    /// sockets that it makes belong here.
    fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        let path = self.netns_file();
        let netns = File::open(&path).with_context(|| format!("open {}", path.display()))?;
        let inside = || {
            // A thread of its own, because the namespace is a property of the thread, and the
            // test runner uses its threads again.
            move_into_link_name_space(netns.as_fd(), Some(LinkNameSpaceType::Network))
                .with_context(|| format!("enter {}", path.display()))?;
            Ok(work())
        };
        thread::scope(|scope| match scope.spawn(inside).join() {
            Ok(answer) => answer,
            Err(panic) => panic::resume_unwind(panic),
        })
    }

    /// Sets a sysctl of the network, as in `net.ipv4.ip_forward`.
    fn sysctl(&self, name: &str, value: &str) -> Result<()> {
        let path = Path::new("/proc/sys").join(name.replace('.', "/"));
        // `/proc/sys/net` shows the namespace of the thread that opens it.
        let open = || OpenOptions::new().write(true).open(&path);
        self.enter(|| open()?.write_all(value.as_bytes()))?
            .with_context(|| format!("set {name} to {value}"))
    }

    /// Pings an address once.
    fn ping(&self, address: &str) -> Result<()> {
        self.run(["ping", "-n", "-c", "1", "-W", "5", address])?;
        Ok(())
    }

    /// Sends `message` to an [`EchoServer`](crate::EchoServer), checks that it comes back, and
    /// returns the address that the server saw it come from.
    fn call_echo(&self, server: SocketAddr, message: &str) -> Result<IpAddr>
    where
        Self: Sized,
    {
        traffic::call_echo(self, server, message)
    }

    /// What `ip -j` answers to these arguments.
    fn ip<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Result<Value> {
        let text = process::run(self.command("ip").arg("-j").args(args))?.stdout;
        if text.trim().is_empty() {
            return Ok(Value::Array(Vec::new()));
        }
        serde_json::from_str(&text).with_context(|| format!("read the answer of ip: {text}"))
    }

    /// The names of all links but `lo`, sorted.
    fn links(&self) -> Result<Vec<String>> {
        let links = self.ip(["link"])?;
        let names = rows(&links).map(|link| text(link, "ifname"));
        let mut names: Vec<_> = names.filter(|name| name != "lo").collect();
        names.sort();
        Ok(names)
    }

    /// All that `ip -d` knows about one link, if it is there.
    fn link(&self, name: &str) -> Result<Option<Value>> {
        let links = self.ip(["-d", "link"])?;
        Ok(rows(&links)
            .find(|link| text(link, "ifname") == name)
            .cloned())
    }

    /// The addresses of all links, sorted.
    fn addresses(&self) -> Result<Vec<Address>> {
        let links = self.ip(["address"])?;
        let of_link = |link: &Value| -> Vec<Address> {
            let dev = text(link, "ifname");
            let cidr =
                |address: &Value| format!("{}/{}", text(address, "local"), address["prefixlen"]);
            let address = |row| Address {
                dev: dev.clone(),
                cidr: cidr(row),
            };
            rows(&link["addr_info"]).map(address).collect()
        };
        let mut addresses: Vec<_> = rows(&links).flat_map(of_link).collect();
        addresses.sort();
        Ok(addresses)
    }

    /// The routes of every table, IPv4 before IPv6, each as `ip` words it but without the state
    /// of its link; the kernel's own in table `local` included.
    fn routes(&self) -> Result<Vec<String>> {
        let mut routes = Vec::new();
        for family in ["-4", "-6"] {
            let text = self
                .run(["ip", family, "route", "show", "table", "all"])?
                .stdout;
            routes.extend(text.lines().map(|line| {
                let words = line.split_whitespace();
                let lasting = words.filter(|word| !["linkdown", "dead"].contains(word));
                lasting.collect::<Vec<_>>().join(" ")
            }));
        }
        Ok(routes)
    }
}

fn command_of<S: AsRef<OsStr>>(
    place: &(impl Netns + ?Sized),
    line: impl IntoIterator<Item = S>,
) -> Result<Command> {
    let mut words = line.into_iter();
    let program = words.next().context("a command line without a program")?;
    let mut command = place.command(program);
    command.args(words);
    Ok(command)
}

fn rows(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn text(row: &Value, key: &str) -> String {
    row[key].as_str().unwrap_or_default().to_owned()
}
