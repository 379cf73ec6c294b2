//! What a kubelet takes for a machine: a node of the lab with processes and cgroups of its own.
//!
//! Containers have host names of their own, so the node does not know them for its inhabitants. But
//! they are in a process namespace whose first process is in the node: the kernel ends them with it.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::environment::with_clean_environment;
use crate::netns::Netns;
use crate::node::Node;
use crate::process::{self, Running};
use crate::wait::eventually;

/// Run by the first process, in its own view of the node's files, with a directory on a disk and the
/// name of a cgroup. It says that it is there by a file.
///
/// Sysctls of the whole machine are covered by files that hold what the kubelet wants to see. The
/// node's `/sys` has no cgroups, but the host's beneath it does. An overlay can't be stacked on the
/// node's own, so containers' files are on the disk. `wait` takes care of orphans.
const SCRIPT: &str = r#"
set -eu
dir=$1 cgroup=$2
cover() {
    file=$dir/$(echo "$1" | tr / _)
    echo "$2" >"$file"
    mount --bind "$file" "/proc/sys/$1"
}
cover vm/overcommit_memory 1
cover vm/panic_on_oom 0
cover kernel/panic 10
cover kernel/panic_on_oops 1
cover kernel/keys/root_maxkeys 1000000
cover kernel/keys/root_maxbytes 25000000

mkdir "$dir/cgroups"
umount /sys
mount --rbind /sys/fs/cgroup "$dir/cgroups"
mount -t sysfs sysfs /sys
mount --move "$dir/cgroups" /sys/fs/cgroup
mount -t bpf bpf /sys/fs/bpf
if [ -e /sys/fs/cgroup/cgroup.procs ]; then
    mkdir "/sys/fs/cgroup/$cgroup"
else
    for hierarchy in /sys/fs/cgroup/*; do
        mkdir "$hierarchy/$cgroup"
    done
    for file in cpuset.mems cpuset.cpus; do
        cat "/sys/fs/cgroup/cpuset/$file" >"/sys/fs/cgroup/cpuset/$cgroup/$file"
    done
fi

for path in lib/containerd lib/kubelet log/pods; do
    mkdir -p "$dir/$path" "/var/$path"
    mount --bind "$dir/$path" "/var/$path"
done
mount --make-rshared /
touch "$dir/ready"
sleep infinity &
wait
"#;

/// How long a container may take to end once it was killed.
const GONE: Duration = Duration::from_secs(10);

/// A place to run programs in.
#[derive(Debug)]
pub(super) struct Machine<'a> {
    node: &'a Node,
    first: Option<Running>,
    cgroup: String,
}

impl<'a> Machine<'a> {
    /// Makes one on a node, with its files in `dir`.
    pub(super) fn new(node: &'a Node, dir: &Path) -> Result<Self> {
        // Unique on the host, as process ids are.
        let cgroup = format!("headcni-lab-{}", node.holder_pid());
        let mut command = node.command("unshare");
        command
            .args(["--mount", "--propagation", "unchanged"])
            .args(["--pid", "--fork", "--kill-child", "--mount-proc"])
            .args(["sh", "-c", SCRIPT, "sh"])
            .arg(dir)
            .arg(&cgroup);
        let first = Running::spawn(&mut command, b"")?;
        let pid = first.pid();
        let mut machine = Self {
            node,
            first: Some(first),
            cgroup,
        };
        let ready = || {
            let has_ended = !Path::new(&format!("/proc/{pid}")).exists();
            (has_ended || dir.join("ready").exists()).then_some(has_ended)
        };
        if eventually(process::DEADLINE, "the machine is made", ready)? {
            let said = machine.first.take().context("it was started")?;
            anyhow::bail!("make a machine: {}", said.wait(process::DEADLINE)?.stderr);
        }
        Ok(machine)
    }

    /// Where containers are accounted for.
    pub(super) fn cgroup(&self) -> &str {
        &self.cgroup
    }

    fn first_pid(&self) -> u32 {
        self.first.as_ref().map_or(0, Running::pid)
    }
}

impl Netns for Machine<'_> {
    fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let pid = self.first_pid();
        let mut command = Command::new("nsenter");
        with_clean_environment(&mut command)
            .args(["--target", &pid.to_string(), "--mount", "--uts", "--net"])
            .arg(format!("--pid=/proc/{pid}/ns/pid_for_children"))
            .arg("--")
            .arg(program);
        command
    }

    fn netns_file(&self) -> PathBuf {
        self.node.netns_file()
    }
}

impl Drop for Machine<'_> {
    fn drop(&mut self) {
        if let Some(first) = self.first.take() {
            first.kill_group();
            // That it hangs can't be told to anybody here.
            let _ = first.wait(process::DEADLINE);
        }
        remove_cgroups(&self.cgroup);
    }
}

/// The kernel does not take them away with the last process in them, and lets nobody do so before: containers
/// end a little later than the process that they end with. Should one hang, its cgroups stay, without harm.
fn remove_cgroups(name: &str) {
    let mounted = Path::new("/sys/fs/cgroup");
    let hierarchies = fs::read_dir(mounted).into_iter().flatten().flatten();
    let hierarchies = hierarchies.map(|entry| entry.path().join(name));
    for dir in hierarchies.chain([mounted.join(name)]) {
        let _ = eventually(GONE, "a cgroup is empty", || {
            remove_cgroup(&dir);
            (!dir.exists()).then_some(())
        });
    }
}

/// Those within first.
fn remove_cgroup(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_cgroup(&entry.path());
        }
    }
    // Whether it is gone is what the caller looks at.
    let _ = fs::remove_dir(dir);
}
