//! Child processes: the state in which they start, signals to them, and their end.

use crate::errno::check;
use crate::process::cpu;
use std::ffi::c_int;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr::null_mut;
use std::sync::OnceLock;

pub use libc::{
    SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGSTOP, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2,
};

/// Makes `command` start its process in a new process group, with no signal blocked. If `cpu` is
/// given, the new process runs on that CPU. The new process gets the limit of open files that this
/// process had before [`raise_open_files`]. When the calling thread ends, the kernel sends
/// `SIGTERM` to the new process, unless the new process has changed its user (`PR_SET_PDEATHSIG`,
/// prctl(2)).
pub fn bind(command: &mut Command, cpu: Option<usize>) {
    let parent = std::process::id();
    command.process_group(0);
    let prepare = move || {
        let_signals_through()?;
        end_with_parent(parent, SIGTERM)?;
        restore_open_files()?;
        cpu.map_or(Ok(()), cpu::pin)
    };
    // SAFETY: between fork and exec, the closure makes only system calls and allocates no memory.
    unsafe { command.pre_exec(prepare) };
}

/// The limit of open files before [`raise_open_files`].
static OPEN_FILES: OnceLock<libc::rlimit> = OnceLock::new();

/// Raises the soft limit of open files to the hard limit (getrlimit(2)). Processes that [`bind`]
/// starts get the former limit, because a process that uses select(2) may need a low limit.
///
/// # Errors
/// The errors of getrlimit(2) and setrlimit(2).
pub fn raise_open_files() -> io::Result<()> {
    let before = limit_of_open_files()?;
    set_open_files(&libc::rlimit {
        rlim_cur: before.rlim_max,
        ..before
    })?;
    // If an earlier call has stored a limit, that limit stays: it is the limit before the first
    // raise.
    let _ = OPEN_FILES.set(before);
    Ok(())
}

/// How many files the process may have open.
///
/// # Errors
/// The error of getrlimit(2).
pub fn open_files_max() -> io::Result<u64> {
    Ok(limit_of_open_files()?.rlim_cur)
}

fn limit_of_open_files() -> io::Result<libc::rlimit> {
    let mut limit = MaybeUninit::<libc::rlimit>::uninit();
    // SAFETY: getrlimit fills the struct behind its argument.
    check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, limit.as_mut_ptr()) })?;
    // SAFETY: the call succeeded, so the struct is filled.
    Ok(unsafe { limit.assume_init() })
}

fn restore_open_files() -> io::Result<()> {
    OPEN_FILES.get().map_or(Ok(()), set_open_files)
}

fn set_open_files(limit: &libc::rlimit) -> io::Result<()> {
    // SAFETY: setrlimit reads a struct that lives through the call.
    check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, limit) })
}

/// Whether a call failed because the process or the system has too many open files (`EMFILE`,
/// `ENFILE`).
pub fn is_lack_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// Makes `command` start a process that the kernel kills when the calling thread ends
/// (`PR_SET_PDEATHSIG` with `SIGKILL`, prctl(2)). The process keeps this setting after exec(3), but
/// not after a change of its user. Its children do not inherit the setting.
pub fn end_with_caller(command: &mut Command) {
    let parent = std::process::id();
    // SAFETY: between fork and exec, the closure makes only system calls and allocates no memory.
    unsafe { command.pre_exec(move || end_with_parent(parent, SIGKILL)) };
}

fn let_signals_through() -> io::Result<()> {
    let mut none = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the set.
    unsafe { libc::sigemptyset(none.as_mut_ptr()) };
    // SAFETY: the set is initialised, and the call writes no old set.
    check(unsafe { libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), null_mut()) })
}

fn end_with_parent(parent: u32, signal: c_int) -> io::Result<()> {
    // SAFETY: this prctl takes plain numbers.
    check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal) })?;
    // If the parent has died before this prctl, the kernel sends no signal. So this process checks
    // whether it still has that parent.
    if std::os::unix::process::parent_id() == parent {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(libc::ESRCH))
    }
}

/// Sends a signal to the process group of this leader.
///
/// # Errors
/// `ESRCH` when the group is empty, `EPERM` when the caller may signal no process of the group.
pub fn signal_group(leader: u32, signal: c_int) -> io::Result<()> {
    // For kill(2), 0 would mean the caller's own group, and -1 all processes. `process` refuses
    // both leaders.
    let leader = process(leader)?;
    // SAFETY: kill takes plain numbers.
    check(unsafe { libc::kill(-leader, signal) })
}

/// Sends a signal to one process.
///
/// # Errors
/// `ESRCH` when the process is gone, `EPERM` when the caller may not signal it.
pub fn signal(pid: u32, signal: c_int) -> io::Result<()> {
    let pid = process(pid)?;
    // SAFETY: kill takes plain numbers.
    check(unsafe { libc::kill(pid, signal) })
}

/// Stops the calling process until it gets `SIGCONT`, as Ctrl-Z on a terminal does.
///
/// # Errors
/// The error of kill(2).
pub fn stop_here() -> io::Result<()> {
    // SAFETY: getpid has no preconditions.
    let own = unsafe { libc::getpid() };
    // SAFETY: kill takes plain numbers.
    check(unsafe { libc::kill(own, libc::SIGSTOP) })
}

/// Makes the calling process the parent of its orphaned descendants (`PR_SET_CHILD_SUBREAPER`,
/// prctl(2)). The process can then [`reap`] them. Also sets `SIGCHLD` to its default: while a
/// process ignores `SIGCHLD`, the kernel discards the status of its children.
///
/// # Errors
/// The error of prctl(2).
pub fn adopt_orphans() -> io::Result<()> {
    // SAFETY: the default action runs no handler.
    if unsafe { libc::signal(SIGCHLD, libc::SIG_DFL) } == libc::SIG_ERR {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: this prctl takes plain numbers.
    check(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) })
}

/// Reaps a child that has ended. Returns false while the child runs. No other code may wait for the
/// child.
///
/// # Errors
/// `ECHILD` when the process is not a child of the calling process.
pub fn reap(pid: u32) -> io::Result<bool> {
    let pid = process(pid)?;
    // SAFETY: the call writes no status, because the address is null.
    let reaped = unsafe { libc::waitpid(pid, null_mut(), libc::WNOHANG) };
    check(reaped).map(|()| reaped == pid)
}

/// Converts a process number for kill(2) and waitpid(2). Refuses 0 and 1, with which these calls
/// could mean several processes.
fn process(pid: u32) -> io::Result<libc::pid_t> {
    let pid = libc::pid_t::try_from(pid).map_err(|_| io::ErrorKind::InvalidInput)?;
    if pid <= 1 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok(pid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn a_child_leads_its_group_runs_where_it_was_put_and_its_end_is_seen() {
        let cpu = cpu::cpus().unwrap()[0];
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 60 & wait"]);
        bind(&mut command, Some(cpu));
        let _blocked = crate::process::signal::Blocked::new();
        let mut child = command.spawn().unwrap();
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        assert!(
            status.contains(&format!("Cpus_allowed_list:\t{cpu}\n")),
            "{status}"
        );
        signal_group(child.id(), SIGTERM).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(SIGTERM));
    }

    #[test]
    fn a_child_ends_with_the_thread_that_started_it() {
        let start = || {
            let mut command = Command::new("sh");
            command.args(["-c", "exec sleep 60"]);
            end_with_caller(&mut command);
            command.spawn()
        };
        let mut child = std::thread::spawn(start).join().unwrap().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(SIGKILL));
    }

    #[test]
    fn no_group_is_everybody() {
        for leader in [0, 1, u32::MAX] {
            assert!(signal_group(leader, 0).is_err());
            assert!(signal(leader, 0).is_err() && reap(leader).is_err());
        }
    }
}
