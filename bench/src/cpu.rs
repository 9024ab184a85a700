//! CPU time of processes, and the load of a core.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// CPU time of all present threads of a process. It is exact to the nanosecond when no thread is
/// running.
pub(crate) fn of_all_threads(pid: u32) -> Result<Duration> {
    let tasks = format!("/proc/{pid}/task");
    let threads = fs::read_dir(&tasks).with_context(|| format!("reading {tasks}"))?;
    let mut sum = Duration::ZERO;
    for thread in threads {
        let path = thread?.path().join("schedstat");
        match first_number(&path.to_string_lossy()) {
            Ok(time) => sum += time,
            // The thread has ended since the directory was read.
            Err(_) if !path.exists() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(sum)
}

/// CPU time of the calling thread at its last context switch.
pub(crate) fn of_this_thread() -> Result<Duration> {
    first_number("/proc/thread-self/schedstat")
}

fn first_number(path: &str) -> Result<Duration> {
    let text = fs::read_to_string(path).with_context(|| format!("reading {path}"))?;
    let first = text.split_whitespace().next();
    let nanoseconds = first
        .and_then(|number| number.parse().ok())
        .with_context(|| format!("{path}: {text:?}"))?;
    Ok(Duration::from_nanos(nanoseconds))
}

/// Measures which share of a core's time other processes take.
#[derive(Debug)]
pub(crate) struct Watch {
    cpu: usize,
    softirqd: Option<u32>,
    since: Instant,
    idle: Duration,
    softirqs: Duration,
}

impl Watch {
    /// Starts to watch.
    pub(crate) fn start(cpu: usize) -> Result<Self> {
        let softirqd = find(&format!("ksoftirqd/{cpu}"))?;
        Ok(Self {
            cpu,
            softirqd,
            since: Instant::now(),
            idle: idle(cpu)?,
            softirqs: softirqd.map_or(Ok(Duration::ZERO), of_all_threads)?,
        })
    }

    /// The watched CPU.
    pub(crate) fn cpu(&self) -> usize {
        self.cpu
    }

    /// The share of the core that other processes took: the watched time minus `own`, the softirq
    /// thread's time and the idle time. Idle time is exact to 10 ms (proc_stat(5)), so a short
    /// watch is inaccurate.
    pub(crate) fn foreign(&self, own: Duration) -> Result<f64> {
        let watched = self.since.elapsed();
        let idle = idle(self.cpu)?.saturating_sub(self.idle);
        let softirqs = self.softirqd.map_or(Ok(Duration::ZERO), of_all_threads)?;
        let ours = own + softirqs.saturating_sub(self.softirqs);
        let foreign = watched.saturating_sub(idle).saturating_sub(ours);
        Ok(foreign.as_secs_f64() / watched.as_secs_f64())
    }
}

/// Idle time of a core: the numbers 4 and 5 of its line in /proc/stat (`idle`, `iowait`), in
/// hundredths of a second (`USER_HZ`).
fn idle(cpu: usize) -> Result<Duration> {
    let text = fs::read_to_string("/proc/stat").context("reading /proc/stat")?;
    let name = format!("cpu{cpu}");
    let line = text
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .find(|words| words.first() == Some(&name.as_str()))
        .with_context(|| format!("no {name} in /proc/stat"))?;
    let ticks: u64 = line
        .iter()
        .skip(4)
        .take(2)
        .filter_map(|word| word.parse::<u64>().ok())
        .sum();
    Ok(Duration::from_millis(10 * ticks))
}

/// The id of the process with this name; `None` if no process has it.
fn find(name: &str) -> Result<Option<u32>> {
    for entry in fs::read_dir("/proc").context("reading /proc")? {
        let entry = entry?;
        let Some(pid) = entry.file_name().to_str().and_then(|pid| pid.parse().ok()) else {
            continue;
        };
        // A process may end during the search.
        let comm = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        if comm.trim_end() == name {
            return Ok(Some(pid));
        }
    }
    Ok(None)
}
