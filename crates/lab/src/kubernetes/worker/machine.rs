//! A PID namespace and cgroups on a node, which the kubelet takes for a machine.
//!
//! Containers have their own UTS namespace, so the node would not find their processes. They are in a
//! PID namespace whose init is in the node: the kernel kills them with it.

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

/// The init script, in its own mount namespace. `$1` is a directory on a disk, `$2` the name of a cgroup.
/// It creates the file `ready` when it is done.
///
/// Files with the values that the kubelet wants cover sysctls of the host. The node's `/sys` has no
/// cgroups, but the host's beneath it does. An overlay cannot be stacked on the node's overlay, so
/// containers are stored on the disk. `wait` reaps orphaned processes.
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

/// How long a killed container may take to end.
const GONE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Machine {
    node: Node,
    init: Option<Running>,
    cgroup: String,
}

impl Machine {
    /// Its files are in `dir`.
    pub(super) fn new(node: &Node, dir: &Path) -> Result<Self> {
        // Unique on the host, as process ids are.
        let cgroup = format!("headcni-lab-{}", node.holder_pid());
        let mut command = node.command("unshare");
        command
            .args(["--mount", "--propagation", "unchanged"])
            .args(["--pid", "--fork", "--kill-child", "--mount-proc"])
            .args(["sh", "-c", SCRIPT, "sh"])
            .arg(dir)
            .arg(&cgroup);
        let init = Running::spawn(&mut command, b"")?;
        let pid = init.pid();
        let mut machine = Self {
            node: node.clone(),
            init: Some(init),
            cgroup,
        };
        let ready = || {
            let has_exited = !Path::new(&format!("/proc/{pid}")).exists();
            (has_exited || dir.join("ready").exists()).then_some(has_exited)
        };
        if eventually(process::DEADLINE, "the machine is made", ready)? {
            let init = machine.init.take().context("it was started")?;
            anyhow::bail!("make a machine: {}", init.wait(process::DEADLINE)?.stderr);
        }
        Ok(machine)
    }

    pub(super) fn cgroup(&self) -> &str {
        &self.cgroup
    }

    fn init_pid(&self) -> u32 {
        self.init.as_ref().map_or(0, Running::pid)
    }
}

impl Netns for Machine {
    fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let pid = self.init_pid();
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

impl Drop for Machine {
    fn drop(&mut self) {
        if let Some(init) = self.init.take() {
            init.kill_group();
            // An error cannot be returned here.
            let _ = init.wait(process::DEADLINE);
        }
        remove_cgroups(&self.cgroup);
    }
}

/// A cgroup can be removed only when its last process has ended, which is a little after init. If one
/// hangs, its cgroups stay, without harm.
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

/// Children first.
fn remove_cgroup(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_cgroup(&entry.path());
        }
    }
    // The caller checks the result.
    let _ = fs::remove_dir(dir);
}
