//! What a test can do in a netns, of a node or of a pod.

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

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    pub dev: String,
    /// Such as `10.0.0.2/24`.
    pub cidr: String,
}

/// The netns of a [`Node`](crate::Node) or a [`Pod`](crate::Pod).
pub trait Netns {
    /// A command in this netns, with the node's files and a clean environment. nsenter execs the program,
    /// so the child's PID is the program's.
    fn command(&self, program: impl AsRef<OsStr>) -> Command;

    fn netns_file(&self) -> PathBuf;

    /// Runs a command that must succeed.
    fn run<S: AsRef<OsStr>>(&self, line: impl IntoIterator<Item = S>) -> Result<Output> {
        process::run(&mut command_of(self, line)?)
    }

    /// Runs a command, whatever its exit status.
    fn attempt<S: AsRef<OsStr>>(&self, line: impl IntoIterator<Item = S>) -> Result<Output> {
        process::attempt(&mut command_of(self, line)?)
    }

    /// Runs `work` on a thread in this netns, with the files of this process. Its sockets belong to this
    /// netns.
    fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        let path = self.netns_file();
        let netns = File::open(&path).with_context(|| format!("open {}", path.display()))?;
        let inside = || {
            // The netns is a property of the thread, and the test runner reuses its threads.
            move_into_link_name_space(netns.as_fd(), Some(LinkNameSpaceType::Network))
                .with_context(|| format!("enter {}", path.display()))?;
            Ok(work())
        };
        thread::scope(|scope| match scope.spawn(inside).join() {
            Ok(answer) => answer,
            Err(panic) => panic::resume_unwind(panic),
        })
    }

    /// Sets a sysctl such as `net.ipv4.ip_forward`.
    fn sysctl(&self, name: &str, value: &str) -> Result<()> {
        let path = Path::new("/proc/sys").join(name.replace('.', "/"));
        // `/proc/sys/net` shows the netns of the thread that opens it.
        let open = || OpenOptions::new().write(true).open(&path);
        self.enter(|| open()?.write_all(value.as_bytes()))?
            .with_context(|| format!("set {name} to {value}"))
    }

    /// Sends one ping, which must be answered.
    fn ping(&self, address: &str) -> Result<()> {
        self.run(["ping", "-n", "-c", "1", "-W", "5", address])?;
        Ok(())
    }

    /// Sends `message` to an [`EchoServer`](crate::EchoServer), which must return it. Returns the source
    /// address that the server saw.
    fn call_echo(&self, server: SocketAddr, message: &str) -> Result<IpAddr>
    where
        Self: Sized,
    {
        traffic::call_echo(self, server, message)
    }

    /// The output of `ip -j`.
    fn ip<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Result<Value> {
        let text = process::run(self.command("ip").arg("-j").args(args))?.stdout;
        if text.trim().is_empty() {
            return Ok(Value::Array(Vec::new()));
        }
        serde_json::from_str(&text).with_context(|| format!("parse the output of ip: {text}"))
    }

    /// All links except `lo`, sorted.
    fn links(&self) -> Result<Vec<String>> {
        let links = self.ip(["link"])?;
        let names = rows(&links).map(|link| text(link, "ifname"));
        let mut names: Vec<_> = names.filter(|name| name != "lo").collect();
        names.sort();
        Ok(names)
    }

    /// The output of `ip -d link` for one link, if it exists.
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

    /// The routes of all tables, IPv4 first, as `ip` prints them without the link state.
    fn routes(&self) -> Result<Vec<String>> {
        let mut routes = Vec::new();
        for family in ["-4", "-6"] {
            let text = self
                .run(["ip", family, "route", "show", "table", "all"])?
                .stdout;
            routes.extend(text.lines().map(|line| {
                let words = line.split_whitespace();
                let stable = words.filter(|word| !["linkdown", "dead"].contains(word));
                stable.collect::<Vec<_>>().join(" ")
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
