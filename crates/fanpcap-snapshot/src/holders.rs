//! Finds the processes that own packet sockets, as far as permissions allow. Searches
//! `/proc/PID/fd` for the sockets' inodes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::linux::fs::MetadataExt;
use std::path::{Path, PathBuf};

use fanpcap_install::mapped::{Build, Mapped};
use fanpcap_linux::process::stat::{self, Stat};

use crate::snapshot::{Library, Process};

/// Number of snapshots between two searches for sockets without a known process. Most of these
/// sockets belong to other users, so that a search rarely finds the process.
const PATIENCE: u32 = 10;

/// Caches which process owns which socket.
#[derive(Debug, Default)]
pub(crate) struct Holders {
    /// For each socket, the path of its owner's descriptor in /proc; `None` if a search found no
    /// owner.
    known: BTreeMap<u32, Option<PathBuf>>,
    /// Number of snapshots since the last search.
    looks: u32,
    /// The builds of the libpcaps that processes have mapped, by the files' devices and inodes.
    builds: BTreeMap<String, Build>,
}

impl Holders {
    /// Finds the owners of `sockets`, each given with its likely owner. Checks the likely owner
    /// first. Searches all processes only if a socket is new or its owner has changed, and at each
    /// [`PATIENCE`]th call for sockets without a known owner.
    pub(crate) fn find(&mut self, sockets: &BTreeMap<u32, Option<u32>>) {
        self.known.retain(|inode, descriptor| {
            let holds = |path: &PathBuf| stat::socket(path) == Some(*inode);
            sockets.contains_key(inode) && descriptor.as_ref().is_none_or(holds)
        });
        for (&inode, hint) in sockets {
            if let (Some(pid), false) = (hint, self.known.contains_key(&inode)) {
                let found = descriptors(*pid).find(|path| stat::socket(path) == Some(inode));
                if found.is_some() {
                    self.known.insert(inode, found);
                }
            }
        }
        self.looks += 1;
        let is_new = sockets.keys().any(|inode| !self.known.contains_key(inode));
        let again = self.looks >= PATIENCE && self.known.values().any(Option::is_none);
        if is_new || again {
            self.looks = 0;
            self.search_for(sockets.keys().copied());
        }
    }

    /// Searches all processes for the sockets without a known owner.
    fn search_for(&mut self, inodes: impl Iterator<Item = u32>) {
        let unknown = |inode: &u32| !matches!(self.known.get(inode), Some(Some(_)));
        let wanted: BTreeSet<u32> = inodes.filter(unknown).collect();
        let mut found = search(&wanted);
        let with_holder = |inode: u32| (inode, found.remove(&inode));
        self.known.extend(wanted.into_iter().map(with_holder));
    }

    /// The process that owns a socket, if it was found.
    pub(crate) fn process(&mut self, inode: u32) -> Option<Process> {
        let pid = pid_in(self.known.get(&inode)?.as_ref()?)?;
        self.of_pid(pid)
    }

    /// The process with this id.
    pub(crate) fn of_pid(&mut self, pid: u32) -> Option<Process> {
        let comm = fs::read(format!("/proc/{pid}/comm")).ok()?;
        Some(Process {
            library: self.library(pid),
            ..process(pid, name(&comm))
        })
    }

    /// Our library in a process. Reads each library's file once.
    fn library(&mut self, pid: u32) -> Option<Library> {
        Mapped::of(pid).into_iter().find_map(|mapped| {
            if !self.builds.contains_key(&mapped.file) {
                self.builds.insert(mapped.file.clone(), mapped.build()?);
            }
            match self.builds.get(&mapped.file)? {
                Build::Other => None,
                Build::Ours(version) => Some(Library {
                    path: mapped.path,
                    version: version.clone(),
                    is_replaced: mapped.is_replaced,
                }),
            }
        })
    }
}

/// The inode of this process's PID namespace.
pub(crate) fn pid_namespace() -> Option<u64> {
    fs::metadata("/proc/self/ns/pid").ok().map(|it| it.st_ino())
}

/// A process name from /proc, which may contain any bytes.
fn name(comm: &[u8]) -> String {
    String::from_utf8_lossy(comm).trim_end().to_owned()
}

/// A process with its CPUs. Reads `status` as bytes, because the line `Name` may not be UTF-8.
fn process(pid: u32, program: String) -> Process {
    let status = fs::read(format!("/proc/{pid}/status")).unwrap_or_default();
    let stat = Stat::of(pid);
    Process {
        pid: Some(pid),
        program,
        affinity: allowed(&String::from_utf8_lossy(&status)),
        last_cpu: stat.and_then(|stat| stat.last_cpu),
        is_stopped: stat.is_some_and(|stat| stat.is_stopped()),
        library: None,
    }
}

/// The first descriptor found for each socket.
fn search(inodes: &BTreeSet<u32>) -> BTreeMap<u32, PathBuf> {
    let mut found = BTreeMap::new();
    for pid in stat::pids() {
        for path in descriptors(pid) {
            if let Some(inode) = stat::socket(&path).filter(|inode| inodes.contains(inode)) {
                found.entry(inode).or_insert(path);
            }
        }
        if found.len() == inodes.len() {
            break;
        }
    }
    found
}

/// The descriptors of a process, as far as permissions allow.
fn descriptors(pid: u32) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter();
    entries.flatten().flatten().map(|entry| entry.path())
}

/// The process ID in `/proc/PID/fd/N`.
fn pid_in(descriptor: &Path) -> Option<u32> {
    descriptor.iter().nth(2)?.to_str()?.parse().ok()
}

/// `Cpus_allowed_list` of `/proc/PID/status`.
fn allowed(status: &str) -> Option<String> {
    let mut lines = status.lines();
    let list = lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    Some(list.trim().to_owned())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use fanpcap_config::mode::Mode;
    use fanpcap_group::record::{LastLook, MemberCounters, Record};
    use fanpcap_testkit::await_for::{LIMIT, await_for};
    use std::net::UdpSocket;
    use std::os::fd::AsRawFd;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    pub(crate) fn inode(socket: &UdpSocket) -> u32 {
        let descriptor = format!("/proc/self/fd/{}", socket.as_raw_fd());
        stat::socket(descriptor.as_ref()).unwrap()
    }

    pub(crate) fn page(pid: u32) -> Record {
        Record {
            pid,
            mode: Mode::parse("hash").unwrap(),
            class: 0,
            program: "member".to_owned(),
            executable: (0, 0),
            read_ns: 0,
            counters: MemberCounters::default(),
            taken: None,
            read_taken: None,
            waits: false,
            joined_ns: 0,
            ring_bytes: 0,
            captures_sent: false,
            shared: None,
            steals: false,
            is_founder: false,
            last_look: LastLook::Unknown,
            steering: None,
            no_flow: None,
        }
    }

    #[test]
    fn names_may_be_any_bytes() {
        assert_eq!(name(b"t\xffp\n"), "t\u{fffd}p");
        // The kernel writes the process's name into `status`, too. The CPUs in `status` must be
        // found even if the name is not UTF-8.
        let scratch = fanpcap_testkit::Scratch::new().unwrap();
        let odd: &std::ffi::OsStr = std::os::unix::ffi::OsStrExt::from_bytes(b"s\xffeep");
        let program = scratch.file("x").with_file_name(odd);
        fs::copy("/bin/sleep", &program).unwrap();
        let mut child = Command::new(&program)
            .arg0("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let seen = process(child.id(), String::new());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(seen.affinity.is_some() && seen.last_cpu.is_some());
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
        let inode = inode(&socket);
        let mut holders = Holders::default();
        holders.find(&[(inode, None), (0, None)].into());
        let holder = holders.process(inode).unwrap();
        assert_eq!(holder.pid, Some(std::process::id()));
        assert!(holders.process(0).is_none());
        drop(socket);
        // Children that other tests start have a copy of the socket until execve(2), so the owner
        // may remain for a moment.
        let is_gone = || {
            holders.find(&[(inode, None)].into());
            Ok(holders.process(inode).is_none().then_some(()))
        };
        await_for("all copies of the socket to be closed", LIMIT, is_gone).unwrap();
    }
}
