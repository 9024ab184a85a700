//! The members' pages: what each member of a direct group tells the others, because the kernel does
//! not: mode with options, program, and counters that only their owner may read.
//!
//! A page is a file `<root>/<netns>/<ifindex>.<group>/<pid>.<socket's inode>` of one record, of
//! which the owner has mapped the counters; [`crate::root`] tells where the root is. The owner
//! holds the file's lock as long as it lives, so whoever finds a page unlocked knows that its
//! member is dead, and removes the page. Only who may write a page can lock it.

mod member_id;
mod content;
mod group_dir;
#[cfg(test)]
mod tests;

pub use content::HeldPage;
pub(crate) use content::OtherPage;
pub use group_dir::GroupDir;
pub use member_id::MemberId;

use crate::record::{Counters, LastLook, Record, Running, WORDS};
use fanpcap_config::mode::Mode;
use fanpcap_config::steering::Steering;
use fanpcap_linux::file::{
    directory::Directory,
    lock,
    shared::{self, Word},
};
use fanpcap_linux::process;
use fanpcap_linux::wait::clock;
use std::ffi::OsStr;
use std::io;

/// How often a page's making is tried while others remove directories under it.
const ATTEMPTS: usize = 8;

/// A member's own page, removed when the member leaves.
#[derive(Debug)]
pub struct Page {
    /// Where it is: it can be removed also when no descriptor is left.
    directory: Directory,
    group_dir: GroupDir,
    name: String,
    pid: u32,
    /// The mapping alone has the lock, no descriptor. The kernel releases the files of a dead
    /// process in reverse: those of its descriptors, the highest first, then those that were only
    /// mapped (`kernel/exit.c`, `task_work_run()`). So the socket has left its group when the page
    /// is found unlocked.
    words: [Word; WORDS],
}

impl Page {
    /// Makes the page of a new member of the calling process.
    ///
    /// # Errors
    /// The directory can't be written: counters of the group are then unknown to all.
    pub(crate) fn create(
        group_dir: &GroupDir,
        member: MemberId,
        content: &[u64; WORDS],
    ) -> io::Result<Self> {
        let pid = std::process::id();
        let name = group_dir::page_name(pid, member);
        let (directory, words) = make(group_dir, &name, content)?;
        group_dir.sweep();
        Ok(Self {
            directory,
            group_dir: group_dir.clone(),
            name,
            pid,
            words,
        })
    }

    /// Its words, which change in place.
    pub(crate) fn words(&self) -> &[Word; WORDS] {
        &self.words
    }
}

/// What the page of a new member of the calling process says.
pub(crate) fn content(mode: Mode, steering: Option<&Steering>, before: Counters) -> [u64; WORDS] {
    let record = Record {
        pid: std::process::id(),
        mode,
        program: process::name(),
        executable: process::executable(),
        read_ns: 0,
        counters: Counters::default(),
        taken: Some(0),
        read_taken: None,
        waits: false,
        joined_ns: clock::monotonic_ns(),
        last_look: LastLook::Never,
        steering: steering.map(Running::new),
    };
    record.encode(before)
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

/// Makes a page, locked and written before it has its name. The last member to leave removes the
/// directory, perhaps just now, and a dead member may have had the name: then it is tried again.
fn make(
    group_dir: &GroupDir,
    name: &str,
    content: &[u64; WORDS],
) -> io::Result<(Directory, [Word; WORDS])> {
    let attempt = || {
        let directory = group_dir.make()?;
        let file = directory.create_unnamed()?;
        // Nobody else can have the lock of a file that nobody else can open.
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
    for _ in 1..ATTEMPTS {
        match attempt() {
            Err(error) if is_passing(error.kind()) => {}
            result => return result,
        }
    }
    attempt()
}

fn is_passing(kind: io::ErrorKind) -> bool {
    [io::ErrorKind::NotFound, io::ErrorKind::AlreadyExists].contains(&kind)
}
