//! Locked memory. Before Linux 5.11 the kernel charges maps and BPF programs to `RLIMIT_MEMLOCK`.
//! Above this limit, bpf(2) fails with `EPERM` (kernel/bpf/syscall.c, `bpf_charge_memlock`). The
//! error is the same if a process lacks the capability, so this module finds the reason.

use std::fs;

/// Returns how many bytes the process may lock, if this limit can be the reason for `EPERM`: the
/// kernel charges locked memory, and the process has the capability. `None` if the limit can't be
/// the reason, or if /proc can't be read.
pub fn locked_limit() -> Option<u64> {
    let read = |path| fs::read_to_string(path).ok();
    let is_charged = is_charged(&read("/proc/sys/kernel/osrelease")?)?;
    let may_load = status_may_load(&read("/proc/thread-self/status")?)?;
    if !is_charged || !may_load {
        return None;
    }
    limit(&read("/proc/self/limits")?)
}

fn is_charged(release: &str) -> Option<bool> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut number = || numbers.next()?.parse::<u32>().ok();
    Some((number()?, number()?) < (5, 11))
}

/// Whether a process has a capability to load BPF programs; `None` if the process has ended.
pub fn may_load(pid: u32) -> Option<bool> {
    status_may_load(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
}

/// Whether a thread with this status has a capability to load BPF programs (proc(5), `CapEff`).
fn status_may_load(status: &str) -> Option<bool> {
    let line = status.lines().find_map(|it| it.strip_prefix("CapEff:"))?;
    let effective = u64::from_str_radix(line.trim(), 16).ok()?;
    Some(effective & ((1 << CAP_BPF) | (1 << CAP_SYS_ADMIN)) != 0)
}

/// The soft limit in the text of /proc/PID/limits (proc(5)); `None` if the limit is `unlimited`.
fn limit(limits: &str) -> Option<u64> {
    let mut lines = limits.lines();
    let line = lines.find_map(|it| it.strip_prefix("Max locked memory"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// linux/capability.h.
const CAP_SYS_ADMIN: u32 = 21;
const CAP_BPF: u32 = 39;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_before_5_11_charge() {
        for old in ["5.8.0", "5.10.0-28-amd64\n", "4.19.0+"] {
            assert_eq!(is_charged(old), Some(true), "{old}");
        }
        for new in ["5.11.0\n", "5.15.0-1-generic", "6.1", "10.0.1"] {
            assert_eq!(is_charged(new), Some(false), "{new}");
        }
        assert_eq!(is_charged("linux"), None);
    }

    #[test]
    fn who_has_no_capability_lacks_that() {
        assert_eq!(
            status_may_load("Name:\tx\nCapEff:\t0000000000002000\n"),
            Some(false)
        );
        assert_eq!(status_may_load("CapEff:\t0000008000002000\n"), Some(true));
        assert_eq!(status_may_load("CapEff:\t000001ffffffffff\n"), Some(true));
        assert_eq!(status_may_load("Name:\tx\n"), None);
    }

    #[test]
    fn the_soft_limit_counts() {
        let limits = "Limit    Soft Limit  Hard Limit  Units\nMax locked memory         65536    unlimited   bytes\n";
        assert_eq!(limit(limits), Some(65536));
        assert_eq!(limit(&limits.replace("65536", "unlimited")), None);
    }

    #[test]
    fn this_process_is_told_its_own_facts() {
        let read = |path| fs::read_to_string(path).unwrap();
        assert!(is_charged(&read("/proc/sys/kernel/osrelease")).is_some());
        assert!(status_may_load(&read("/proc/thread-self/status")).is_some());
        assert!(read("/proc/self/limits").contains("\nMax locked memory"));
    }
}
