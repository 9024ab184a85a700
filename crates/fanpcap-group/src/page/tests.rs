//! Pages on a file system: making, reading, holding and sweeping them. Other files stay.

use super::content::words;
use super::*;
use crate::record::at;
use crate::record::tests::record;
use crate::record::tests::steering;
use fanpcap_config::mode::ModeKind;
use fanpcap_engine::root::Root;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, TryRecvError};
use std::time::{Duration, Instant};

fn id(inode: u64) -> MemberId {
    MemberId::of_socket(inode)
}

/// A directory in the place of `/run`.
pub(crate) struct Base(PathBuf);

impl Base {
    pub(crate) fn new(name: &str) -> Self {
        let name = format!("fanpcap-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::DirBuilder::new().mode(0o755).create(&path).unwrap();
        Self(path)
    }

    pub(crate) fn group_dir(&self, netns: u64) -> GroupDir {
        GroupDir::below(Root::below(&self.0), netns, 1, 7)
    }
}

impl Drop for Base {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Writes a file in the directory of a group.
fn leave(group_dir: &GroupDir, name: &str, content: &[u8]) -> PathBuf {
    group_dir.make().unwrap();
    let path = group_dir.page(0, id(0)).with_file_name(name);
    fs::write(&path, content).unwrap();
    path
}

/// The last content of a dead member's page.
fn dead() -> Vec<u8> {
    let words = content(record().mode, 0, None, MemberCounters::default());
    words.map(u64::to_ne_bytes).concat()
}

pub(crate) fn create(group_dir: &GroupDir) -> Page {
    create_of(group_dir, 1)
}

fn create_of(group_dir: &GroupDir, inode: u64) -> Page {
    Page::create(
        group_dir,
        id(inode),
        &content(record().mode, 0, None, MemberCounters::default()),
    )
    .unwrap()
}

#[test]
fn a_page_that_is_held_tells_of_the_dead() {
    let base = Base::new("held");
    let group_dir = base.group_dir(4);
    assert!(group_dir.hold(std::process::id(), id(1)).is_err());
    let page = create(&group_dir);
    let held = group_dir.hold(std::process::id(), id(1)).unwrap();
    let words = page.words().clone();
    assert!(held.is_had().unwrap());
    drop(page);
    assert!(held.is_had().unwrap(), "the words still map the page");
    words[at::BY_US[0]].set(5);
    assert_eq!(held.record().unwrap().counters.received, 5);
    drop(words);
    // A concurrent test may be starting a process. That process has the page until exec(2).
    let end = Instant::now() + Duration::from_secs(60);
    while held.is_had().unwrap() {
        assert!(Instant::now() < end, "a process still has the page");
    }
}

#[test]
fn a_page_that_changes_while_it_is_read_is_sane() {
    const ROUNDS: u64 = 200_000;
    let base = Base::new("changes");
    let group_dir = base.group_dir(4);
    let page = create(&group_dir);
    let [received, dropped] = at::BY_US.map(|at| &page.words()[at]);
    let taken = &page.words()[at::TAKEN];
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for round in 1..=ROUNDS {
                // Makes the low half of the word carry into the high half, again and again.
                taken.set(round << 31);
                received.add(1 << 31);
                dropped.add(1 << 30);
                page.words()[at::READ_NS].set(round);
            }
        });
        let mut last = (0, 0, 0);
        while !writer.is_finished() {
            let record = group_dir.records().pop().unwrap();
            let MemberCounters { received, dropped } = record.counters;
            let taken = record.taken.unwrap_or(0);
            let now = (received, dropped, taken);
            let is_whole = received % (1 << 31) == 0 && taken % (1 << 31) == 0;
            assert!(is_whole && dropped % (1 << 30) == 0, "{now:?}");
            assert!(now.0 >= last.0 && now.1 >= last.1 && now.2 >= last.2);
            last = now;
        }
    });
    let record = group_dir.records().pop().unwrap();
    assert_eq!(record.counters.received, ROUNDS << 31);
    assert_eq!(record.counters.dropped, ROUNDS << 30);
    assert_eq!(record.taken, Some(ROUNDS << 31));
}

#[test]
fn what_a_page_says_is_of_one_time() {
    const LIMIT: Duration = Duration::from_secs(60);
    let base = Base::new("one-time");
    let group_dir = base.group_dir(4);
    let page = create(&group_dir);
    let held = group_dir.hold(std::process::id(), id(1)).unwrap();
    // Two words that are always equal, except between two writes.
    let is_torn = |words: &[u64; WORDS]| words[at::BY_US[0]] != words[at::BY_US[1]];
    let (mut torn, mut told_torn) = (0, BTreeSet::new());
    std::thread::scope(|scope| {
        // The sender is dropped at the end, and also by a panic.
        let (_reading, ended) = mpsc::channel::<()>();
        let page = &page;
        scope.spawn(move || {
            while ended.try_recv() == Err(TryRecvError::Empty) {
                page.words()[at::BY_US[0]].add(1);
                // The writer pauses for less time than one read takes, so that two reads can't see
                // the same halfway state.
                (0..8).for_each(|_| std::hint::spin_loop());
                page.words()[at::BY_US[1]].add(1);
                (0..1000).for_each(|_| std::hint::spin_loop());
            }
        });
        let begin = Instant::now();
        while torn < 100 && begin.elapsed() < LIMIT {
            torn += usize::from(is_torn(&words(&held.0).unwrap()));
            let MemberCounters { received, dropped } = held.record().unwrap().counters;
            if received != dropped {
                told_torn.insert((received, dropped));
            }
        }
    });
    // The scheduler may stop the writer between the two writes, so a few halfway states are
    // allowed.
    assert!(told_torn.len() <= torn / 4, "{told_torn:?} of {torn}");
    assert!(torn >= 20, "too few reads saw a halfway state: {torn}");
}

#[test]
fn who_had_set_the_program_is_told_that_another_has() {
    let base = Base::new("demoted");
    let group_dir = base.group_dir(4);
    let steering = steering("main = steer_flow");
    let content = content(
        ModeKind::Program.into(),
        0,
        Some(&steering),
        MemberCounters::default(),
    );
    let page = Page::create(&group_dir, id(1), &content).unwrap();
    page.words()[at::LATE].set(5);
    let others = group_dir.others(&[id(2)]).unwrap();
    let demoted = || others[0].demote().unwrap();
    assert_eq!(demoted(), 0, "another member had set the program");
    page.words()[at::HAS_SET].set(1);
    assert_eq!(demoted(), 5);
    assert!(!group_dir.records()[0].steering.clone().unwrap().has_set);
    assert_eq!(demoted(), 0, "the fragments are returned only once");
}

#[test]
fn a_page_lives_as_long_as_its_member() {
    let base = Base::new("page");
    let group_dir = base.group_dir(4);
    let page = create(&group_dir);
    let records = group_dir.records();
    assert_eq!((records.len(), records[0].read_ns), (1, 0));
    assert_eq!(records[0].counters, MemberCounters::default());
    assert_eq!(records[0].pid, std::process::id());
    assert!(group_dir.page(std::process::id(), id(1)).exists());
    drop(page);
    let netns = base.0.join("fanpcap/v7/4");
    assert!(group_dir.records().is_empty() && !netns.exists());
    assert!(netns.parent().is_some_and(Path::exists));
}

#[test]
fn a_dead_members_name_is_taken_over_and_no_other_files() {
    let base = Base::new("name");
    let group_dir = base.group_dir(4);
    let name = page_name(1);
    leave(&group_dir, &name, &dead());
    let page = create(&group_dir);
    assert_eq!(group_dir.records().len(), 1);
    drop(page);
    let other = leave(&group_dir, &name, b"somebody else's");
    let content = content(record().mode, 0, None, MemberCounters::default());
    Page::create(&group_dir, id(1), &content).unwrap_err();
    assert_eq!(fs::read(other).unwrap(), b"somebody else's");
}

fn page_name(inode: u64) -> String {
    group_dir::page_name(std::process::id(), id(inode))
}

#[test]
fn what_dead_members_leave_is_swept_and_the_living_stay() {
    let base = Base::new("sweep");
    let (gone, living) = (base.group_dir(4), base.group_dir(5));
    leave(&gone, "1.0", &dead());
    let page = create(&living);
    GroupDir::sweep(&page.group_dir.root);
    assert!(!base.0.join("fanpcap/v7/4").exists());
    assert_eq!(living.records().len(), 1);
}

#[test]
fn a_door_goes_with_the_last_page() {
    let base = Base::new("rendezvous");
    let group_dir = base.group_dir(4);
    let [first, second] = [1, 2].map(|inode| create_of(&group_dir, inode));
    let rendezvous = leave_rendezvous(&first);
    drop(first);
    assert!(rendezvous.exists() && group_dir.records().len() == 1);
    assert_eq!(group_dir.rendezvous_sockets().unwrap().1.len(), 1);
    drop(second);
    assert!(!base.0.join("fanpcap/v7/4").exists());
}

/// Makes a rendezvous socket on which no process listens.
fn leave_rendezvous(page: &Page) -> PathBuf {
    let (_, name) = page.place_for_rendezvous();
    let path = page.group_dir.page(0, id(0)).with_file_name(name);
    UnixListener::bind(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path
}

#[test]
fn doors_of_the_dead_are_removed_and_no_other_files() {
    let base = Base::new("rendezvous_sockets");
    let group_dir = base.group_dir(4);
    let page = create(&group_dir);
    let [old, new] = [1, 2].map(|_| leave_rendezvous(&page));
    assert!(old == new && old.exists(), "the same name is used again");
    let file = leave(&group_dir, "5.2.door", b"precious");
    assert_eq!(group_dir.rendezvous_sockets().unwrap().1.len(), 1);
    page.place_for_rendezvous();
    assert!(!old.exists() && file.exists());
    let rendezvous = leave_rendezvous(&page);
    let of_dead = leave(&group_dir, "1.0", &dead());
    // Removes only the page: its member has not removed the rendezvous.
    fs::remove_file(group_dir.page(std::process::id(), id(1))).unwrap();
    let _living = create(&base.group_dir(5));
    assert!(!rendezvous.exists() && !of_dead.exists() && file.exists());
}

#[test]
fn only_pages_are_removed() {
    let base = Base::new("magic");
    let group_dir = base.group_dir(4);
    let older = [&b"FANPCAP3"[..], &dead()[8..]].concat();
    let kept = [
        ("syslog.1", &b"precious"[..]),
        ("5.2", b""),
        ("5.3", &older),
    ];
    let kept = kept.map(|(name, content)| leave(&group_dir, name, content));
    let _page = create(&base.group_dir(5));
    assert!(group_dir.records().is_empty() && kept.iter().all(|path| path.exists()));
}

#[test]
fn pages_of_builds_with_other_locks_are_left_alone() {
    let base = Base::new("older");
    let older = base.0.join("fanpcap/4/1.7/5.1");
    fs::create_dir_all(older.parent().unwrap()).unwrap();
    let page = [&b"FANPCAP3"[..], &dead()[8..]].concat();
    fs::write(&older, page).unwrap();
    let group_dir = base.group_dir(4);
    let _page = create(&group_dir);
    assert!(older.exists() && group_dir.records().len() == 1);
    // Older libraries sweep like this: they take the directory of our version for a network
    // namespace.
    let ours = base.0.join("fanpcap/v7/4");
    assert!(fs::remove_dir(&ours).is_err() && group_dir.records().len() == 1);
}

#[test]
fn what_others_may_write_is_not_believed() {
    let base = Base::new("others");
    let group_dir = base.group_dir(4);
    let page = create(&group_dir);
    let path = group_dir.page(std::process::id(), id(1));
    let set_mode = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    let is_believed = || {
        let is_held = group_dir.hold(std::process::id(), id(1)).is_ok();
        let is_read = group_dir.records().len() == 1;
        assert_eq!(is_held, is_read);
        is_read
    };
    assert!(is_believed());
    set_mode(&path, 0o666);
    assert!(!is_believed() && path.exists(), "the page");
    set_mode(&path, 0o644);
    for level in path.ancestors().skip(1).take(4) {
        set_mode(level, 0o777);
        assert!(!is_believed() && path.exists(), "{}", level.display());
        assert!(Page::create(&group_dir, id(2), &dead_words()).is_err());
        set_mode(level, 0o755);
    }
    assert!(is_believed());
    drop(page);
}

fn dead_words() -> [u64; WORDS] {
    content(record().mode, 0, None, MemberCounters::default())
}

#[test]
fn a_link_in_a_directorys_place_leads_nowhere() {
    let base = Base::new("led");
    let (group_dir, elsewhere) = (base.group_dir(4), base.0.join("elsewhere"));
    group_dir.make().unwrap();
    let victim = leave(&base.group_dir(5), "9.1", &dead());
    fs::rename(victim.parent().unwrap(), &elsewhere).unwrap();
    let directory = group_dir.page(0, id(0)).parent().unwrap().to_owned();
    fs::remove_dir(&directory).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &directory).unwrap();
    assert!(group_dir.records().is_empty());
    Page::create(&group_dir, id(1), &dead_words()).unwrap_err();
    let _page = create(&base.group_dir(6));
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 1);
}

#[test]
fn links_and_pipes_are_no_pages() {
    let base = Base::new("links");
    let group_dir = base.group_dir(4);
    let link = leave(&group_dir, "1.0", b"");
    fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink("/etc/hostname", &link).unwrap();
    let pipe = link.with_file_name("1.1");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    assert!(group_dir.records().is_empty() && pipe.exists());
}

#[test]
fn groups_have_locks_of_their_own_that_only_their_owner_may_open() {
    let base = Base::new("turns");
    let directories = [base.group_dir(4), base.group_dir(5)];
    assert!(directories[0].locks().is_err(), "no pages");
    directories[0].make().unwrap();
    let [(one, first), (other, second)] = directories
        .each_ref()
        .map(|group_dir| group_dir.locks().unwrap());
    assert_eq!(one.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let numbers = [first, second].concat();
    for number in &numbers {
        assert!(lock::try_take_byte(&one, *number).unwrap());
    }
    for number in numbers {
        assert!(!lock::try_take_byte(&other, number).unwrap());
    }
}
