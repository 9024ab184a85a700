//! The state of any process (proc(5), `/proc/PID/stat`).

use std::fs;
use std::path::Path;

/// The state of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The process's number.
    pub pid: u32,
    /// The letter of the state: `R`, `S`, `D`, `T`, `t`, `Z`, `X` or another one of proc(5).
    pub state: char,
    /// The number of the parent process.
    pub parent: u32,
    /// The number of the process group.
    pub group: u32,
    /// The CPU on which the process last ran.
    pub last_cpu: Option<u32>,
}

/// The numbers of all processes in `/proc`.
pub fn pids() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Every process in `/proc`.
pub fn all() -> Vec<Stat> {
    pids().filter_map(Stat::of).collect()
}

/// The inode of the socket to which a descriptor in `/proc/PID/fd` refers; `None` if the descriptor
/// is not a socket.
pub fn socket(descriptor: &Path) -> Option<u32> {
    let target = fs::read_link(descriptor).ok()?;
    let inode = target.to_str()?.strip_prefix("socket:[")?;
    inode.strip_suffix(']')?.parse().ok()
}

impl Stat {
    /// Reads the state of the process with this number; `None` if no process has this number.
    pub fn of(pid: u32) -> Option<Self> {
        let line = fs::read(format!("/proc/{pid}/stat")).ok()?;
        Self::parse(pid, &String::from_utf8_lossy(&line))
    }

    /// Whether the process is gone, or has ended and is not reaped yet.
    pub fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }

    /// Whether a signal or a debugger has stopped the process.
    pub fn is_stopped(&self) -> bool {
        matches!(self.state, 'T' | 't')
    }

    fn parse(pid: u32, line: &str) -> Option<Self> {
        // Field 2 is the name in parentheses. The name may contain any bytes, so the last ")" ends
        // it.
        let mut fields = line.rsplit_once(')')?.1.split_whitespace();
        Some(Self {
            pid,
            state: fields.next()?.chars().next()?,
            parent: fields.next()?.parse().ok()?,
            group: fields.next()?.parse().ok()?,
            last_cpu: fields.nth(39 - 6).and_then(|cpu| cpu.parse().ok()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_whatever_the_name_is() {
        let fields: Vec<String> = (4..=52).map(|field| field.to_string()).collect();
        let line = format!("4711 (a) b (c) S {}\n", fields.join(" "));
        let expected = Stat {
            pid: 4711,
            state: 'S',
            parent: 4,
            group: 5,
            last_cpu: Some(39),
        };
        assert_eq!(Stat::parse(4711, &line), Some(expected));
        let short = Stat::parse(1, "1 (short) S 1 2");
        assert_eq!(short.map(|stat| stat.last_cpu), Some(None));
        assert_eq!(Stat::parse(1, ""), None);
    }

    #[test]
    fn a_stopped_process_is_told() {
        let is_stopped = |line| Stat::parse(1, line).is_some_and(|stat| stat.is_stopped());
        assert!(is_stopped("4711 (T (x) S) T 1 2") && is_stopped("4711 (a) t 1 2"));
        assert!(!is_stopped("4711 (T) S 1 2") && !is_stopped(""));
    }

    #[test]
    fn this_process_is_among_all() {
        let own = Stat::of(std::process::id()).unwrap();
        assert_eq!(own.parent, std::os::unix::process::parent_id());
        assert!(!own.has_ended() && own.last_cpu.is_some());
        assert!(all().iter().any(|one| one.pid == own.pid));
    }
}
