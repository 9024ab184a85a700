//! A second attempt to join, and an attempt to join another group than the prepared one. Also
//! checks two rules for locks: rings are made without the group's lock, and the registry is opened
//! under the device's lock.

use super::founded::on_sockets;
use super::*;
use crate::found;
use crate::founder::Founder;
use crate::guard::GroupLock;
use crate::replace::replace;
use crate::shared::{Shared, group_key};
use fanpcap_engine::{
    Begun, Counts, Ledger, Loader, MemberIo, NewGroup, OnDevice, Refusal, TakenDevice,
};
use fanpcap_linux::file::lock;
use fanpcap_ring::Remains;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// The lock of a group, and how often rings were made while the lock was free, the registry was
/// opened for a steering program, and the kernel was asked whether the engine was detached.
#[derive(Debug)]
struct Watch {
    lock: GroupLock,
    free: AtomicUsize,
    loaders: AtomicUsize,
    asked: AtomicUsize,
    /// No rings are made while a test holds this.
    held: Mutex<()>,
}

impl Watch {
    fn of_group_7(ifindex: u32) -> Arc<Self> {
        Arc::new(Self {
            lock: GroupLock::open(&Identity::outside(7, ifindex)).unwrap(),
            free: AtomicUsize::new(0),
            loaders: AtomicUsize::new(0),
            asked: AtomicUsize::new(0),
            held: Mutex::new(()),
        })
    }
}

/// A device whose groups count their calls in a [`Watch`].
struct Device(Box<dyn TakenDevice>, Arc<Watch>);

impl TakenDevice for Device {
    fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        self.0.descriptors()
    }

    fn lifelines(&self) -> BorrowedFd<'_> {
        self.0.lifelines()
    }

    fn begin(&self, group: &NewGroup<'_>) -> Result<Begun, Refusal> {
        let begun = self.0.begin(group)?;
        let on_device = Box::new(Watched(begun.on_device, Arc::clone(&self.1)));
        Ok(Begun { on_device, ..begun })
    }
}

/// A group's part of a device, which counts its calls in a [`Watch`].
struct Watched(Box<dyn OnDevice>, Arc<Watch>);

impl OnDevice for Watched {
    fn open(&self, ask: &Ask, made: Option<Vec<OwnedFd>>) -> Result<Box<dyn MemberIo>, Refusal> {
        let is_free = self.1.lock.take().is_ok();
        self.1.free.fetch_add(is_free.into(), Ordering::Relaxed);
        drop(self.1.held.lock().unwrap());
        self.0.open(ask, made)
    }

    fn entries(&self) -> Vec<StoredFd> {
        self.0.entries()
    }

    fn device_descriptors(&self) -> [BorrowedFd<'_>; 2] {
        self.0.device_descriptors()
    }

    fn attach(&self, store: &FdStore, steals: bool) -> Result<u8, Refusal> {
        self.0.attach(store, steals)
    }

    fn check(&self, steals: Option<(u8, bool)>) -> io::Result<()> {
        self.0.check(steals)
    }

    fn clear(&self) -> io::Result<()> {
        self.0.clear()
    }

    fn sees_sent(&self) -> Result<(), Refusal> {
        self.0.sees_sent()
    }

    fn slow_to_close(&self) -> Option<BorrowedFd<'_>> {
        self.0.slow_to_close()
    }

    fn dismiss(&self, slot: u8) -> io::Result<()> {
        self.0.dismiss(slot)
    }

    fn stop(&self, slot: u8) {
        self.0.stop(slot);
    }

    fn is_detached(&self) -> bool {
        self.1.asked.fetch_add(1, Ordering::Relaxed);
        self.0.is_detached()
    }

    fn counted(&self, slot: u8) -> [u64; 2] {
        self.0.counted(slot)
    }

    fn ledger(&self) -> Ledger {
        self.0.ledger()
    }

    fn counters(&self) -> io::Result<(Counts, u64)> {
        self.0.counters()
    }

    fn has_unread(&self, rings: &[OwnedFd]) -> io::Result<bool> {
        self.0.has_unread(rings)
    }

    fn remains(&self, rings: Vec<OwnedFd>, taken: u64) -> io::Result<Remains> {
        self.0.remains(rings, taken)
    }

    fn loader(&self) -> io::Result<Box<dyn Loader + '_>> {
        self.1.loaders.fetch_add(1, Ordering::Relaxed);
        self.0.loader()
    }

    fn replace(&self, number: u8, next: &[OwnedFd]) -> io::Result<()> {
        self.0.replace(number, next)
    }
}

/// A newcomer to group 7 whose first attempt to join has failed, on a device that is watched.
fn watched(ifindex: u32, choice: &GroupChoice) -> (Prepared, Arc<Watch>) {
    let mut prepared = prepare("xdp", ifindex, choice, false).unwrap();
    let watch = Watch::of_group_7(ifindex);
    let ends = prepared.device.descriptors();
    let ends = ends.map(|it| it.try_clone_to_owned().unwrap());
    let device = prepared.engine().open_device(ends, ifindex).unwrap();
    prepared.device = Box::new(Device(device, Arc::clone(&watch)));
    let steering = choice.steering.as_ref().unwrap();
    drop(prepared.begin(group_key(ifindex, 7), steering).unwrap());
    (prepared, watch)
}

#[test]
#[ignore = "needs root: eBPF, a network namespace"]
fn who_joins_again_makes_its_rings_without_the_groups_lock() {
    on_pair(|ifindex| {
        let flow = choice(Group::Number(7), "main = steer_flow");
        let (prepared, watch) = watched(ifindex, &flow);
        // First the group's first member joins, then another member.
        let first = join_on(ifindex, &flow, Some(asks(&prepared))).unwrap();
        assert_eq!(watch.free.load(Ordering::Relaxed), 1);
        let second = join_on_xdp(ifindex, &flow).unwrap();
        assert_eq!(watch.free.load(Ordering::Relaxed), 2);
        drop(prepared);
        leave([first, second], ifindex);
    });
}

#[test]
#[ignore = "needs root: eBPF, a network namespace"]
fn while_packets_come_the_kernel_is_not_asked_about_the_device() {
    on_pair(|ifindex| {
        let flow = choice(Group::Number(7), "main = steer_flow");
        let (prepared, watch) = watched(ifindex, &flow);
        let mut all = [join_on(ifindex, &flow, Some(asks(&prepared))).unwrap()];
        drop(prepared);
        await_shares(&all);
        let asked = || watch.asked.load(Ordering::Relaxed);
        let before = asked();
        for _ in 0..20 {
            send(1);
            await_frames(&mut all, 1);
            all[0].membership().shared().publish_ledger();
            all[0].membership().attend();
        }
        assert_eq!(asked(), before);
        await_so("a question without packets", || {
            all[0].membership().attend();
            asked() > before
        });
        leave(all, ifindex);
    });
}

#[test]
#[ignore = "needs root: eBPF, a network namespace"]
fn a_steering_program_waits_for_who_changes_the_devices_registry() {
    on_pair(|ifindex| {
        let flow = choice(Group::Number(7), "main = steer_flow");
        let (prepared, watch) = watched(ifindex, &flow);
        let member = join_on(ifindex, &flow, Some(asks(&prepared))).unwrap();
        let next = choice(Group::Number(7), "main = steer_rrobin");
        let (own, next) = ([member.member.own().unwrap()], next.steering.unwrap());
        // Takes the registry's lock, as another process does that changes the slot of another
        // group.
        let other = GroupDir::of(ifindex, 8).unwrap();
        let (file, [_, registry, _]) = other.locks().unwrap();
        assert!(lock::try_take_byte(&file, registry).unwrap());
        thread::scope(|scope| {
            let replaced = scope.spawn(|| {
                let guard = watch.lock.take().unwrap();
                replace(&guard, &own, &next, &|_| Ok(None))
            });
            thread::sleep(Duration::from_millis(100));
            assert_eq!(watch.loaders.load(Ordering::Relaxed), 0);
            lock::release_byte(&file, registry).unwrap();
            replaced.join().unwrap().unwrap();
        });
        assert_eq!(watch.loaders.load(Ordering::Relaxed), 1);
        drop((own, prepared));
        leave([member], ifindex);
    });
}

#[test]
#[ignore = "needs root: eBPF, a network namespace"]
fn a_newcomer_that_is_prepared_for_another_group_brings_its_own_steering_program() {
    on_pair(|ifindex| {
        let alone = choice(Group::New, "main = steer_to 0");
        let prepared = prepare("xdp", ifindex, &alone, false).unwrap();
        let flow = choice(Group::Number(7), "main = steer_flow");
        let first = join_on(ifindex, &flow, Some(asks(&prepared))).unwrap();
        drop(prepared);
        let mut all = [first, join_on_xdp(ifindex, &flow).unwrap()];
        await_shares(&all);
        ensure_shared(&mut all);
        leave(all, ifindex);
    });
}

/// Makes newcomers of this process find a founder's group by objects that are watched.
fn watch_founded(ifindex: u32, watch: &Arc<Watch>) -> Arc<Shared> {
    let guard = watch.lock.take().unwrap();
    let found = found::find(&Identity::outside(7, ifindex), ifindex).unwrap();
    drop(guard);
    let mut shared = Arc::into_inner(found.unwrap()).unwrap();
    let on_device = shared.on_device.take().unwrap();
    shared.on_device = Some(Box::new(Watched(on_device, Arc::clone(watch))));
    let shared = Arc::new(shared);
    found::remember(&shared);
    shared
}

#[test]
#[ignore = "needs root: eBPF, a network namespace"]
fn who_makes_its_rings_while_the_founder_is_replaced_does_not_enter_its_group() {
    on_pair(|ifindex| {
        let flow = choice(Group::Number(7), "main = steer_flow");
        let founder = Founder::found((ifindex, 7), &flow, Some(("xdp", false)));
        let founder = founder.unwrap().unwrap();
        let watch = Watch::of_group_7(ifindex);
        let shared = watch_founded(ifindex, &watch);
        thread::scope(|scope| {
            let held = watch.held.lock().unwrap();
            let late = scope.spawn(|| {
                let joined = join_on_xdp(ifindex, &flow).map(drop);
                joined.map_err(|error| error.to_string())
            });
            await_so("rings", || watch.free.load(Ordering::Relaxed) == 1);
            // A member on packet sockets replaces the founder.
            let socket = silent(ifindex);
            let member = join(JoinRequest {
                socket: socket.as_fd(),
                choice: &on_sockets("main = steer_flow"),
                protocol: ETH_P_ALL,
                before: MemberCounters::default(),
                per_device: PerDevice::Only,
                engine: None,
            });
            let _member = member.unwrap();
            assert!(founder.is_replaced());
            drop(held);
            let refused = late.join().unwrap().unwrap_err();
            assert!(refused.contains("runs the program"), "{refused}");
        });
        drop((founder, shared));
        leave([], ifindex);
    });
}
