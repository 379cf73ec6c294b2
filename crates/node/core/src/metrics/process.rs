//! The daemon's CPU time, memory and open files, read at each scrape.
//!
//! The names are Prometheus' standard ones:
//! <https://prometheus.io/docs/instrumenting/writing_clientlibs/#process-metrics>.

use std::fmt;
use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use rustix::time::{ClockId, Timespec, clock_gettime};

#[derive(Debug)]
pub(super) struct Process {
    /// Unix seconds. Read once: computed at each scrape, it would follow changes of the clock.
    started: Option<f64>,
}

impl Process {
    /// A registry of its own, because the names have no prefix.
    pub(super) fn registry() -> Registry {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Self {
            started: start_time(),
        }));
        registry
    }
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut put = |name: &str, help: &str, unit: Option<&Unit>, metric: &dyn EncodeMetric| {
            let kind = metric.metric_type();
            metric.encode(encoder.encode_descriptor(name, help, unit, kind)?)
        };
        let cpu = ConstCounter::new(cpu_time().as_secs_f64());
        put(
            "process_cpu",
            "CPU time, user and system",
            Some(&Unit::Seconds),
            &cpu,
        )?;
        if let Some(bytes) = resident_bytes() {
            put(
                "process_resident_memory",
                "Resident memory",
                Some(&Unit::Bytes),
                &ConstGauge::new(bytes),
            )?;
        }
        if let Some(files) = open_files() {
            put(
                "process_open_fds",
                "Open file descriptors",
                None,
                &ConstGauge::new(files),
            )?;
        }
        if let Some(started) = self.started {
            put(
                "process_start_time",
                "Start time in Unix seconds",
                Some(&Unit::Seconds),
                &ConstGauge::new(started),
            )?;
        }
        Ok(())
    }
}

fn cpu_time() -> Duration {
    duration(clock_gettime(ClockId::ProcessCPUTime))
}

fn duration(time: Timespec) -> Duration {
    Duration::try_from(time).unwrap_or_default()
}

/// `VmRSS` of <https://man7.org/linux/man-pages/man5/proc_pid_status.5.html>.
fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes * 1024)
}

fn open_files() -> Option<u64> {
    let files = fs::read_dir("/proc/self/fd").ok()?.count();
    // Reading the directory opens one.
    u64::try_from(files).ok()?.checked_sub(1)
}

fn start_time() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let after_boot = Duration::from_secs_f64(f64::from(start_ticks(&stat)?) / ticks_per_second()?);
    let age = duration(clock_gettime(ClockId::Boottime)).checked_sub(after_boot)?;
    let started = SystemTime::now().checked_sub(age)?;
    Some(started.duration_since(UNIX_EPOCH).ok()?.as_secs_f64())
}

/// `starttime`, the 22nd field of
/// <https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html>. The second one is the program's
/// name in parentheses, which may contain anything.
fn start_ticks(stat: &str) -> Option<u32> {
    let (_, from_third) = stat.rsplit_once(") ")?;
    from_third.split(' ').nth(19)?.parse().ok()
}

fn ticks_per_second() -> Option<f64> {
    let ticks = u32::try_from(rustix::param::clock_ticks_per_second()).ok()?;
    (ticks > 0).then(|| f64::from(ticks))
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    use super::*;

    #[test]
    fn the_start_time_is_found_after_a_hostile_name() {
        let stat = "7 (a) S (b) 1) S 1 7 7 0 -1 4194560 9 0 0 0 1 2 0 0 20 0 1 0 8154 99 88 7";
        assert_eq!(start_ticks(stat), Some(8154));
        assert_eq!(start_ticks(""), None);
        assert_eq!(start_ticks("7 (a) S 1"), None);
    }

    #[test]
    fn process_metrics_describe_this_process() {
        // Other tests open and close files meanwhile, but fewer.
        let before = open_files().unwrap();
        let more: Vec<fs::File> = (0..200)
            .map(|_| fs::File::open("/dev/null").unwrap())
            .collect();
        assert!(open_files().unwrap() > before + 100);
        drop(more);

        let before = resident_bytes().unwrap();
        let mut memory = vec![0_u8; 64 << 20];
        memory.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
        assert!(resident_bytes().unwrap() > before + (32 << 20));
        black_box(&memory);

        // Computed again from the boot time, which the kernel has in seconds.
        let stat = fs::read_to_string("/proc/stat").unwrap();
        let boot = stat.lines().find_map(|line| line.strip_prefix("btime "));
        let boot: u32 = boot.unwrap().parse().unwrap();
        let stat = fs::read_to_string("/proc/self/stat").unwrap();
        let expected = f64::from(boot) + f64::from(start_ticks(&stat).unwrap()) / 100.0;
        let started = start_time().unwrap();
        assert!((started - expected).abs() < 2.0, "{started} {expected}");
    }

    #[test]
    fn cpu_time_grows_with_work() {
        let before = cpu_time();
        let mut sum = 0_u64;
        while cpu_time() < before + Duration::from_millis(20) {
            sum = black_box(sum.wrapping_add(1));
        }
        assert!(sum > 0);
    }
}
