//! The processes behind packet sockets, by the sockets' inodes in `/proc/PID/fd`, as far as these may be read.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::Process;

/// Looks between two searches for sockets that no process seems to have: they are mostly those of other users.
const PATIENCE: u32 = 10;

/// Who has which socket, remembered.
#[derive(Debug, Default)]
pub(crate) struct Holders {
    /// The descriptor by which a process has it; none when a search did not find any.
    known: BTreeMap<u32, Option<PathBuf>>,
    /// Looks since the last search.
    looks: u32,
}

impl Holders {
    /// Finds the holders of these sockets. All processes are searched only when one is new or has moved.
    pub(crate) fn find(&mut self, inodes: &BTreeSet<u32>) {
        self.known.retain(|inode, descriptor| {
            let holds = |path: &PathBuf| socket_behind(path) == Some(*inode);
            inodes.contains(inode) && descriptor.as_ref().is_none_or(holds)
        });
        self.looks += 1;
        let is_new = inodes.iter().any(|inode| !self.known.contains_key(inode));
        let again = self.looks >= PATIENCE && self.known.values().any(Option::is_none);
        if is_new || again {
            self.looks = 0;
            let mut found = search(inodes);
            self.known = inodes
                .iter()
                .map(|&inode| (inode, found.remove(&inode)))
                .collect();
        }
    }

    /// The process that has a socket, if it was found.
    pub(crate) fn process(&self, inode: u32) -> Option<Process> {
        let pid = pid_in(self.known.get(&inode)?.as_ref()?)?;
        let comm = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        Some(process(pid, comm.trim_end().to_owned()))
    }
}

/// A process with the CPUs that it runs on.
pub(crate) fn process(pid: u32, program: String) -> Process {
    let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).ok();
    Process {
        pid,
        program,
        affinity: read("status").and_then(|status| allowed(&status)),
        last_cpu: read("stat").and_then(|stat| last_cpu(&stat)),
    }
}

/// The descriptors of these sockets, the first that is found of each.
fn search(inodes: &BTreeSet<u32>) -> BTreeMap<u32, PathBuf> {
    let mut found = BTreeMap::new();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    for process in processes.filter(|process| pid_of(&process.file_name()).is_some()) {
        let descriptors = fs::read_dir(process.path().join("fd"));
        for descriptor in descriptors.into_iter().flatten().flatten() {
            let path = descriptor.path();
            if let Some(inode) = socket_behind(&path).filter(|inode| inodes.contains(inode)) {
                found.entry(inode).or_insert(path);
            }
        }
        if found.len() == inodes.len() {
            break;
        }
    }
    found
}

/// The inode of the socket that a descriptor in /proc stands for.
fn socket_behind(descriptor: &Path) -> Option<u32> {
    let target = fs::read_link(descriptor).ok()?;
    let inode = target.to_str()?.strip_prefix("socket:[")?;
    inode.strip_suffix(']')?.parse().ok()
}

/// The process in `/proc/PID/fd/N`.
fn pid_in(descriptor: &Path) -> Option<u32> {
    pid_of(descriptor.iter().nth(2)?)
}

fn pid_of(name: &std::ffi::OsStr) -> Option<u32> {
    name.to_str()?.parse().ok()
}

/// `Cpus_allowed_list` of `/proc/PID/status`.
fn allowed(status: &str) -> Option<String> {
    let mut lines = status.lines();
    let list = lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    Some(list.trim().to_owned())
}

/// Field 39 of `/proc/PID/stat` (proc(5), `processor`). Field 2, the name, may hold anything.
fn last_cpu(stat: &str) -> Option<u32> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_whitespace().nth(39 - 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsRawFd;

    #[test]
    fn the_cpu_is_field_39_whatever_the_name_is() {
        let fields: Vec<String> = (3..=52).map(|field| field.to_string()).collect();
        let stat = format!("4711 (a) b (c) {}\n", fields.join(" "));
        assert_eq!(last_cpu(&stat), Some(39));
        assert_eq!(last_cpu("4711 (short) S 1"), None);
        assert_eq!(last_cpu(""), None);
    }

    #[test]
    fn the_cpus_of_this_process_are_known() {
        let own = process(std::process::id(), "test".to_owned());
        assert!(
            own.affinity
                .is_some_and(|list| list.starts_with(|c: char| c.is_ascii_digit()))
        );
        assert!(own.last_cpu.is_some());
    }

    #[test]
    fn a_socket_is_found_while_somebody_has_it() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let descriptor = format!("/proc/self/fd/{}", socket.as_raw_fd());
        let inode = socket_behind(descriptor.as_ref()).unwrap();
        let mut holders = Holders::default();
        holders.find(&[inode, 0].into());
        let holder = holders.process(inode).unwrap();
        assert_eq!(holder.pid, std::process::id());
        assert!(holders.process(0).is_none());
        drop(socket);
        holders.find(&[inode].into());
        assert!(holders.process(inode).is_none());
    }
}
