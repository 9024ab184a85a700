//! The members' pages: what each member of a direct group tells the others, because the kernel does
//! not: mode with options, program, and counters that only their owner may read.
//!
//! A page is a file `<root>/<netns>/<ifindex>.<group>/<pid>.<socket's inode>` of one record, of which the owner has
//! mapped the counters; [`crate::root`] tells where the root is. The owner holds the file's lock as long as it lives, so whoever finds a page unlocked
//! knows it stale and removes it.

use crate::mode::Mode;
use crate::record::{Counters, LastLook, Record, Running, SET, WORDS, at, title_words};
use crate::root;
use crate::steering::Steering;
use fanpcap_linux::shared::{self, Word};
use fanpcap_linux::{file, netns, process};
use std::fs::{self, DirEntry, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};

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
    /// The shelf of a group on an interface of the calling thread's network namespace, to read pages.
    ///
    /// # Errors
    /// Where there are no pages: see [`crate::root::root`].
    pub fn of(ifindex: u32, group: u16) -> io::Result<Self> {
        Self::below(&root::root()?, ifindex, group)
    }

    /// The same for a member of the group.
    pub(crate) fn for_member(ifindex: u32, group: u16) -> io::Result<Self> {
        Self::below(&root::make_root()?, ifindex, group)
    }

    fn below(root: &Path, ifindex: u32, group: u16) -> io::Result<Self> {
        let netns = netns::inode()?;
        Ok(Self(root.join(format!("{netns}/{ifindex}.{group}"))))
    }

    /// The directory that it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Where the page is of the member that the process `pid` opened with the socket of this inode.
    pub fn page(&self, pid: u32, inode: u64) -> PathBuf {
        self.0.join(format!("{pid}.{inode}"))
    }

    /// The directory of all pages.
    fn root(&self) -> Option<&Path> {
        self.0.ancestors().nth(2)
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
    record(&file)
}

/// Bytes of a page.
const LEN: usize = WORDS * 8;

/// How often a page is read at most, to find it the same twice.
const READINGS: usize = 4;

/// What a page says. Its words change one by one, so it is read until nothing but what was taken has changed
/// meanwhile. One that changes all the time may be told with the counters of two readings, each whole.
fn record(file: &File) -> Option<Record> {
    let mut words = words(file)?;
    for _ in 1..READINGS {
        let again = self::words(file)?;
        let same = |at: usize| words[at] == again[at] || at == crate::record::at::TAKEN;
        let is_steady = (0..WORDS).all(same);
        words = again;
        if is_steady {
            break;
        }
    }
    Record::decode(&words)
}

fn words(file: &File) -> Option<[u64; WORDS]> {
    let mut bytes = [0; LEN];
    file.read_exact_at(&mut bytes, 0).ok()?;
    let mut words = [0; WORDS];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_ne_bytes(bytes.try_into().ok()?);
    }
    Some(words)
}

/// The page of a member that may die: held open, it can be read when others have removed it.
#[derive(Debug)]
pub struct Held(File);

impl Held {
    /// What it says now, or said when the member died; none for what is no page.
    pub fn record(&self) -> Option<Record> {
        record(&self.0)
    }

    /// Its words.
    pub(crate) fn words(&self) -> Option<[u64; WORDS]> {
        words(&self.0)
    }

    /// Whether anybody still has the member: its process, or a child that has it by fork(2). A program that was
    /// started by exec(2) may have its socket, but can't read it as a member.
    ///
    /// # Errors
    /// What flock(2) says.
    pub fn is_had(&self) -> io::Result<bool> {
        // The lock is the owners'. To get it harms nobody: a page without owners is not locked again.
        Ok(!file::try_lock_shared(&self.0)?)
    }
}

impl Shelf {
    /// Holds the page of the member that the process `pid` opened with the socket of this inode.
    ///
    /// # Errors
    /// `ENOENT` when there is none, or what open(2) says.
    pub fn hold(&self, pid: u32, inode: u64) -> io::Result<Held> {
        let file = file::open_regular(&self.page(pid, inode))?;
        file.map(Held).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// Another member's page, open to be told which program the group has, and whose.
#[derive(Debug)]
pub(crate) struct Told {
    file: File,
    /// The member's socket.
    pub(crate) inode: u64,
    /// Of the program that it told of when it was opened; 0 for none.
    pub(crate) digest: u64,
}

impl Shelf {
    /// Opens the pages of the members that live but for those with these sockets, and those that leave meanwhile.
    ///
    /// # Errors
    /// `EACCES` where a page is another user's.
    pub(crate) fn others(&self, own: &[u64]) -> io::Result<Vec<Told>> {
        let pages = self.pages().into_iter();
        let others = pages.filter(|(inode, _)| !own.contains(inode));
        let open = |(inode, record): (u64, Record)| {
            let file = match file::open_regular_to_write(&self.page(record.pid, inode)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                opened => opened.transpose(),
            };
            let digest = record.steering.map_or(0, |running| running.digest);
            let told = |file| Told {
                file,
                inode,
                digest,
            };
            file.map(|file| file.map(told))
        };
        others.filter_map(open).collect()
    }
}

impl Told {
    /// Tells a member that has set the program that another has done so since. Returns the late fragments that it knew of
    /// by then: they are the other's to tell.
    pub(crate) fn demote(&self) -> io::Result<u64> {
        let steering = record(&self.file).and_then(|record| record.steering);
        let Some(running) = steering.filter(|running| running.has_set) else {
            return Ok(0);
        };
        self.put(at::IS_SET, &[SET])?;
        Ok(running.late)
    }

    /// Writes the group's program.
    pub(crate) fn tell(&self, steering: &Steering) -> io::Result<()> {
        self.put(at::TITLE, &title_words(steering.title()))?;
        self.put(at::DIGEST, &[steering.digest()])
    }

    fn put(&self, at: usize, words: &[u64]) -> io::Result<()> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.file.write_all_at(&bytes, at as u64 * 8)
    }
}

/// A member's own page, removed when the member leaves.
#[derive(Debug)]
pub struct Page {
    /// Has the lock.
    _file: File,
    path: PathBuf,
    pid: u32,
    words: [Word; WORDS],
}

impl Page {
    /// Makes the page of a new member of the calling process, whose socket has this inode.
    ///
    /// # Errors
    /// The directory can't be written: counters of the group are then unknown to all.
    pub(crate) fn create(shelf: &Shelf, inode: u64, content: &[u64; WORDS]) -> io::Result<Self> {
        let pid = std::process::id();
        let path = shelf.page(pid, inode);
        let (file, words) = make(shelf, &path, content)?;
        shelf.root().into_iter().for_each(sweep);
        Ok(Self {
            _file: file,
            path,
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
        taken: None,
        read_taken: None,
        waits: false,
        joined_ns: process::monotonic_ns(),
        last_look: LastLook::Never,
        steering: steering.map(Running::new),
    };
    record.encode(before)
}

impl Drop for Page {
    fn drop(&mut self) {
        // A forked child that closes its copy of the handle must not remove its parent's page.
        if self.pid == std::process::id() {
            let _ = fs::remove_file(&self.path);
            // Directories go with their last page: rmdir refuses the others.
            let mut above = self.path.ancestors().skip(1).take(2);
            let _ = above.try_for_each(fs::remove_dir);
        }
    }
}

/// Makes a page file, locked and written before it has its name. The last member to leave removes the
/// shelf, perhaps just now, and a dead member may have had the name: then it is tried again.
fn make(shelf: &Shelf, path: &Path, content: &[u64; WORDS]) -> io::Result<(File, [Word; WORDS])> {
    let attempt = || {
        let mut directories = fs::DirBuilder::new();
        directories.recursive(true).mode(0o755).create(&shelf.0)?;
        let file = file::create_unnamed(&shelf.0)?;
        // Nobody else can have the lock of a file that nobody else can open.
        file::try_lock_exclusive(&file)?;
        let words = shared::map(&file, content)?;
        file::set_name(&file, path).map(|()| (file, words))
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
    use crate::mode::Kind;
    use crate::record::tests::record;
    use crate::record::{SET_BY_US, at};
    use crate::steering::tests::steering;
    use std::collections::BTreeSet;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    /// A directory in the place of the root.
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

    fn create(shelf: &Shelf) -> Page {
        Page::create(shelf, 1, &content(record().mode, None, Counters::default())).unwrap()
    }

    #[test]
    fn a_page_that_is_held_tells_of_the_dead() {
        let root = Root::new("held");
        let shelf = root.shelf("4/1.7");
        assert!(shelf.hold(std::process::id(), 1).is_err());
        let page = create(&shelf);
        let held = shelf.hold(std::process::id(), 1).unwrap();
        let words = page.words().clone();
        assert!(held.is_had().unwrap());
        drop(page);
        assert!(held.is_had().unwrap(), "the words are left");
        words[at::PAST[0]].set(5);
        assert_eq!(held.record().unwrap().counters.received, 5);
        drop(words);
        assert!(!held.is_had().unwrap());
    }

    #[test]
    fn a_page_that_changes_while_it_is_read_is_sane() {
        const ROUNDS: u64 = 200_000;
        let root = Root::new("changes");
        let shelf = root.shelf("4/1.7");
        let page = create(&shelf);
        let [received, dropped] = at::PAST.map(|at| &page.words()[at]);
        let taken = &page.words()[at::TAKEN];
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for round in 1..=ROUNDS {
                    // A carry from the low half to the high one, time and again.
                    taken.set(round << 31);
                    received.add(1 << 31);
                    dropped.add(1 << 30);
                    page.words()[at::READ_NS].set(round);
                }
            });
            let mut last = (0, 0, 0);
            while !writer.is_finished() {
                let record = shelf.records().pop().unwrap();
                let Counters { received, dropped } = record.counters;
                let taken = record.taken.unwrap_or(0);
                let now = (received, dropped, taken);
                let is_whole = received % (1 << 31) == 0 && taken % (1 << 31) == 0;
                assert!(is_whole && dropped % (1 << 30) == 0, "{now:?}");
                assert!(now.0 >= last.0 && now.1 >= last.1 && now.2 >= last.2);
                last = now;
            }
        });
        let record = shelf.records().pop().unwrap();
        assert_eq!(record.counters.received, ROUNDS << 31);
        assert_eq!(record.counters.dropped, ROUNDS << 30);
        assert_eq!(record.taken, Some(ROUNDS << 31));
    }

    #[test]
    fn what_a_page_says_is_of_one_time() {
        const LIMIT: Duration = Duration::from_secs(20);
        let root = Root::new("one-time");
        let shelf = root.shelf("4/1.7");
        let page = create(&shelf);
        let held = shelf.hold(std::process::id(), 1).unwrap();
        let done = AtomicBool::new(false);
        // Words that are always the same, but for the moment in which they change.
        let is_torn = |words: &[u64; WORDS]| words[at::PAST[0]] != words[at::PAST[1]];
        let (mut torn, mut told_torn) = (0, BTreeSet::new());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    page.words()[at::PAST[0]].add(1);
                    // Less than one reading takes, so that two can't see the same halfway state.
                    (0..8).for_each(|_| std::hint::spin_loop());
                    page.words()[at::PAST[1]].add(1);
                    (0..1000).for_each(|_| std::hint::spin_loop());
                }
            });
            let begin = Instant::now();
            while torn < 100 && begin.elapsed() < LIMIT {
                torn += usize::from(is_torn(&words(&held.0).unwrap()));
                let Counters { received, dropped } = held.record().unwrap().counters;
                if received != dropped {
                    told_torn.insert((received, dropped));
                }
            }
            done.store(true, Ordering::Relaxed);
        });
        // The scheduler may stop the writer between the two.
        assert!(told_torn.len() <= torn / 10, "{told_torn:?} of {torn}");
        assert!(torn >= 20, "it never changed while it was read: {torn}");
    }

    #[test]
    fn who_had_set_the_program_is_told_that_another_has() {
        let root = Root::new("demoted");
        let shelf = root.shelf("4/1.7");
        let steering = steering("main = steer_flow");
        let content = content(Kind::Program.into(), Some(&steering), Counters::default());
        let page = Page::create(&shelf, 1, &content).unwrap();
        page.words()[at::LATE].set(5);
        let set = |value: u64| page.words()[at::IS_SET].set(value);
        let others = shelf.others(&[2]).unwrap();
        let demoted = || others[0].demote().unwrap();
        set(SET);
        assert_eq!(demoted(), 0, "another had set it");
        set(SET_BY_US);
        assert_eq!(demoted(), 5);
        let running = shelf.records()[0].steering.clone().unwrap();
        assert!(running.is_set && !running.has_set);
        assert_eq!(demoted(), 0, "once");
    }

    #[test]
    fn a_page_lives_as_long_as_its_member() {
        let root = Root::new("page");
        let shelf = root.shelf("4/1.7");
        let page = create(&shelf);
        let records = shelf.records();
        assert_eq!((records.len(), records[0].read_ns), (1, 0));
        assert_eq!(records[0].counters, Counters::default());
        assert_eq!(records[0].pid, std::process::id());
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
        let _page = create(&shelf);
        assert_eq!(shelf.records().len(), 1);
    }

    #[test]
    fn what_dead_members_leave_is_swept_and_the_living_stay() {
        let root = Root::new("sweep");
        let (dead, living) = (root.shelf("4/1.7"), root.shelf("5/1.7"));
        fs::create_dir_all(&dead.0).unwrap();
        let bytes = content(record().mode, None, Counters::default()).map(u64::to_ne_bytes);
        fs::write(dead.0.join("1.0"), bytes.as_flattened()).unwrap();
        let page = create(&living);
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
