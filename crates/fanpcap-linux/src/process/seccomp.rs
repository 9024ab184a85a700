//! Confines a process to the system calls of a server (seccomp(2)): sockets, devices, BPF, memory,
//! files, threads and time. It can no longer run programs (execve(2)), become another user, enter
//! namespaces of other processes, trace processes, or load kernel modules.
//!
//! The filter does not look at arguments. So the process can still open each file that its user may
//! open, start a child in new namespaces, and by tgkill(2), prlimit64(2) and sched_setaffinity(2)
//! act on other processes of its user. What more it can do depends on its capabilities
//! ([`super::capabilities`]).
//!
//! Other calls fail with `EPERM`, and the kernel logs them (`SECCOMP_FILTER_FLAG_LOG`). The process
//! is not killed: a newer C library may make a call that is missing here.

use crate::errno::check;
use fanpcap_bpf::Classic;
use fanpcap_bpf::classic::opcode::{JMP_JEQ_K, LD_W_ABS, RET_K};
use std::ffi::c_long;
use std::io;

/// Confines all threads of the process, and all that they start. This can't be undone.
///
/// # Errors
/// `Unsupported` for a machine without a list of calls; `EINVAL` and `ENOSYS` when the kernel lacks
/// seccomp filters.
pub fn confine() -> io::Result<()> {
    confine_to(CALLS.ok_or(io::ErrorKind::Unsupported)?)
}

/// Confines the process as [`confine`] does, but allows the calls of device drivers that run in it.
///
/// # Errors
/// As [`confine`].
pub fn confine_with_drivers() -> io::Result<()> {
    let calls = CALLS.ok_or(io::ErrorKind::Unsupported)?;
    confine_to(&[calls, DRIVERS].concat())
}

fn confine_to(calls: &[c_long]) -> io::Result<()> {
    let filter = filter(calls);
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
        // The kernel only reads the instructions, although the struct's pointer is mutable.
        filter: filter.as_ptr().cast_mut().cast(),
    };
    // Without CAP_SYS_ADMIN, only a process that gets no new privileges by execve(2) may do this.
    // SAFETY: takes plain numbers.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })?;
    let flags = libc::SECCOMP_FILTER_FLAG_TSYNC | libc::SECCOMP_FILTER_FLAG_LOG;
    let operation = libc::SECCOMP_SET_MODE_FILTER;
    // SAFETY: the kernel reads the struct, and as many instructions as the struct says. Both live
    // through the call.
    match unsafe { libc::syscall(libc::SYS_seccomp, operation, flags, &raw const program) } {
        0 => Ok(()),
        // The number of a thread that has another filter.
        1.. => Err(io::ErrorKind::ResourceBusy.into()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The filter that allows these calls.
fn filter(calls: &[c_long]) -> Vec<Classic> {
    // struct seccomp_data: the number of the call (at 0), the machine (at 4), and so on.
    let mut filter = vec![
        Classic::new(LD_W_ABS, 4),
        Classic::jump(JMP_JEQ_K, MACHINE, 1, 0),
        Classic::new(RET_K, DENIED),
        Classic::new(LD_W_ABS, 0),
    ];
    // The calls of x32 have other numbers than these.
    for number in calls.iter().filter_map(|call| u32::try_from(*call).ok()) {
        filter.push(Classic::jump(JMP_JEQ_K, number, 0, 1));
        filter.push(Classic::new(RET_K, libc::SECCOMP_RET_ALLOW));
    }
    filter.push(Classic::new(RET_K, DENIED));
    filter
}

const DENIED: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM.unsigned_abs();

/// linux/audit.h: `AUDIT_ARCH_X86_64`, `AUDIT_ARCH_AARCH64`.
#[cfg(target_arch = "x86_64")]
const MACHINE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const MACHINE: u32 = 0xc000_00b7;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const MACHINE: u32 = 0;

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const CALLS: Option<&[c_long]> = None;

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[rustfmt::skip]
const CALLS: Option<&[c_long]> = Some(&[
    // Sockets and messages.
    libc::SYS_socket, libc::SYS_socketpair, libc::SYS_bind, libc::SYS_listen, libc::SYS_accept4,
    libc::SYS_connect, libc::SYS_getsockname, libc::SYS_getpeername, libc::SYS_getsockopt,
    libc::SYS_setsockopt, libc::SYS_sendto, libc::SYS_recvfrom, libc::SYS_sendmsg,
    libc::SYS_recvmsg, libc::SYS_shutdown,
    // Devices and BPF.
    libc::SYS_ioctl, libc::SYS_bpf,
    // Descriptors and waiting.
    libc::SYS_read, libc::SYS_write, libc::SYS_readv, libc::SYS_writev, libc::SYS_pread64,
    libc::SYS_pwrite64, libc::SYS_lseek, libc::SYS_close, libc::SYS_dup, libc::SYS_dup3,
    libc::SYS_fcntl, libc::SYS_ppoll, libc::SYS_epoll_create1, libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait, libc::SYS_eventfd2, libc::SYS_pipe2, libc::SYS_memfd_create,
    // Files: the sockets' names, the journal of devices' settings, /proc and /sys.
    libc::SYS_openat, libc::SYS_newfstatat, libc::SYS_fstat, libc::SYS_statx, libc::SYS_fstatfs,
    libc::SYS_statfs, libc::SYS_readlinkat, libc::SYS_getdents64, libc::SYS_mkdirat,
    libc::SYS_unlinkat, libc::SYS_renameat, libc::SYS_renameat2, libc::SYS_fchmod,
    libc::SYS_fchmodat, libc::SYS_fchown, libc::SYS_fchownat, libc::SYS_ftruncate,
    libc::SYS_fallocate, libc::SYS_fsync, libc::SYS_fdatasync,
    // Memory.
    libc::SYS_mmap, libc::SYS_munmap, libc::SYS_mremap, libc::SYS_mprotect, libc::SYS_madvise,
    libc::SYS_brk, libc::SYS_mlock, libc::SYS_membarrier,
    // Threads and CPUs.
    libc::SYS_clone, libc::SYS_clone3, libc::SYS_exit, libc::SYS_exit_group, libc::SYS_futex,
    libc::SYS_set_robust_list, libc::SYS_rseq, libc::SYS_gettid, libc::SYS_getpid,
    libc::SYS_sched_yield, libc::SYS_sched_getaffinity, libc::SYS_sched_setaffinity,
    libc::SYS_getcpu, libc::SYS_prctl, libc::SYS_prlimit64, libc::SYS_sysinfo,
    // New threads drop capabilities. No thread gets more by this.
    libc::SYS_capget, libc::SYS_capset,
    // Signals.
    libc::SYS_rt_sigaction, libc::SYS_rt_sigprocmask, libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack, libc::SYS_tgkill, libc::SYS_restart_syscall,
    // Time, random numbers, and who the process is.
    libc::SYS_clock_gettime, libc::SYS_clock_getres, libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep, libc::SYS_gettimeofday, libc::SYS_getrandom, libc::SYS_getuid,
    libc::SYS_geteuid, libc::SYS_getgid, libc::SYS_getegid, libc::SYS_uname,
    // Calls that only this machine has, in the place of those above.
    #[cfg(target_arch = "x86_64")] libc::SYS_poll,
    #[cfg(target_arch = "x86_64")] libc::SYS_epoll_wait,
    #[cfg(target_arch = "x86_64")] libc::SYS_open,
    #[cfg(target_arch = "x86_64")] libc::SYS_stat,
    #[cfg(target_arch = "x86_64")] libc::SYS_lstat,
    #[cfg(target_arch = "x86_64")] libc::SYS_readlink,
    #[cfg(target_arch = "x86_64")] libc::SYS_mkdir,
    #[cfg(target_arch = "x86_64")] libc::SYS_rmdir,
    #[cfg(target_arch = "x86_64")] libc::SYS_unlink,
    #[cfg(target_arch = "x86_64")] libc::SYS_rename,
    #[cfg(target_arch = "x86_64")] libc::SYS_chmod,
    #[cfg(target_arch = "x86_64")] libc::SYS_lchown,
    #[cfg(target_arch = "x86_64")] libc::SYS_time,
]);

/// What drivers of DPDK call later: timers for the states of links, messages in batches, the nodes
/// of their memory, and connections of virtual devices. DPDK's own thread begins its epoll instance
/// again when a driver adds or removes an interrupt.
#[rustfmt::skip]
const DRIVERS: &[c_long] = &[
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    libc::SYS_timerfd_gettime,
    libc::SYS_recvmmsg,
    libc::SYS_sendmmsg,
    libc::SYS_accept,
    libc::SYS_get_mempolicy,
    libc::SYS_set_mempolicy,
    libc::SYS_mbind,
    libc::SYS_munlock,
    #[cfg(target_arch = "x86_64")] libc::SYS_epoll_create,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::directory::Directory;
    use crate::process::capabilities;
    use std::ffi::OsStr;
    use std::os::unix::net::UnixDatagram;
    use std::process::Command;
    use std::{env, fs, thread};

    const AGAIN: &str = "FANPCAP_CONFINES_ITSELF";

    /// What the confined process checks.
    fn check_confined() {
        let status = |task: &str| fs::read_to_string(format!("/proc/self/task/{task}/status"));
        // A thread that began before.
        let (tell, told) = std::sync::mpsc::channel::<()>();
        let before = thread::spawn(move || {
            let _ = told.recv();
            Command::new("true").status().unwrap_err().raw_os_error()
        });
        confine().unwrap();
        let denied = Some(libc::EPERM);
        assert_eq!(
            Command::new("true").status().unwrap_err().raw_os_error(),
            denied
        );
        drop(tell);
        assert_eq!(before.join().unwrap(), denied);
        // SAFETY: takes plain numbers.
        let trace = check(unsafe { libc::unshare(libc::CLONE_NEWNS) });
        assert_eq!(trace.unwrap_err().raw_os_error(), denied);
        // What a server does still works.
        let own = fs::read_dir("/proc/self/task").unwrap();
        for task in own {
            let task = task.unwrap().file_name();
            let status = status(&task.to_string_lossy()).unwrap();
            assert!(status.contains("Seccomp:\t2\n"), "{status}");
        }
        let scratch = env::temp_dir().join(format!("fanpcap-confined-{}", std::process::id()));
        fs::create_dir(&scratch).unwrap();
        let directory = Directory::open(&scratch).unwrap();
        directory.create(OsStr::new("one"), 0o600).unwrap();
        // The C library calls renameat(2) where no flags are given.
        let renamed = directory.rename(OsStr::new("one"), OsStr::new("other"));
        fs::remove_dir_all(&scratch).unwrap();
        renamed.unwrap();
        capabilities::keep_only(&[]).unwrap();
        let (one, other) = UnixDatagram::pair().unwrap();
        one.send(b"x").unwrap();
        assert_eq!(other.recv(&mut [0]).unwrap(), 1);
        assert_eq!(
            thread::spawn(|| vec![1; 1 << 20].len()).join().unwrap(),
            1 << 20
        );
    }

    #[test]
    fn a_confined_process_serves_and_runs_nothing() {
        if env::var_os(AGAIN).is_some() {
            check_confined();
            println!("confined");
            return;
        }
        run_again("a_confined_process_serves_and_runs_nothing");
    }

    /// Runs a test of this module in a process of its own, which prints "confined".
    fn run_again(test: &str) {
        let own = format!("process::seccomp::tests::{test}");
        let said = Command::new(env::current_exe().unwrap())
            .args(["--exact", "--nocapture", "--test-threads=1", &own])
            .env(AGAIN, "1")
            .output()
            .unwrap();
        let printed = String::from_utf8_lossy(&said.stdout);
        assert!(
            said.status.success() && printed.contains("confined"),
            "{said:?}"
        );
    }

    /// DPDK's thread panics if it gets no epoll instance (eal_interrupts.c:
    /// `eal_intr_thread_main()`).
    #[test]
    fn a_driver_may_remove_its_interrupt() {
        if env::var_os(AGAIN).is_none() {
            return run_again("a_driver_may_remove_its_interrupt");
        }
        confine_with_drivers().unwrap();
        // SAFETY: takes a plain number. The descriptor lives as long as this process.
        let epoll = unsafe { libc::epoll_create(1) };
        assert!(epoll >= 0, "{}", io::Error::last_os_error());
        println!("confined");
    }

    /// A call of another machine must not pass as one of this machine with the same number.
    #[test]
    fn another_machines_calls_are_denied() {
        let filter = filter(&[7]);
        assert_eq!(filter[1], Classic::jump(JMP_JEQ_K, MACHINE, 1, 0));
        assert_eq!(filter[2], Classic::new(RET_K, DENIED));
        assert_eq!(filter.last(), Some(&Classic::new(RET_K, DENIED)));
        assert!(CALLS.is_none_or(|calls| calls.len() < 200));
    }
}
