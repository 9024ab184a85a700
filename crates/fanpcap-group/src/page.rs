//! Member pages, in which members publish what the kernel does not show to other processes. A page
//! has the member's mode with options, its steering program, and counters that only the socket's
//! owner can read.
//!
//! A page is the file `<root>/<netns>/<ifindex>.<group>/<pid>.<socket's inode>` with one record.
//! [`crate::root`] describes the root. The owner maps the file and updates its counters in place.
//! The owner holds the file's lock while it lives. So an unlocked page belongs to a dead member,
//! and any process that finds the page removes it. Only a process that may write a page can lock
//! it. So no other user can make a dead member seem alive.
//!
//! Root may give the directory of a group to a user (`given`). Then that user's processes make the
//! group's pages, and root's processes trust none of them.
//!
//! Beside the pages of a steered group is its rendezvous ([`crate::rendezvous`]), a socket named
//! after the page of the member that opened it. The rendezvous is removed with the group's last
//! page.

mod member_id;
mod content;
mod given;
mod group_dir;
#[cfg(test)]
pub(crate) mod tests;

pub use content::HeldPage;
pub(crate) use content::OtherPage;
pub use group_dir::GroupDir;
pub(crate) use group_dir::hash;
pub use member_id::MemberId;

use crate::record::{LastLook, MemberCounters, Record, Running, WORDS};
use fanpcap_config::mode::Mode;
use fanpcap_config::steering::Steering;
use fanpcap_linux::file::{
    directory::{Access, Directory},
    lock,
    shared::{self, Word},
};
use fanpcap_linux::process;
use fanpcap_linux::wait::clock;
use std::ffi::OsStr;
use std::fs::File;
use std::io;

/// How many times to try to make a page while other processes remove directories above it.
const ATTEMPTS: usize = 8;

/// A member's own page. Dropping it removes the file.
#[derive(Debug)]
pub struct Page {
    /// The group directory, kept open so that the page can be removed even if the process can open
    /// no more descriptors.
    directory: Directory,
    group_dir: GroupDir,
    name: String,
    pid: u32,
    /// Only the mapping keeps the lock; no descriptor does. When a process dies, the kernel
    /// releases its files in reverse order: descriptors first, the highest one before the others,
    /// then files that are only mapped (`kernel/exit.c`, `task_work_run()`). So the socket has left
    /// its group when the page becomes unlocked.
    words: [Word; WORDS],
}

impl Page {
    /// Makes the page of a new member of the calling process.
    ///
    /// # Errors
    /// When the group directory can't be written. The group's counters are then unknown.
    pub(crate) fn create(
        group_dir: &GroupDir,
        member: MemberId,
        content: &[u64; WORDS],
    ) -> io::Result<Self> {
        let pid = std::process::id();
        let name = group_dir::page_name(pid, member);
        let (directory, words) = make(group_dir, &name, content)?;
        GroupDir::sweep(&group_dir.root);
        Ok(Self {
            directory,
            group_dir: group_dir.clone(),
            name,
            pid,
            words,
        })
    }

    /// Opens the file again, for a member that takes over the ring. The new file description has no
    /// part in the lock.
    ///
    /// # Errors
    /// The error of openat(2).
    pub(crate) fn reopen(&self) -> io::Result<File> {
        let name = OsStr::new(&self.name);
        let file = content::open(&self.directory, name, Access::Write)?;
        file.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// The directory and the name for the group's rendezvous. Removes rendezvous sockets of former
    /// members. The caller is the group's only member, and holds its lock.
    pub(crate) fn place_for_rendezvous(&self) -> (&Directory, String) {
        group_dir::rendezvous_sockets(&self.directory).for_each(|rendezvous| {
            // Best effort: no process listens on this socket any more.
            let _ = self.directory.remove_file(&rendezvous);
        });
        (&self.directory, group_dir::rendezvous_name(&self.name))
    }

    /// The words of the page, which change in place.
    pub(crate) fn words(&self) -> &[Word; WORDS] {
        &self.words
    }
}

/// The content of the page of a new member of the calling process.
pub(crate) fn content(
    mode: Mode,
    class: u8,
    steering: Option<&Steering>,
    before: MemberCounters,
) -> [u64; WORDS] {
    new_record(mode, class, steering).encode(before)
}

/// The record on the page of a new member of the calling process.
pub(crate) fn new_record(mode: Mode, class: u8, steering: Option<&Steering>) -> Record {
    Record {
        pid: std::process::id(),
        mode,
        class,
        program: process::name(),
        executable: process::executable(),
        read_ns: 0,
        counters: MemberCounters::default(),
        taken: Some(0),
        read_taken: None,
        waits: false,
        joined_ns: clock::monotonic_ns(),
        ring_bytes: 0,
        captures_sent: false,
        shared: None,
        steals: false,
        is_founder: false,
        last_look: LastLook::Never,
        steering: steering.map(Running::new),
        no_flow: None,
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // A forked child that closes its copy of the handle must not remove its parent's page.
        if self.pid == std::process::id() {
            let _ = self.directory.remove_file(OsStr::new(&self.name));
            self.group_dir.remove_if_empty();
        }
    }
}

/// Makes a page, which is locked and written before it gets its name. Tries again if the last
/// member of the group removes the directory at the same time, or if a dead member's page has the
/// name.
fn make(
    group_dir: &GroupDir,
    name: &str,
    content: &[u64; WORDS],
) -> io::Result<(Directory, [Word; WORDS])> {
    let attempt = || {
        let directory = group_dir.make()?;
        let file = directory.create_unnamed()?;
        // This always succeeds: no other process can open a file without a name.
        lock::try_take(&file)?;
        let words = shared::map(&file, content)?;
        match directory.set_name(&file, OsStr::new(name)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                content::remove_dead(&directory, OsStr::new(name))?;
                Err(error)
            }
            named => named.map(|()| (directory, words)),
        }
    };
    let passing = [io::ErrorKind::NotFound, io::ErrorKind::AlreadyExists];
    retry(attempt, |kind| passing.contains(&kind))
}

/// Tries up to [`ATTEMPTS`] times, until there is no error or one that will not pass.
fn retry<T>(
    attempt: impl Fn() -> io::Result<T>,
    is_passing: impl Fn(io::ErrorKind) -> bool,
) -> io::Result<T> {
    for _ in 1..ATTEMPTS {
        match attempt() {
            Err(error) if is_passing(error.kind()) => {}
            result => return result,
        }
    }
    attempt()
}
