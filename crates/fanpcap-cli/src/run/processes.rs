//! The processes of this machine: parents, process groups, and which have ended.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

/// The time from SIGTERM to SIGKILL.
pub(crate) const GRACE: Duration = Duration::from_secs(3);

/// A process, from /proc/PID/stat (proc(5)).
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) parent: u32,
    pub(crate) group: u32,
    pub(crate) has_ended: bool,
}

/// These groups and those of all that their members have started, as far as their parents live.
pub(crate) fn with_descendants(groups: &BTreeSet<u32>) -> BTreeSet<u32> {
    let processes = all();
    let mut groups = groups.clone();
    loop {
        let members = processes.iter().filter(|one| groups.contains(&one.group));
        let members: BTreeSet<u32> = members.map(|one| one.pid).collect();
        let children = processes.iter().filter(|one| members.contains(&one.parent));
        let before = groups.len();
        groups.extend(children.map(|one| one.group));
        if groups.len() == before {
            return groups;
        }
    }
}

/// Every process in /proc.
pub(crate) fn all() -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter_map(process).collect()
}

fn process(pid: u32) -> Option<Process> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    // The name before may have any characters.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut words = rest.split_whitespace();
    let has_ended = ["Z", "X"].contains(&words.next()?);
    Some(Process {
        pid,
        parent: words.next()?.parse().ok()?,
        group: words.next()?.parse().ok()?,
        has_ended,
    })
}
