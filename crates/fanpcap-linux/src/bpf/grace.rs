//! Waiting for BPF programs that run.

use std::time::Duration;

/// Waits until all BPF programs that run now have ended, at a driver's receive path or a socket:
/// what they have read of a map before a change, they do not use afterwards. It takes no
/// capability.
///
/// The system call waits for a grace period of RCU. A kernel with CPUs without a timer tick
/// (nohz_full) refuses it: then the wait is longer than any run.
pub fn wait_for_programs() {
    // SAFETY: the command has no memory of this process as its argument.
    let result = unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) };
    if result != 0 {
        std::thread::sleep(LONG);
    }
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
