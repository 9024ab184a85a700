//! CPUs: sets the CPUs on which a thread may run, and reads and writes lists of CPUs.

use crate::errno::check;
use std::fs;
use std::io;
use std::mem;

/// Keeps the calling thread on one CPU. The threads and processes that this thread starts from now
/// on also stay on that CPU.
///
/// # Errors
/// `EINVAL` when the process may not run on that CPU.
pub fn pin(cpu: usize) -> io::Result<()> {
    set_affinity(0, &[cpu])
}

/// Keeps a thread of any process on these CPUs. Thread 0 is the calling thread.
///
/// # Errors
/// `EINVAL` when the thread may run on none of these CPUs, `ESRCH` when no thread has this number,
/// `EPERM` when the caller may not change the thread.
pub fn set_affinity(thread: u32, cpus: &[usize]) -> io::Result<()> {
    let mut set = no_cpus();
    for &cpu in cpus {
        if cpu >= 8 * mem::size_of_val(&set) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: the CPU is in the set's range, as checked above.
        unsafe { libc::CPU_SET(cpu, &mut set) };
    }
    let thread = libc::pid_t::try_from(thread).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: the set lives through the call and has the size given.
    check(unsafe { libc::sched_setaffinity(thread, mem::size_of_val(&set), &raw const set) })
}

/// Returns the CPU on which the calling thread is running, or was running just before.
///
/// # Errors
/// The error of sched_getcpu(3).
pub fn current_cpu() -> io::Result<usize> {
    // SAFETY: sched_getcpu has no preconditions.
    let cpu = unsafe { libc::sched_getcpu() };
    usize::try_from(cpu).map_err(|_| io::Error::last_os_error())
}

/// The CPUs on which the calling thread may run.
///
/// # Errors
/// The error of sched_getaffinity(2).
pub fn cpus() -> io::Result<Vec<usize>> {
    affinity(0)
}

/// The CPUs on which a thread of any process may run. Thread 0 is the calling thread.
///
/// # Errors
/// `ESRCH` when no thread has this number.
pub fn affinity(thread: u32) -> io::Result<Vec<usize>> {
    let mut set = no_cpus();
    let thread = libc::pid_t::try_from(thread).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: the set lives through the call and has the size given.
    check(unsafe { libc::sched_getaffinity(thread, mem::size_of_val(&set), &raw mut set) })?;
    let all = 0..8 * mem::size_of_val(&set);
    Ok(all
        // SAFETY: all CPUs of `all` are in the set's range.
        .filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) })
        .collect())
}

/// Returns the highest number that a CPU can have while the machine runs, plus one.
///
/// # Errors
/// The list in sysfs can't be read.
pub fn possible() -> io::Result<u32> {
    let last = of_machine("possible")?.into_iter().max();
    let count = last.and_then(|last| u32::try_from(last + 1).ok());
    count.ok_or(io::ErrorKind::InvalidData.into())
}

/// Returns the number of CPUs that are online.
///
/// # Errors
/// As [`possible`].
pub fn online() -> io::Result<u32> {
    let count = of_machine("online")?.len();
    u32::try_from(count).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Whether the kernel is fully preemptible (PREEMPT_RT). On such a kernel, code that runs with
/// bottom halves disabled may be interrupted by other such code on the same CPU.
pub fn is_realtime() -> bool {
    // Distributions' kernels and the kernels of the real-time project have the first file, the
    // mainline kernel does not. All have the second, the version of uname(2).
    let flag = fs::read_to_string("/sys/kernel/realtime").unwrap_or_default();
    let version = fs::read_to_string("/proc/sys/kernel/version").unwrap_or_default();
    tells_realtime(&flag, &version)
}

fn tells_realtime(flag: &str, version: &str) -> bool {
    flag.starts_with('1') || version.split_whitespace().any(|word| word == "PREEMPT_RT")
}

fn of_machine(name: &str) -> io::Result<Vec<usize>> {
    let text = fs::read_to_string(format!("/sys/devices/system/cpu/{name}"))?;
    list(text.trim()).ok_or(io::ErrorKind::InvalidData.into())
}

fn no_cpus() -> libc::cpu_set_t {
    // SAFETY: cpu_set_t is a bit mask; all zeros is the empty set.
    unsafe { mem::zeroed() }
}

/// Parses a list of CPUs such as `0,2-3` (the kernel's admin-guide/cputopology.rst). An empty text
/// gives an empty list. `None` if the text is not such a list.
pub fn list(text: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for part in text.split(',').filter(|_| !text.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if first > last || last >= CPUS_MAX {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

/// Writes CPUs, given in ascending order, as a list such as `0,2-3`.
pub fn list_text(cpus: &[usize]) -> String {
    let mut text = String::new();
    let mut rest = cpus;
    while let Some(&first) = rest.first() {
        let run = (0..rest.len())
            .take_while(|&at| rest[at] == first + at)
            .count();
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(&first.to_string());
        if run > 1 {
            text.push('-');
            text.push_str(&(first + run - 1).to_string());
        }
        rest = &rest[run..];
    }
    text
}

/// Parses a mask of CPUs in 32-bit words, highest word first, such as `00000001,00000003`. `None`
/// if the text is not such a mask.
pub fn mask(text: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for (word, digits) in text.trim().rsplit(',').enumerate() {
        let bits = u32::from_str_radix(digits, 16).ok()?;
        cpus.extend(
            (0..32)
                .filter(|bit| (bits >> bit) & 1 == 1)
                .map(|bit| word * 32 + bit),
        );
    }
    Some(cpus)
}

/// Writes CPUs as a mask that [`mask`] can parse.
pub fn mask_text(cpus: &[usize]) -> String {
    let words = cpus.iter().max().map_or(1, |last| last / 32 + 1);
    let word = |word: usize| {
        let own = cpus.iter().filter(|&&cpu| cpu / 32 == word);
        let bits = own.fold(0_u32, |bits, cpu| bits | (1 << (cpu % 32)));
        format!("{bits:08x}")
    };
    (0..words).rev().map(word).collect::<Vec<_>>().join(",")
}

/// Numbers of CPUs in lists must be below this one. No machine has so many CPUs.
const CPUS_MAX: usize = 65_536;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read() {
        assert_eq!(list("0-2,8\n"), Some(vec![0, 1, 2, 8]));
        assert_eq!(list(""), Some(Vec::new()));
        for wrong in [",", "1-0", "a", "0-65536"] {
            assert_eq!(list(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn lists_are_written() {
        for text in ["", "3", "0-2,8", "0,2-3,5-70"] {
            assert_eq!(list_text(&list(text).unwrap()), text);
        }
    }

    #[test]
    fn masks_begin_at_their_end() {
        assert_eq!(mask("00000001,80000003\n"), Some(vec![0, 1, 31, 32]));
        assert_eq!(mask_text(&[0, 1, 31, 32]), "00000001,80000003");
        assert_eq!((mask("0"), mask("x")), (Some(vec![]), None));
        assert_eq!(mask_text(&[]), "00000000");
    }

    #[test]
    fn a_real_time_kernel_is_found_by_its_version_alone() {
        let built = "Tue Nov 4 09:01:17 UTC 2025";
        assert!(tells_realtime("", &format!("#1 SMP PREEMPT_RT {built}\n")));
        assert!(tells_realtime("1\n", ""));
        for other in ["PREEMPT_DYNAMIC", "PREEMPT", ""] {
            assert!(!tells_realtime("0\n", &format!("#1 SMP {other} {built}\n")));
        }
    }

    #[test]
    fn the_calling_thread_is_number_0() {
        let own = cpus().unwrap();
        set_affinity(0, &own).unwrap();
        assert_eq!(affinity(0).unwrap(), own);
        assert!(set_affinity(0, &[]).is_err() && set_affinity(0, &[1 << 20]).is_err());
    }

    #[test]
    fn the_machine_has_as_many_cpus_as_its_lists_say() {
        let (possible, online) = (possible().unwrap(), online().unwrap());
        assert!((1..=possible).contains(&online), "{online} of {possible}");
        let last = cpus().unwrap().into_iter().max().unwrap();
        assert!(last < possible as usize);
    }
}
