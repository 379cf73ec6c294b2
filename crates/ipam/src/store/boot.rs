//! Boot ID and boot time.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, CWD, StatxFlags, statfs, statx};

use super::file;

/// The kernel's boot ID; `None` if it can't be read.
pub(super) fn id() -> Option<String> {
    let bytes = file::read(Path::new("/proc/sys/kernel/random/boot_id")).ok()?;
    let text = std::str::from_utf8(&bytes).ok()?;
    text.split_whitespace().next().map(str::to_owned)
}

/// A time that is certainly before this boot; `None` if that can't be proven.
///
/// Now minus uptime is too late if the clock was set forward since boot, and the birth time of a
/// tmpfs is too late if it was set back. So the earlier one counts.
pub(super) fn time_lower_bound() -> Option<SystemTime> {
    let uptime = fs::read_to_string("/proc/uptime").ok()?;
    let seconds: f64 = uptime.split_whitespace().next()?.parse().ok()?;
    let by_uptime = SystemTime::now().checked_sub(Duration::try_from_secs_f64(seconds).ok()?)?;
    let by_birth = ["/run", "/dev/shm"].into_iter().find_map(birth_of_tmpfs)?;
    // File times lag one tick behind the clock, and birth times are read in whole seconds.
    by_uptime.min(by_birth).checked_sub(Duration::from_secs(2))
}

fn birth_of_tmpfs(path: &str) -> Option<SystemTime> {
    /// <https://www.man7.org/linux/man-pages/man2/statfs.2.html>
    const TMPFS_MAGIC: u64 = 0x0102_1994;
    if u64::try_from(statfs(path).ok()?.f_type).ok()? != TMPFS_MAGIC {
        return None;
    }
    let status = statx(CWD, path, AtFlags::empty(), StatxFlags::BTIME).ok()?;
    if status.stx_mask & StatxFlags::BTIME.bits() == 0 {
        return None;
    }
    let seconds = u64::try_from(status.stx_btime.tv_sec).ok()?;
    UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}
