//! Waits for running BPF programs.

use std::time::Duration;

/// Waits until all BPF programs that run now, in a driver's receive path or at a socket, have
/// ended. From then on, no BPF program uses a value that it read from a map before this call. Needs
/// no capability.
///
/// The system call waits for an RCU grace period. It fails if CPUs have no timer tick (nohz_full).
/// Then this function sleeps longer than any BPF program runs.
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
