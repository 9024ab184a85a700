//! The capabilities of the calling thread (capabilities(7)).

use std::io;

/// A capability, by its number in linux/capability.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capability(u8);

/// Changes the user and the group of files.
pub const CHOWN: Capability = Capability(0);
/// Changes devices, and attaches XDP programs.
pub const NET_ADMIN: Capability = Capability(12);
/// Opens packet sockets.
pub const NET_RAW: Capability = Capability(13);
/// Locks memory above `RLIMIT_MEMLOCK`.
pub const IPC_LOCK: Capability = Capability(14);
/// Many things; also what [`BPF`] allows.
pub const SYS_ADMIN: Capability = Capability(21);
/// Makes BPF maps and loads BPF programs (Linux 5.8).
pub const BPF: Capability = Capability(39);

/// Drops all capabilities of the calling thread but these, of which it keeps those that it has.
/// Threads that it starts from now on have the same ones. Without execve(2), no thread gets others.
///
/// # Errors
/// The errors of capget(2) and capset(2).
pub fn keep_only(kept: &[Capability]) -> io::Result<()> {
    let mut sets = read()?;
    for (number, [effective, permitted, inheritable]) in sets.iter_mut().enumerate() {
        let mask = mask(kept, number);
        *effective &= mask;
        *permitted &= mask;
        *inheritable = 0;
    }
    let header = HEADER;
    // SAFETY: the kernel reads the two structs of this version, which live through the call.
    check(unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()) })
}

/// Whether the calling thread may use a capability. False if this is not known.
pub fn has(capability: Capability) -> bool {
    let is_in = |(number, set): (usize, &[u32; 3])| set[0] & mask(&[capability], number) != 0;
    read().is_ok_and(|sets| sets.iter().enumerate().any(is_in))
}

/// The bits of the word `number` of a set.
fn mask(all: &[Capability], number: usize) -> u32 {
    let here = all.iter().filter(|it| usize::from(it.0 / 32) == number);
    here.fold(0, |mask, it| mask | (1 << (it.0 % 32)))
}

/// `struct __user_cap_data_struct` twice, for the capabilities below 32 and the others: effective,
/// permitted, inheritable.
type Sets = [[u32; 3]; 2];

/// `struct __user_cap_header_struct`: `_LINUX_CAPABILITY_VERSION_3`, and the calling thread.
const HEADER: [u32; 2] = [0x2008_0522, 0];

fn read() -> io::Result<Sets> {
    let (mut header, mut sets) = (HEADER, Sets::default());
    // SAFETY: the kernel writes the two structs of this version, and may write the version.
    check(unsafe { libc::syscall(libc::SYS_capget, header.as_mut_ptr(), sets.as_mut_ptr()) })?;
    Ok(sets)
}

fn check(result: libc::c_long) -> io::Result<()> {
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, thread};

    /// The sets of the calling thread by proc(5).
    fn sets() -> Vec<u64> {
        let status = fs::read_to_string("/proc/thread-self/status").unwrap();
        let set = |name: &str| {
            let line = status.lines().find_map(|it| it.strip_prefix(name)).unwrap();
            u64::from_str_radix(line.trim(), 16).unwrap()
        };
        ["CapEff:", "CapPrm:", "CapInh:"].map(set).to_vec()
    }

    #[test]
    fn a_thread_keeps_some_capabilities_and_passes_them_on() {
        let all = sets();
        let kept = thread::spawn(|| {
            keep_only(&[NET_RAW, BPF]).unwrap();
            let passed_on = thread::spawn(|| (sets(), [NET_RAW, BPF, NET_ADMIN].map(has)));
            (sets(), passed_on.join().unwrap())
        });
        let (own, (passed_on, has_them)) = kept.join().unwrap();
        let mask = (1 << 13) | (1 << 39);
        assert_eq!(own, [all[0] & mask, all[1] & mask, 0]);
        assert_eq!(passed_on, own);
        let is_in = |number: u32| (all[0] >> number) & 1 == 1;
        assert_eq!(has_them, [is_in(13), is_in(39), false]);
        assert_eq!(sets(), all, "another thread keeps its own");
    }
}
