//! Limits a process to a share of a CPU, by the bandwidth controller of cgroups.

use std::fs;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fanpcap_testbed::await_for;

/// A separate cgroup. Dropping this value removes it.
#[derive(Debug)]
pub(crate) struct Quota {
    dir: PathBuf,
}

/// The controller's period in microseconds. If a process has used its share, it waits for less than
/// one period.
const PERIOD: u32 = 10_000;
/// How long to wait at most until the kernel has removed a reaped process from its cgroup.
const LEAVING: Duration = Duration::from_secs(2);

impl Quota {
    /// A cgroup whose processes together have at most this many thousandths of a CPU.
    pub(crate) fn new(thousandths: u32) -> Result<Self> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        // Relaxed: only the number's uniqueness counts.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let (root, is_second) = root()?;
        let dir = root.join(format!("fanpcap-bench-{}-{number}", process::id()));
        fs::create_dir(&dir).with_context(|| format!("making {}", dir.display()))?;
        let quota = Self { dir };
        let time = PERIOD / 1000 * thousandths;
        if is_second {
            quota.write("cpu.max", &format!("{time} {PERIOD}"))?;
        } else {
            quota.write("cpu.cfs_period_us", &PERIOD.to_string())?;
            quota.write("cpu.cfs_quota_us", &time.to_string())?;
        }
        Ok(quota)
    }

    /// Puts a process into the cgroup.
    pub(crate) fn hold(&self, pid: u32) -> Result<()> {
        self.write("cgroup.procs", &pid.to_string())
    }

    fn write(&self, file: &str, value: &str) -> Result<()> {
        let path = self.dir.join(file);
        fs::write(&path, value).with_context(|| format!("writing {value} to {}", path.display()))
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        // After a process was reaped, the kernel may need a moment to remove it from its cgroup.
        // Errors are ignored: if the directory can't be removed, an empty cgroup stays, which
        // limits no process.
        let _ = await_for("the cgroup to be empty", LEAVING, || {
            Ok(fs::remove_dir(&self.dir).ok())
        });
    }
}

/// Why this machine can't limit a process; `None` if it can.
pub(crate) fn absent() -> Option<String> {
    root().err().map(|error| format!("{error:#}"))
}

/// Where cgroups with the CPU controller are, and whether they are of version 2.
fn root() -> Result<(PathBuf, bool)> {
    let mounts = fs::read_to_string("/proc/self/mounts").context("the mounts")?;
    let root = of_mounts(&mounts, |controllers| {
        let list = fs::read_to_string(controllers).unwrap_or_default();
        list.split_whitespace().any(|name| name == "cpu")
    });
    let (root, is_second) = root.context("no cgroups with the CPU controller are mounted here")?;
    if is_second {
        // Turns the CPU controller on for the cgroups below the root. If it is on already, this
        // changes nothing.
        let path = root.join("cgroup.subtree_control");
        fs::write(&path, "+cpu").with_context(|| format!("writing +cpu to {}", path.display()))?;
    }
    ensure!(root.is_dir(), "{} does not exist", root.display());
    Ok((root, is_second))
}

fn of_mounts(mounts: &str, has_cpu: impl Fn(&Path) -> bool) -> Option<(PathBuf, bool)> {
    mounts.lines().find_map(|line| {
        let [_, at, kind, options] = line.split(' ').take(4).collect::<Vec<_>>()[..] else {
            return None;
        };
        let at = PathBuf::from(at);
        match kind {
            "cgroup2" if has_cpu(&at.join("cgroup.controllers")) => Some((at, true)),
            "cgroup" if options.split(',').any(|option| option == "cpu") => Some((at, false)),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn either_version_is_found_by_its_controller() {
        let mounts = "cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n\
            cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n\
            cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\n";
        let found = of_mounts(mounts, |_| false).unwrap();
        assert_eq!(found, ("/sys/fs/cgroup/cpu,cpuacct".into(), false));
        let found = of_mounts(mounts, |_| true).unwrap();
        assert_eq!(found, ("/sys/fs/cgroup/unified".into(), true));
        assert_eq!(of_mounts("none / tmpfs rw 0 0\n", |_| true), None);
    }

    #[test]
    #[ignore = "needs root: cgroups"]
    #[allow(
        clippy::print_stdout,
        reason = "the tiers read SKIP in a test's output"
    )]
    fn a_process_has_its_share() {
        if let Some(why) = absent() {
            println!("SKIP: {why}");
            return;
        }
        let quota = Quota::new(100).unwrap();
        let mut busy = process::Command::new("sh")
            .args(["-c", "while :; do :; done"])
            .spawn()
            .unwrap();
        quota.hold(busy.id()).unwrap();
        std::thread::sleep(Duration::from_secs(1));
        let used = crate::cpu::of_all_threads(busy.id());
        busy.kill().unwrap();
        busy.wait().unwrap();
        let dir = quota.dir.clone();
        drop(quota);
        assert!(!dir.exists());
        let used = used.unwrap();
        assert!(used < Duration::from_millis(200), "{used:?} of a second");
    }
}
