//! The priority of threads.

use crate::errno::check;
use std::io;

/// Gives the calling thread the lowest priority (`nice`, setpriority(2)): it runs when no other
/// thread needs its CPU, or for a small share of the time. Threads that it starts from now on have
/// the same priority.
///
/// # Errors
/// The error of setpriority(2).
pub fn lower() -> io::Result<()> {
    // SAFETY: setpriority has no preconditions. On Linux the process 0 is the calling thread.
    check(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, LOWEST) })
}

const LOWEST: libc::c_int = 19;

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn only_the_calling_thread_gets_another_priority() {
        // SAFETY: getpriority has no preconditions.
        let own = || unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
        let before = own();
        let within = thread::spawn(move || lower().map(|()| own()));
        assert_eq!(within.join().unwrap().unwrap(), LOWEST);
        assert_eq!(own(), before);
    }
}
