//! Waits for running BPF programs.

use crate::errno::check;
use std::io;
use std::time::Duration;

/// Waits until all BPF programs that run now, in a driver's receive path or at a socket, have
/// ended. When this function returns:
///
/// - no BPF program uses a value that it read from a map before the call;
/// - packets that a socket's filter handled during the call, or that were on their way into a ring,
///   have arrived.
///
/// The reason is that the kernel handles each packet within one RCU read-side section, and that
/// membarrier(2) waits for an RCU grace period (kernel/sched/membarrier.c). That system call fails
/// if the kernel runs CPUs without a timer tick (nohz_full). If it fails, this function sleeps
/// longer than any BPF program runs. Needs no capability.
pub fn wait_for_programs() {
    if try_to_wait_for_programs().is_err() {
        std::thread::sleep(LONG);
    }
}

/// Waits as [`wait_for_programs`] does, but returns an error if membarrier(2) fails.
///
/// # Errors
/// `EINVAL` on kernels that run with `nohz_full`, `ENOSYS` on kernels without membarrier(2).
pub fn try_to_wait_for_programs() -> io::Result<()> {
    // SAFETY: the command takes no address of this process's memory.
    let rc = unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) };
    check(libc::c_int::try_from(rc).unwrap_or(-1))
}

const MEMBARRIER_CMD_GLOBAL: libc::c_int = 1;
const LONG: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    #[test]
    fn it_ends() {
        super::wait_for_programs();
    }
}
