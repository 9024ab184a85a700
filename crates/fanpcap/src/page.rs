//! The members' pages: what each member of a direct group tells the others, because the kernel does
//! not: mode with options, program, and counters that only their owner may read.
//!
//! A page is a file `/run/fanpcap/<netns>/<ifindex>.<group>/<pid>.<n>` of one record. Its owner holds the
//! file's lock as long as it lives, so whoever finds a page unlocked knows it stale and removes it.

use crate::mode::Mode;
use fanpcap_linux::{lock, process};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Where the pages of all network namespaces are.
const ROOT: &str = "/run/fanpcap";

/// First bytes of a page; the digit is the layout's version.
const MAGIC: [u8; 8] = *b"FANPCAP1";

/// Bytes of a page: magic, pid, mode, flags, program, received, dropped, time, time again.
const LEN: usize = 64;

/// Bytes of a program's name, padded with zeros (the kernel's TASK_COMM_LEN).
const NAME_LEN: usize = 16;

/// The most pages that are read of one group: the kernel's limit of members.
const PAGES_MAX: usize = 256;

/// The most directories that are looked through, on each level, for pages left behind.
const SHELVES_MAX: usize = 256;

/// Packets that a member was given, and lost, since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets that passed the member's filter, dropped ones included.
    pub received: u64,
    /// Of these, packets lost because the member's ring was full.
    pub dropped: u64,
}

/// What a page says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Process that opened the member.
    pub pid: u32,
    /// The group's mode, with options.
    pub mode: Mode,
    /// Name of the program.
    pub program: String,
    /// The member's counters.
    pub counters: Counters,
    /// When they were read, nanoseconds of `CLOCK_MONOTONIC`.
    pub read_ns: u64,
}

impl Record {
    fn encode(&self) -> [u8; LEN] {
        let mut name = [0; NAME_LEN];
        for (to, from) in name.iter_mut().zip(self.program.bytes()) {
            *to = from;
        }
        let (kind, flags) = (self.mode.kind.kernel_type(), self.mode.kernel_flags());
        let mut bytes = [0; LEN];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&self.pid.to_le_bytes());
        bytes[12..14].copy_from_slice(&u16::from(kind).to_le_bytes());
        bytes[14..16].copy_from_slice(&flags.to_le_bytes());
        bytes[16..32].copy_from_slice(&name);
        let words = [
            self.counters.received,
            self.counters.dropped,
            self.read_ns,
            self.read_ns,
        ];
        for (to, word) in bytes[32..64].chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// None for bytes that are no page, or one caught while it was being written.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let half = |at: usize| Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
        if bytes.get(..8)? != MAGIC || word(48)? != word(56)? {
            return None;
        }
        let name = bytes.get(16..32)?.split(|&byte| byte == 0).next()?;
        Some(Self {
            pid: u32::from_le_bytes(bytes.get(8..12)?.try_into().ok()?),
            mode: Mode::from_kernel(u8::try_from(half(12)?).ok()?, half(14)?)?,
            program: String::from_utf8_lossy(name).into_owned(),
            counters: Counters {
                received: word(32)?,
                dropped: word(40)?,
            },
            read_ns: word(48)?,
        })
    }
}

/// The place of a group's pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shelf(PathBuf);

impl Shelf {
    /// The shelf of a group on an interface of the calling thread's network namespace.
    pub fn of(ifindex: u32, group: u16) -> io::Result<Self> {
        let netns = fs::metadata("/proc/thread-self/ns/net")?.ino();
        Ok(Self(
            Path::new(ROOT).join(format!("{netns}/{ifindex}.{group}")),
        ))
    }

    /// The pages of the members that live. Stale ones are removed, if the process may.
    pub fn records(&self) -> Vec<Record> {
        let Ok(entries) = fs::read_dir(&self.0) else {
            return Vec::new();
        };
        // A page that is still being made has a name that begins with a dot.
        let ready = entries
            .flatten()
            .filter(|entry| !entry.file_name().as_bytes().starts_with(b"."));
        ready
            .filter_map(|entry| read(&entry.path()))
            .take(PAGES_MAX)
            .collect()
    }
}

/// Reads the page of a living member.
fn read(path: &Path) -> Option<Record> {
    let file = File::open(path).ok()?;
    if lock::try_shared(&file).ok()? {
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
    /// Makes the page of a new member of the calling process.
    ///
    /// # Errors
    /// The directory can't be written: counters of the group are then unknown to all.
    pub fn create(shelf: &Shelf, mode: Mode) -> io::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let pid = std::process::id();
        let name = format!("{pid}.{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let record = Record {
            pid,
            mode,
            program: process::name(),
            counters: Counters::default(),
            read_ns: process::monotonic_ns(),
        };
        let path = shelf.0.join(&name);
        let making = shelf.0.join(format!(".{name}"));
        let page = Self {
            file: create(shelf, &making)?,
            path,
            record,
        };
        lock::try_exclusive(&page.file)?;
        page.write()?;
        fs::rename(&making, &page.path)?;
        sweep(Path::new(ROOT));
        Ok(page)
    }

    /// Publishes the member's counters.
    pub fn publish(&mut self, counters: Counters) {
        self.record.counters = counters;
        self.record.read_ns = process::monotonic_ns();
        // A full /run leaves the old numbers, whose age the reader sees.
        let _ = self.write();
    }

    fn write(&self) -> io::Result<()> {
        self.file.write_all_at(&self.record.encode(), 0)
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // A forked child that closes its copy of the handle must not remove its parent's page.
        if self.record.pid == std::process::id() {
            let _ = fs::remove_file(&self.path);
            // Directories go with their last page: rmdir refuses the others.
            let _ = self
                .path
                .ancestors()
                .skip(1)
                .take(2)
                .try_for_each(fs::remove_dir);
        }
    }
}

/// Removes what members left behind that died, or that had dropped the privilege to remove it.
fn sweep(root: &Path) {
    let within = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten();
    for netns in within(root).take(SHELVES_MAX).map(|entry| entry.path()) {
        for shelf in within(&netns).take(SHELVES_MAX).map(|entry| entry.path()) {
            if Shelf(shelf.clone()).records().is_empty() {
                let _ = fs::remove_dir(shelf);
            }
        }
        let _ = fs::remove_dir(netns);
    }
}

/// Opens a new page file. The last member to leave removes the shelf, perhaps just now: try again.
fn create(shelf: &Shelf, path: &Path) -> io::Result<File> {
    let mut attempts = 0;
    loop {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(&shelf.0)?;
        let opened = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o644)
            .open(path);
        attempts += 1;
        match opened {
            Err(error) if error.kind() == io::ErrorKind::NotFound && attempts < 8 => {}
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        Record {
            pid: 4711,
            mode: Mode::parse("hash+defrag").unwrap(),
            program: "tcpdump".to_owned(),
            counters: Counters {
                received: 10,
                dropped: 3,
            },
            read_ns: 77,
        }
    }

    #[test]
    fn records_survive_the_page() {
        assert_eq!(Record::decode(&record().encode()), Some(record()));
    }

    #[test]
    fn foreign_bytes_are_no_record() {
        let whole = record().encode();
        for len in 0..LEN {
            assert_eq!(Record::decode(&whole[..len]), None);
        }
        let mut torn = whole;
        torn[48] ^= 1;
        assert_eq!(Record::decode(&torn), None);
    }

    #[test]
    fn a_page_lives_as_long_as_its_member() {
        let root = std::env::temp_dir().join(format!("fanpcap-page-{}", std::process::id()));
        let shelf = Shelf(root.join("4/1.7"));
        let mut page = Page::create(&shelf, record().mode).unwrap();
        page.publish(Counters {
            received: 5,
            dropped: 1,
        });
        let records = shelf.records();
        assert_eq!(records.len(), 1);
        assert_eq!(
            records[0].counters,
            Counters {
                received: 5,
                dropped: 1
            }
        );
        assert_eq!(records[0].pid, std::process::id());
        drop(page);
        assert!(shelf.records().is_empty() && !root.join("4").exists());
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn what_dead_members_leave_is_swept_and_the_living_stay() {
        let root = std::env::temp_dir().join(format!("fanpcap-sweep-{}", std::process::id()));
        let (dead, living) = (Shelf(root.join("4/1.7")), Shelf(root.join("5/1.7")));
        fs::create_dir_all(&dead.0).unwrap();
        fs::write(dead.0.join("1.0"), record().encode()).unwrap();
        let page = Page::create(&living, record().mode).unwrap();
        sweep(&root);
        assert!(!root.join("4").exists() && page.path.exists());
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn a_page_without_its_owner_is_removed() {
        let root = std::env::temp_dir().join(format!("fanpcap-stale-{}", std::process::id()));
        let shelf = Shelf(root.clone());
        fs::create_dir_all(&root).unwrap();
        fs::write(root.join("1.0"), record().encode()).unwrap();
        assert!(shelf.records().is_empty() && !root.join("1.0").exists());
        fs::remove_dir_all(root).unwrap();
    }
}
