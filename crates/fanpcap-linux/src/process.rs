//! Processes: facts about the calling process, attributes of its threads, and other processes.

pub mod signal;
pub mod lock;
pub mod environment;
pub mod netns;
pub mod cpu;
pub mod stat;
pub mod child;
pub mod pidfd;
pub mod memory;
pub mod priority;
pub mod capabilities;
pub mod seccomp;

use std::fs;
use std::os::unix::fs::MetadataExt;

/// Whether the process runs with privileges that its user does not have (setuid, file
/// capabilities): `AT_SECURE`, getauxval(3). Such a process must not trust its environment.
pub fn is_secure() -> bool {
    // SAFETY: getauxval reads the auxiliary vector and has no preconditions.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Returns the process's name in the kernel, at most 15 bytes (proc(5), `comm`).
pub fn name() -> String {
    let comm = fs::read("/proc/self/comm").unwrap_or_default();
    String::from_utf8_lossy(comm.trim_ascii_end()).into_owned()
}

/// Returns device and inode of the process's executable file, which identify the file even if the
/// process has changed its name. Zeros if /proc is not mounted.
pub fn executable() -> (u64, u64) {
    fs::metadata("/proc/self/exe").map_or((0, 0), |file| (file.dev(), file.ino()))
}

/// Returns the user for whom the process runs: the user who called sudo(8), or the real user
/// (getuid(2)) if the process was not started by sudo(8).
pub fn caller() -> u32 {
    // SAFETY: the call has no preconditions and always succeeds.
    let real = unsafe { libc::getuid() };
    // sudo(8) sets `SUDO_UID`. This code reads the variable only if the real user is root, because
    // other users could set any value.
    let named = environment::variables(|name| real == 0 && name == "SUDO_UID");
    let mut users = named.iter().filter_map(|(_, id)| id.to_str()?.parse().ok());
    users.next().filter(|_| !is_secure()).unwrap_or(real)
}

/// Returns the effective user (geteuid(2)); 0 is root.
pub fn effective_user() -> u32 {
    // SAFETY: the call has no preconditions and always succeeds.
    unsafe { libc::geteuid() }
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::process::Command;

    const AGAIN: &str = "FANPCAP_TELLS_ITS_CALLER";

    #[test]
    #[ignore = "needs root: only processes of root read the variable SUDO_UID"]
    fn the_caller_is_whoever_called_sudo() {
        if env::var_os(AGAIN).is_some() {
            println!("caller {}", super::caller());
            return;
        }
        let caller = |id: &str| {
            let own = "process::tests::the_caller_is_whoever_called_sudo";
            let said = Command::new(env::current_exe().unwrap())
                .args(["--exact", "--include-ignored", "--nocapture", own])
                .envs([(AGAIN, "1"), ("SUDO_UID", id)])
                .output();
            let said = String::from_utf8(said.unwrap().stdout).unwrap();
            let id = said.split_once("caller ").unwrap().1.lines().next();
            id.unwrap().to_owned()
        };
        assert_eq!(["1000", "", "x"].map(caller), ["1000", "0", "0"]);
    }
}
