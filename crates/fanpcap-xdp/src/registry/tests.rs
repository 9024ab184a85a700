//! Groups attach to a device and end. Members of any group clear the group slots of groups that are
//! gone.

use super::*;
use fanpcap_linux::packet;
use fanpcap_linux::unix;
use fanpcap_linux::wait::pipe::{Pipe, has_hung_up};
use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

/// A device that records the inodes of the BPF programs that it serves.
#[derive(Debug)]
struct Noted {
    part: Pipe,
    served: RefCell<Vec<(u8, u64)>>,
    refuses: bool,
    /// The next call of `serve` fills this descriptor store.
    fills: Option<FdStore>,
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

impl ServedDevice for Noted {
    fn of(descriptors: Vec<OwnedFd>, _: u32) -> io::Result<Self> {
        assert_eq!(descriptors.len(), 2);
        Ok(Self::new())
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.part.read.as_fd(), self.part.write.as_fd()]
    }

    fn serve(&self, slots: &[(u8, BorrowedFd<'_>)]) -> io::Result<()> {
        if self.refuses {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        let inode = |program: &BorrowedFd<'_>| packet::inode(*program).unwrap();
        let served = slots.iter().map(|(slot, it)| (*slot, inode(it)));
        *self.served.borrow_mut() = served.collect();
        let part = [self.part.read.as_fd()];
        let fill = |store: &FdStore| while store.put(StoredFd::Member(0), &part).is_ok() {};
        self.fills.iter().for_each(fill);
        Ok(())
    }

    fn set_steals(&self, steals: bool) {
        self.steals.set(steals);
    }
}

/// A group: its lifeline and its BPF program.
struct Group(Pipe, Pipe);

impl Group {
    fn new() -> Self {
        Self(Pipe::new().unwrap(), Pipe::new().unwrap())
    }

    fn attach(&self, registry: &DeviceRegistry<Noted>) -> io::Result<Option<u8>> {
        registry.attach(self.1.read.as_fd(), self.0.read.as_fd())
    }

    fn program(&self) -> u64 {
        packet::inode(self.1.read.as_fd()).unwrap()
    }

    /// Ends the group, as if its last member died. Waits for the hang-up: for a moment, a process
    /// that another test starts may have a copy of the lifeline's write end.
    fn end(self) {
        let Pipe { read, write } = self.0;
        drop(write);
        let end = Instant::now() + Duration::from_secs(60);
        while !has_hung_up(read.as_fd()).unwrap() {
            assert!(Instant::now() < end);
        }
    }
}

fn other_process(registry: &DeviceRegistry<Noted>) -> DeviceRegistry<Noted> {
    let ends = registry.ends().map(|end| end.try_clone_to_owned().unwrap());
    DeviceRegistry::of(ends, 7).unwrap()
}

#[test]
fn a_group_that_is_gone_gives_up_its_slot_and_others_keep_theirs() {
    let registry = DeviceRegistry::new(Noted::new(), 7).unwrap();
    let groups = [(); 3].map(|()| Group::new());
    for (group, slot) in groups.iter().zip(0..) {
        assert_eq!(group.attach(&registry).unwrap(), Some(slot));
    }
    let programs = groups.each_ref().map(Group::program);
    assert!(!registry.has_gone());
    let [first, second, third] = groups;
    second.end();
    let other = other_process(&registry);
    assert!(registry.has_gone() && other.has_gone());
    other.clear().unwrap();
    assert_eq!(
        *other.device.served.borrow(),
        [(0, programs[0]), (2, programs[2])]
    );
    assert!(!registry.has_gone() && !other.has_gone());
    let fourth = Group::new();
    assert_eq!(fourth.attach(&registry).unwrap(), Some(1), "the free slot");
    first.end();
    third.end();
    registry.clear().unwrap();
    assert_eq!(*registry.device.served.borrow(), [(1, fourth.program())]);
}

#[test]
fn a_full_registry_and_a_device_that_refuses_leave_the_others_as_they_are() {
    let mut registry = DeviceRegistry::new(Noted::new(), 7).unwrap();
    let groups: Vec<Group> = (0..GROUP_SLOTS).map(|_| Group::new()).collect();
    for group in &groups[1..] {
        assert!(group.attach(&registry).unwrap().is_some());
    }
    registry.device.refuses = true;
    groups[0].attach(&registry).unwrap_err();
    registry.device.refuses = false;
    assert_eq!(groups[0].attach(&registry).unwrap(), Some(15));
    assert_eq!(Group::new().attach(&registry).unwrap(), None);
    assert_eq!(registry.device.served.borrow().len(), GROUP_SLOTS as usize);
}

#[test]
fn a_slot_beyond_the_last_keeps_no_group_from_the_device() {
    let registry = DeviceRegistry::new(Noted::new(), 7).unwrap();
    let (group, stray) = (Group::new(), Group::new());
    let parts = [stray.0.read.as_fd(), stray.1.read.as_fd()];
    registry
        .store
        .put(GroupSlot::entry(16, true, 0), &parts)
        .unwrap();
    assert_eq!(group.attach(&registry).unwrap(), Some(0));
    assert_eq!(*registry.device.served.borrow(), [(0, group.program())]);
    assert!(!registry.device.steals.get());
}

#[test]
fn another_devices_registry_is_refused() {
    let registry = DeviceRegistry::new(Noted::new(), 7).unwrap();
    let ends = || registry.ends().map(|end| end.try_clone_to_owned().unwrap());
    assert!(DeviceRegistry::<Noted>::of(ends(), 8).is_err());
    assert!(DeviceRegistry::<Noted>::of(ends(), 7).is_ok());
}

#[test]
fn the_host_loses_packets_as_long_as_a_group_is_there_that_asks_for_it() {
    let registry = DeviceRegistry::new(Noted::new(), 7).unwrap();
    let (first, second) = (Group::new(), Group::new());
    for group in [&first, &second] {
        group.attach(&registry).unwrap();
    }
    registry.steal_for(1, true).unwrap();
    registry.steal_for(1, true).unwrap();
    assert!(registry.device.steals.get());
    let third = Group::new();
    assert_eq!(third.attach(&registry).unwrap(), Some(2));
    assert!(registry.device.steals.get());
    first.end();
    registry.clear().unwrap();
    assert!(registry.device.steals.get());
    assert_eq!(registry.device.served.borrow().len(), 2);
    second.end();
    registry.clear().unwrap();
    assert!(!registry.device.steals.get());
    assert!(!registry.has_gone());
}

#[test]
fn a_group_gives_the_hosts_packets_back_and_keeps_its_slot_and_program() {
    let registry = DeviceRegistry::new(Noted::new(), 7).unwrap();
    let (first, second) = (Group::new(), Group::new());
    for group in [&first, &second] {
        group.attach(&registry).unwrap();
        registry.steal_for(0, false).unwrap();
    }
    let entries = || registry.slots().unwrap().len();
    registry.steal_for(0, true).unwrap();
    registry.steal_for(1, true).unwrap();
    registry.steal_for(0, false).unwrap();
    assert!(registry.device.steals.get(), "for the second group");
    registry.steal_for(1, false).unwrap();
    assert!(!registry.device.steals.get());
    let stealing = registry.slots().unwrap().into_iter();
    assert_eq!((entries(), stealing.filter(|it| it.steals).count()), (2, 0));
    let next = Group::new();
    registry.steal_for(0, true).unwrap();
    registry.exchange(0, next.1.read.as_fd()).unwrap();
    // A process that died within the call has left the entry that follows.
    let mut slots = registry.slots().unwrap().into_iter();
    let newest = slots.find(|it| it.number == 0).unwrap();
    assert!(newest.steals);
    let parts = [newest.lifeline.as_fd(), newest.program.as_fd()];
    let following = GroupSlot::entry(0, false, newest.version);
    registry.store.put(following, &parts).unwrap();
    other_process(&registry).steal_for(0, false).unwrap();
    assert_eq!(entries(), 2);
    // The next group makes the device serve all groups again, by the entries.
    assert_eq!(Group::new().attach(&registry).unwrap(), Some(2));
    assert!(!registry.device.steals.get());
    let mut served = registry.device.served.borrow().clone();
    served.sort_unstable();
    assert_eq!(served[0], (0, next.program()));
    registry.steal_for(0, true).unwrap();
    assert!(registry.device.steals.get());
    assert_eq!(entries(), 3);
    first.end();
    registry.clear().unwrap();
    assert!(!registry.device.steals.get());
}

#[test]
fn a_group_that_exchanges_its_program_keeps_its_slot() {
    let mut registry = DeviceRegistry::new(Noted::new(), 7).unwrap();
    let (group, beside) = (Group::new(), Group::new());
    assert_eq!(group.attach(&registry).unwrap(), Some(0));
    assert_eq!(beside.attach(&registry).unwrap(), Some(1));
    registry.steal_for(0, true).unwrap();
    let served = |registry: &DeviceRegistry<Noted>| {
        let mut served = registry.device.served.borrow().clone();
        served.sort_unstable();
        served
    };
    // Exchanges the BPF program more often than there are version numbers (256).
    let mut next = Group::new();
    for _ in 0..300 {
        let before = registry.exchange(0, next.1.read.as_fd()).unwrap();
        assert_eq!(
            served(&registry),
            [(0, next.program()), (1, beside.program())]
        );
        assert_ne!(packet::inode(before.as_fd()).unwrap(), next.program());
        next = Group::new();
    }
    assert!(registry.device.steals.get());
    assert_eq!(registry.slots().unwrap().len(), 2);
    // A process that died in an exchange has left the entries of both BPF programs.
    let mut slots = registry.slots().unwrap().into_iter();
    let last = slots.find(|it| it.number == 0).unwrap();
    let entry = GroupSlot::entry(0, true, last.version.wrapping_add(1));
    let parts = [last.lifeline.as_fd(), next.1.read.as_fd()];
    registry.store.put(entry, &parts).unwrap();
    let third = Group::new();
    assert_eq!(third.attach(&registry).unwrap(), Some(2));
    assert_eq!(served(&registry)[0], (0, next.program()));
    registry.device.refuses = true;
    assert!(registry.exchange(0, third.1.read.as_fd()).is_err());
    registry.device.refuses = false;
    assert!(registry.exchange(9, third.1.read.as_fd()).is_err());
    registry.exchange(1, third.1.read.as_fd()).unwrap();
    assert_eq!(served(&registry)[0], (0, next.program()));
    group.end();
    other_process(&registry).clear().unwrap();
    assert_eq!(registry.slots().unwrap().len(), 2);
}

#[test]
fn an_exchange_has_succeeded_once_the_device_serves_the_next_program() {
    let mut registry = DeviceRegistry::new(Noted::new(), 7).unwrap();
    let [into, _] = registry.ends();
    unix::set_send_buffer(into, 16_384).unwrap();
    let (group, next, third) = (Group::new(), Group::new(), Group::new());
    assert_eq!(group.attach(&registry).unwrap(), Some(0));
    // The store is full, so the former entry can't be removed.
    let DeviceRegistry { store, .. } = other_process(&registry);
    registry.device.fills = Some(store);
    let former = registry.exchange(0, next.1.read.as_fd()).unwrap();
    assert_eq!(packet::inode(former.as_fd()).unwrap(), group.program());
    assert_eq!(registry.slots().unwrap().len(), 2);
    assert_eq!(*registry.device.served.borrow(), [(0, next.program())]);
    // When the store has room again, the removal also drops duplicates.
    registry.device.fills = None;
    unix::set_send_buffer(registry.ends()[0], 65_536).unwrap();
    registry.exchange(0, third.1.read.as_fd()).unwrap();
    assert_eq!(registry.slots().unwrap().len(), 1);
    assert_eq!(*registry.device.served.borrow(), [(0, third.program())]);
}
