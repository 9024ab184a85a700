//! The members' pages: what each member of a direct group tells the others, because the kernel does
//! not: mode with options, program, and counters that only their owner may read.
//!
//! A page is a file `/run/fanpcap/<netns>/<ifindex>.<group>/<pid>.<socket's inode>` of one record. Its owner holds
//! the file's lock as long as it lives, so whoever finds a page unlocked knows it stale and removes it.

use crate::mode::Mode;
use crate::record::{Counters, LEN, Record};
use fanpcap_linux::{file, netns, process};
use std::fs::{self, DirEntry, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};

/// Where the pages of all network namespaces are.
const ROOT: &str = "/run/fanpcap";

/// The most pages that are read of one group: the kernel's limit of members.
const PAGES_MAX: usize = 256;

/// The most directories that are looked through, on each level, for pages left behind.
const SHELVES_MAX: usize = 256;

/// How often a page's making is tried while others remove directories under it.
const ATTEMPTS: usize = 8;

/// The place of a group's pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shelf(PathBuf);

impl Shelf {
    /// The shelf of a group on an interface of the calling thread's network namespace.
    pub fn of(ifindex: u32, group: u16) -> io::Result<Self> {
        let netns = netns::inode()?;
        let shelf = format!("{netns}/{ifindex}.{group}");
        Ok(Self(Path::new(ROOT).join(shelf)))
    }

    /// The pages of the members that live. Stale ones are removed, if the process may.
    pub fn records(&self) -> Vec<Record> {
        self.pages().into_iter().map(|(_, record)| record).collect()
    }

    /// The same, each with its socket's inode.
    pub fn pages(&self) -> Vec<(u64, Record)> {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        let read = entries.filter_map(|entry| {
            let name = entry.file_name();
            let (_, inode) = name.to_str()?.split_once('.')?;
            Some((inode.parse().ok()?, read(&entry.path())?))
        });
        read.take(PAGES_MAX).collect()
    }
}

/// Reads the page of a living member.
fn read(path: &Path) -> Option<Record> {
    let file = file::open_regular(path).ok()??;
    if file::try_lock_shared(&file).ok()? {
        // Best effort: it may be another user's.
        let _ = fs::remove_file(path);
        return None;
    }
    let mut bytes = [0; LEN];
    (0..3).find_map(|_| {
        let len = file.read_at(&mut bytes, 0).ok()?;
        Record::decode(bytes.get(..len)?)
    })
}

/// A member's own page, removed when the member leaves.
#[derive(Debug)]
pub struct Page {
    file: File,
    path: PathBuf,
    record: Record,
}

impl Page {
    /// Makes the page of a new member of the calling process, whose socket has this inode.
    ///
    /// # Errors
    /// The directory can't be written: counters of the group are then unknown to all.
    pub fn create(shelf: &Shelf, mode: Mode, inode: u64) -> io::Result<Self> {
        let pid = std::process::id();
        let record = Record {
            pid,
            mode,
            program: process::name(),
            executable: process::executable(),
            read_ns: 0,
            counters: Counters::default(),
            taken: None,
        };
        let path = shelf.0.join(format!("{pid}.{inode}"));
        let file = make(shelf, &path, &record)?;
        sweep(Path::new(ROOT));
        Ok(Self { file, path, record })
    }

    /// Publishes the member's counters, just read.
    pub fn publish(&mut self, counters: Counters) {
        self.record.counters = counters;
        self.record.read_ns = process::monotonic_ns();
        // A full /run leaves the old numbers, whose age the reader sees.
        let _ = self.file.write_all_at(&self.record.encode(), 0);
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // A forked child that closes its copy of the handle must not remove its parent's page.
        if self.record.pid == std::process::id() {
            let _ = fs::remove_file(&self.path);
            // Directories go with their last page: rmdir refuses the others.
            let mut above = self.path.ancestors().skip(1).take(2);
            let _ = above.try_for_each(fs::remove_dir);
        }
    }
}

/// Makes a page file, locked and written before it has its name. The last member to leave removes the
/// shelf, perhaps just now, and a dead member may have had the name: then it is tried again.
fn make(shelf: &Shelf, path: &Path, record: &Record) -> io::Result<File> {
    let attempt = || {
        let mut directories = fs::DirBuilder::new();
        directories.recursive(true).mode(0o755).create(&shelf.0)?;
        let file = file::create_unnamed(&shelf.0)?;
        // Nobody else can have the lock of a file that nobody else can open.
        file::try_lock_exclusive(&file)?;
        file.write_all_at(&record.encode(), 0)?;
        file::set_name(&file, path).map(|()| file)
    };
    for _ in 1..ATTEMPTS {
        match attempt() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => fs::remove_file(path)?,
            result => return result,
        }
    }
    attempt()
}

/// Removes what members left behind that died, or that had dropped the privilege to remove it.
fn sweep(root: &Path) {
    for netns in directories(root) {
        for shelf in directories(&netns) {
            if Shelf(shelf.clone()).records().is_empty() {
                let _ = fs::remove_dir(shelf);
            }
        }
        let _ = fs::remove_dir(netns);
    }
}

fn directories(parent: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let is_directory = |entry: &DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let found = entries.filter(is_directory).map(|entry| entry.path());
    found.take(SHELVES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::record;

    /// A directory in the place of ROOT.
    struct Root(PathBuf);

    impl Root {
        fn new(name: &str) -> Self {
            let name = format!("fanpcap-{name}-{}", std::process::id());
            Self(std::env::temp_dir().join(name))
        }

        fn shelf(&self, name: &str) -> Shelf {
            Shelf(self.0.join(name))
        }
    }

    impl Drop for Root {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_page_lives_as_long_as_its_member() {
        let root = Root::new("page");
        let shelf = root.shelf("4/1.7");
        let mut page = Page::create(&shelf, record().mode, 1).unwrap();
        assert_eq!(shelf.records()[0].read_ns, 0);
        page.publish(record().counters);
        let records = shelf.records();
        assert_eq!(records.len(), 1);
        assert_eq!(records[0].counters, record().counters);
        assert!(records[0].read_ns > 0 && records[0].pid == std::process::id());
        drop(page);
        assert!(shelf.records().is_empty() && !root.0.join("4").exists());
    }

    #[test]
    fn a_dead_members_name_is_taken_over() {
        let root = Root::new("name");
        let shelf = root.shelf("4/1.7");
        fs::create_dir_all(&shelf.0).unwrap();
        let path = shelf.0.join(format!("{}.1", std::process::id()));
        fs::write(&path, "left behind").unwrap();
        let _page = Page::create(&shelf, record().mode, 1).unwrap();
        assert_eq!(shelf.records().len(), 1);
    }

    #[test]
    fn what_dead_members_leave_is_swept_and_the_living_stay() {
        let root = Root::new("sweep");
        let (dead, living) = (root.shelf("4/1.7"), root.shelf("5/1.7"));
        fs::create_dir_all(&dead.0).unwrap();
        fs::write(dead.0.join("1.0"), record().encode()).unwrap();
        let page = Page::create(&living, record().mode, 1).unwrap();
        sweep(&root.0);
        assert!(!root.0.join("4").exists() && page.path.exists());
    }

    #[test]
    fn links_and_pipes_are_no_pages() {
        let root = Root::new("links");
        let shelf = root.shelf("4/1.7");
        fs::create_dir_all(&shelf.0).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", shelf.0.join("1.0")).unwrap();
        let pipe = shelf.0.join("1.1");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        assert!(shelf.records().is_empty() && pipe.exists());
    }
}
