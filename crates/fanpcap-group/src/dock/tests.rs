//! Groups come to a dock and go, and members of any of them clear the berths of those that are
//! gone.

use super::*;
use fanpcap_linux::packet;
use fanpcap_linux::unix;
use fanpcap_linux::wait::pipe::{Pipe, has_hung_up};
use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

/// Notes what is served, by the inodes of the programs.
#[derive(Debug)]
struct Noted {
    part: Pipe,
    served: RefCell<Vec<(u8, u64)>>,
    refuses: bool,
    /// Who serves puts something into this locker until it is full.
    fills: Option<Locker>,
    steals: Cell<bool>,
}

impl Noted {
    fn new() -> Self {
        Self {
            part: Pipe::new().unwrap(),
            served: RefCell::default(),
            refuses: false,
            fills: None,
            steals: Cell::new(false),
        }
    }
}

impl Device for Noted {
    fn of(descriptors: Vec<OwnedFd>, _: u32) -> io::Result<Self> {
        assert_eq!(descriptors.len(), 2);
        Ok(Self::new())
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.part.read.as_fd(), self.part.write.as_fd()]
    }

    fn serve(&self, berths: &[(u8, BorrowedFd<'_>)]) -> io::Result<()> {
        if self.refuses {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        let inode = |program: &BorrowedFd<'_>| packet::inode(*program).unwrap();
        let served = berths.iter().map(|(berth, it)| (*berth, inode(it)));
        *self.served.borrow_mut() = served.collect();
        let part = [self.part.read.as_fd()];
        let fill = |locker: &Locker| while locker.put(Deposit::Socket(0), &part).is_ok() {};
        self.fills.iter().for_each(fill);
        Ok(())
    }

    fn set_steals(&self, steals: bool) {
        self.steals.set(steals);
    }
}

/// A group: its lifeline and its program.
struct Group(Pipe, Pipe);

impl Group {
    fn new() -> Self {
        Self(Pipe::new().unwrap(), Pipe::new().unwrap())
    }

    fn moor(&self, dock: &Dock<Noted>) -> io::Result<Option<u8>> {
        dock.moor(self.1.read.as_fd(), self.0.read.as_fd())
    }

    fn program(&self) -> u64 {
        packet::inode(self.1.read.as_fd()).unwrap()
    }

    /// Its last member dies. Others have no lifeline's end of it but in the dock's locker, and for
    /// a moment a process that another test starts.
    fn end(self) {
        let Pipe { read, write } = self.0;
        drop(write);
        let end = Instant::now() + Duration::from_secs(60);
        while !has_hung_up(read.as_fd()).unwrap() {
            assert!(Instant::now() < end);
        }
    }
}

fn other_process(dock: &Dock<Noted>) -> Dock<Noted> {
    let ends = dock.ends().map(|end| end.try_clone_to_owned().unwrap());
    Dock::of(ends, 7).unwrap()
}

#[test]
fn a_group_that_is_gone_gives_up_its_berth_and_others_keep_theirs() {
    let dock = Dock::new(Noted::new(), 7).unwrap();
    let groups = [(); 3].map(|()| Group::new());
    for (group, berth) in groups.iter().zip(0..) {
        assert_eq!(group.moor(&dock).unwrap(), Some(berth));
    }
    let programs = groups.each_ref().map(Group::program);
    assert!(!dock.has_gone());
    let [first, second, third] = groups;
    second.end();
    let other = other_process(&dock);
    assert!(dock.has_gone() && other.has_gone());
    other.clear().unwrap();
    assert_eq!(
        *other.device.served.borrow(),
        [(0, programs[0]), (2, programs[2])]
    );
    assert!(!dock.has_gone() && !other.has_gone());
    let fourth = Group::new();
    assert_eq!(fourth.moor(&dock).unwrap(), Some(1), "the free one");
    first.end();
    third.end();
    dock.clear().unwrap();
    assert_eq!(*dock.device.served.borrow(), [(1, fourth.program())]);
}

#[test]
fn a_full_dock_and_a_device_that_refuses_leave_the_others_as_they_are() {
    let mut dock = Dock::new(Noted::new(), 7).unwrap();
    let groups: Vec<Group> = (0..BERTHS).map(|_| Group::new()).collect();
    for group in &groups[1..] {
        assert!(group.moor(&dock).unwrap().is_some());
    }
    dock.device.refuses = true;
    groups[0].moor(&dock).unwrap_err();
    dock.device.refuses = false;
    assert_eq!(groups[0].moor(&dock).unwrap(), Some(15));
    assert_eq!(Group::new().moor(&dock).unwrap(), None);
    assert_eq!(dock.device.served.borrow().len(), BERTHS as usize);
}

#[test]
fn a_berth_that_is_none_keeps_no_group_from_the_device() {
    let dock = Dock::new(Noted::new(), 7).unwrap();
    let (group, stray) = (Group::new(), Group::new());
    let parts = [stray.0.read.as_fd(), stray.1.read.as_fd()];
    dock.locker
        .put(Berth::deposit(16, true, 0), &parts)
        .unwrap();
    assert_eq!(group.moor(&dock).unwrap(), Some(0));
    assert_eq!(*dock.device.served.borrow(), [(0, group.program())]);
    assert!(!dock.device.steals.get());
}

#[test]
fn another_devices_dock_and_another_locker_are_none() {
    let dock = Dock::new(Noted::new(), 7).unwrap();
    let ends = || dock.ends().map(|end| end.try_clone_to_owned().unwrap());
    assert!(Dock::<Noted>::of(ends(), 8).is_err());
    assert!(Dock::<Noted>::of(ends(), 7).is_ok());
}

#[test]
fn the_host_loses_packets_as_long_as_a_group_is_there_that_asks_for_it() {
    let dock = Dock::new(Noted::new(), 7).unwrap();
    let (first, second) = (Group::new(), Group::new());
    for group in [&first, &second] {
        group.moor(&dock).unwrap();
    }
    dock.steal_for(1).unwrap();
    dock.steal_for(1).unwrap();
    assert!(dock.device.steals.get());
    let third = Group::new();
    assert_eq!(third.moor(&dock).unwrap(), Some(2));
    assert!(dock.device.steals.get());
    first.end();
    dock.clear().unwrap();
    assert!(dock.device.steals.get());
    assert_eq!(dock.device.served.borrow().len(), 2);
    second.end();
    dock.clear().unwrap();
    assert!(!dock.device.steals.get());
    assert!(!dock.has_gone());
}

#[test]
fn a_group_that_exchanges_its_program_keeps_its_berth() {
    let mut dock = Dock::new(Noted::new(), 7).unwrap();
    let (group, beside) = (Group::new(), Group::new());
    assert_eq!(group.moor(&dock).unwrap(), Some(0));
    assert_eq!(beside.moor(&dock).unwrap(), Some(1));
    dock.steal_for(0).unwrap();
    let served = |dock: &Dock<Noted>| {
        let mut served = dock.device.served.borrow().clone();
        served.sort_unstable();
        served
    };
    // More often than a version has numbers.
    let mut next = Group::new();
    for _ in 0..300 {
        let before = dock.exchange(0, next.1.read.as_fd()).unwrap();
        assert_eq!(served(&dock), [(0, next.program()), (1, beside.program())]);
        assert_ne!(packet::inode(before.as_fd()).unwrap(), next.program());
        next = Group::new();
    }
    assert!(dock.device.steals.get());
    assert_eq!(dock.berths().unwrap().len(), 2);
    // One that has died within an exchange has left both programs.
    let mut berths = dock.berths().unwrap().into_iter();
    let last = berths.find(|it| it.number == 0).unwrap();
    let deposit = Berth::deposit(0, true, last.version.wrapping_add(1));
    let parts = [last.lifeline.as_fd(), next.1.read.as_fd()];
    dock.locker.put(deposit, &parts).unwrap();
    let third = Group::new();
    assert_eq!(third.moor(&dock).unwrap(), Some(2));
    assert_eq!(served(&dock)[0], (0, next.program()));
    dock.device.refuses = true;
    assert!(dock.exchange(0, third.1.read.as_fd()).is_err());
    dock.device.refuses = false;
    assert!(dock.exchange(9, third.1.read.as_fd()).is_err());
    dock.exchange(1, third.1.read.as_fd()).unwrap();
    assert_eq!(served(&dock)[0], (0, next.program()));
    group.end();
    other_process(&dock).clear().unwrap();
    assert_eq!(dock.berths().unwrap().len(), 2);
}

#[test]
fn an_exchange_has_succeeded_once_the_device_serves_the_next_program() {
    let mut dock = Dock::new(Noted::new(), 7).unwrap();
    let [into, _] = dock.ends();
    unix::set_send_buffer(into, 16_384).unwrap();
    let (group, next, third) = (Group::new(), Group::new(), Group::new());
    assert_eq!(group.moor(&dock).unwrap(), Some(0));
    // The former one can't be removed.
    let Dock { locker, .. } = other_process(&dock);
    dock.device.fills = Some(locker);
    let former = dock.exchange(0, next.1.read.as_fd()).unwrap();
    assert_eq!(packet::inode(former.as_fd()).unwrap(), group.program());
    assert_eq!(dock.berths().unwrap().len(), 2);
    assert_eq!(*dock.device.served.borrow(), [(0, next.program())]);
    // The removal drops duplicates, too, where there is room again.
    dock.device.fills = None;
    unix::set_send_buffer(dock.ends()[0], 65_536).unwrap();
    dock.exchange(0, third.1.read.as_fd()).unwrap();
    assert_eq!(dock.berths().unwrap().len(), 1);
    assert_eq!(*dock.device.served.borrow(), [(0, third.program())]);
}
