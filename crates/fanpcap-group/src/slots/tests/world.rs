//! A simulated kernel with one group, and processes that may die at any step. The simulated kernel
//! has the group's array, the sockets with their rings, and the descriptor store.

mod founded;
mod check;
mod sticky_ids;
mod readers;
mod successors;
mod following;
mod relinked;
mod dying;
mod classes;
mod loads;
mod living;
mod unread;

use super::super::{KernelOps, Slots, Unjoined, Weighed};
use crate::slots::memory::Memory;
use crate::table::{FinalCounters, Row, Table};
use fanpcap_buckets::Slot;
use fanpcap_buckets::layout::{BUCKETS, SLOTS, bucket};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::panic;
use std::sync::atomic::Ordering;

/// The process that made a change was killed.
#[derive(Debug)]
pub(super) struct Killed;

#[derive(Clone, Debug, Default)]
struct Socket {
    /// Whether the socket's process lives and has the socket open.
    is_open: bool,
    refuses: bool,
    /// Whether the socket still has a pending error because the device was down.
    is_told: bool,
    /// Numbers of unread packets.
    ring: Vec<u64>,
    received: u64,
    taken: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum StoredFd {
    Lifeline(u64),
    Socket(u64),
}

/// The whole simulation except the table.
#[derive(Clone, Debug, Default)]
struct Kernel {
    /// The group's sockets, as in the kernel's `fanout->arr`.
    array: Vec<u64>,
    /// For each slot, the socket into whose ring an engine puts the slot's packets; `None`: slots
    /// are positions of the array.
    rings: Option<BTreeMap<u8, u64>>,
    /// The classes to which packets come in turn; empty: the default class.
    classes: Vec<u8>,
    /// Sockets that their owners have read.
    read: BTreeSet<u64>,
    /// Packets for a class without members, and packets that were unread when a class lost its last
    /// member.
    no_member: u64,
    unread: u64,
    /// The sockets by cookie. Cookies rise in order of creation.
    sockets: BTreeMap<u64, Socket>,
    fd_store: Vec<StoredFd>,
    store_is_full: bool,
    /// Whether the member that makes a change is unable to list the group's sockets.
    is_blind: bool,
    /// The member whose change is under way, and after how many more steps this member dies;
    /// `None`: it does not die.
    actor: u64,
    left: Option<u64>,
    /// How many packets were sent.
    sent: u64,
    /// Nanoseconds that have passed without packets.
    idle_ns: u64,
    /// By how many nanoseconds each reading advances the clock, and the sum of these advances so
    /// far.
    between_looks_ns: u64,
    looks_ns: Cell<u64>,
    /// How many packets came while there was no group, or were unread when the group ended. Then
    /// the numbers of the packets that members took.
    ended: u64,
    taken: BTreeSet<u64>,
    random: u64,
}

impl Kernel {
    fn random(&mut self, below: u64) -> u64 {
        // splitmix64.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below
    }

    /// Closes a socket that is open neither in its process nor in the descriptor store.
    fn release(&mut self, cookie: u64) {
        let is_open = self.sockets.get(&cookie).is_some_and(|it| it.is_open);
        if is_open || self.fd_store.contains(&StoredFd::Socket(cookie)) {
            return;
        }
        // __fanout_unlink(): the last socket moves into the hole.
        if let Some(position) = self.array.iter().position(|&it| it == cookie) {
            self.array.swap_remove(position);
        }
    }

    /// The socket that gets the packets of a slot.
    fn in_slot(&self, slot: u8) -> u64 {
        match &self.rings {
            None => self.array[usize::from(slot) % self.array.len()],
            Some(rings) => rings[&slot],
        }
    }
}

impl KernelOps for Kernel {
    type Refused = ();

    fn step(&mut self) {
        match &mut self.left {
            // Not panic!(): the panic hook would print a message.
            Some(0) => panic::resume_unwind(Box::new(Killed)),
            Some(left) => *left -= 1,
            None => {}
        }
    }

    fn now_ns(&self) -> u64 {
        // A grace period is as long as ten events of `World::live`.
        self.looks_ns
            .set(self.looks_ns.get() + self.between_looks_ns);
        self.sent * 10_000_000 + self.idle_ns + self.looks_ns.get()
    }

    fn deposit(&mut self) -> io::Result<()> {
        if self.store_is_full {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        self.fd_store.push(StoredFd::Lifeline(self.actor));
        self.step();
        self.fd_store.push(StoredFd::Socket(self.actor));
        Ok(())
    }

    fn enter(&mut self, slot: Slot) -> Result<(), ()> {
        if self.array.len() == SLOTS {
            return Err(());
        }
        if let Some(rings) = &mut self.rings {
            assert_eq!(
                rings.insert(slot.0, self.actor),
                None,
                "another socket has {slot:?}"
            );
            self.step();
        }
        self.array.push(self.actor);
        Ok(())
    }

    fn leave(&mut self, slot: Slot) -> io::Result<()> {
        if let Some(rings) = &mut self.rings {
            rings.remove(&slot.0);
        }
        Ok(())
    }

    fn has_entered(&mut self, cookie: u64) -> io::Result<Option<bool>> {
        let is_there = self.fd_store.contains(&StoredFd::Socket(cookie));
        Ok(is_there.then(|| self.array.contains(&cookie)))
    }

    fn withdraw(&mut self, cookie: u64, _: u64) -> io::Result<()> {
        self.fd_store.retain(|it| *it != StoredFd::Socket(cookie));
        self.release(cookie);
        Ok(())
    }

    fn told(&mut self) -> io::Result<Vec<u64>> {
        let told = self.sockets.iter().filter(|(_, socket)| socket.is_told);
        Ok(told.map(|(&cookie, _)| cookie).collect())
    }

    fn order(&mut self) -> io::Result<Option<Vec<u64>>> {
        if self.rings.is_some() {
            return Ok(None);
        }
        if self.is_blind {
            return Ok(Some(Vec::new()));
        }
        let mut order = self.array.clone();
        order.sort_unstable();
        Ok(Some(order))
    }

    fn cut(&mut self, cookie: u64) -> io::Result<()> {
        self.fd_store.retain(|it| *it != StoredFd::Lifeline(cookie));
        Ok(())
    }

    fn living(&mut self) -> io::Result<Vec<u64>> {
        let lifelines = self.fd_store.iter().filter_map(|it| match it {
            StoredFd::Lifeline(cookie) => Some(*cookie),
            StoredFd::Socket(_) => None,
        });
        let is_open = |cookie: &u64| self.sockets[cookie].is_open;
        Ok(lifelines.filter(is_open).collect())
    }

    fn settle(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn refuse(&mut self, cookie: u64) -> io::Result<()> {
        if let Some(socket) = self.sockets.get_mut(&cookie) {
            socket.refuses = true;
        }
        Ok(())
    }

    fn is_half_full(&mut self, cookie: u64) -> bool {
        self.sockets[&cookie].ring.len() >= 30
    }

    fn unread(&mut self) -> io::Result<Vec<(u64, u64)>> {
        let sockets = self.sockets.iter().filter(|(_, it)| !it.ring.is_empty());
        Ok(sockets.map(|(cookie, it)| (*cookie, it.taken)).collect())
    }

    fn borrow(&mut self, cookie: u64) -> io::Result<bool> {
        Ok(!self.read.contains(&cookie))
    }
}

/// The simulated group.
#[derive(Clone, Debug)]
pub(super) struct World {
    memory: Memory,
    /// The table of the group that this group follows, if it follows one. In this simulation a
    /// process's sockets in the two groups have the same cookie.
    lead: Option<Memory>,
    kernel: Kernel,
    /// Names of members, and their classes.
    names: BTreeMap<u64, u64>,
    of_class: BTreeMap<u64, u8>,
    /// For each dead member's ring that is taken over, by the cookie of its socket: the member that
    /// reads the ring.
    takers: BTreeMap<u64, u64>,
    pub(super) store_is_full: bool,
    /// Whether a founder keeps the group while it has no member.
    has_founder: bool,
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        let kernel = Kernel {
            random: seed,
            ..Kernel::default()
        };
        Self {
            memory: Memory::new(false),
            lead: None,
            kernel,
            names: BTreeMap::new(),
            of_class: BTreeMap::new(),
            takers: BTreeMap::new(),
            store_is_full: false,
            has_founder: false,
        }
    }

    /// A group on an engine that puts each slot's packets into the rings of the slot's member, as
    /// XDP does. Slots are then not positions in the kernel's array.
    pub(super) fn with_rings(seed: u64) -> Self {
        let mut world = Self::new(seed);
        world.memory = Memory::new(true);
        world.kernel.rings = Some(BTreeMap::new());
        world
    }

    pub(super) fn table(&self) -> Table<'_> {
        self.memory.table()
    }

    fn change<T>(&mut self, actor: u64, work: impl FnOnce(&mut Slots<'_, Kernel>) -> T) -> T {
        self.kernel.actor = actor;
        self.kernel.store_is_full = self.store_is_full;
        let lead = self.lead.as_ref().map(Memory::table);
        let slots = Slots::new(self.memory.table(), &mut self.kernel);
        work(&mut slots.behind(lead))
    }

    pub(super) fn open(&mut self) -> u64 {
        let cookie = self.kernel.sockets.keys().last().map_or(1, |last| last + 1);
        let socket = Socket {
            is_open: true,
            ..Socket::default()
        };
        self.kernel.sockets.insert(cookie, socket);
        cookie
    }

    pub(super) fn join(&mut self, own: u64) -> Result<Slot, Unjoined<()>> {
        self.join_in(own, None)
    }

    pub(super) fn join_at(&mut self, own: u64, slot: Slot) -> Result<Slot, Unjoined<()>> {
        self.join_in(own, Some(slot))
    }

    /// The first slot that a newcomer may have, except the slots that other newcomers have claimed.
    pub(super) fn choose(&mut self, own: u64, claimed: &[Slot]) -> Option<Slot> {
        let mut claims = |slot: Slot| !claimed.contains(&slot);
        self.change(own, |slots| slots.choose(&mut claims)).unwrap()
    }

    /// Slots that other newcomers have claimed, drawn at random. There are such claims only on XDP,
    /// where slots need not follow the order of the kernel's array.
    pub(super) fn claimed(&mut self) -> Vec<Slot> {
        if self.kernel.rings.is_none() || self.kernel.random(4) > 0 {
            return Vec::new();
        }
        let count = self.kernel.random(3);
        let positions = self.table().positions() as u64;
        let beyond = (positions..positions + count).filter_map(|it| u8::try_from(it).ok());
        beyond.map(Slot).collect()
    }

    fn join_in(&mut self, own: u64, slot: Option<Slot>) -> Result<Slot, Unjoined<()>> {
        let row = Row {
            cookie: own,
            weight: 1,
            name: self.names.get(&own).copied().unwrap_or(0),
            class: self.class(own),
            lead: self.lead.as_ref().map_or(0, |_| own),
            ..Row::default()
        };
        self.change(own, |slots| slots.join(&row, slot))
    }

    pub(super) fn begin_share(&mut self, own: u64) {
        self.change(own, |slots| slots.repair()).unwrap();
        let awaited = self.awaited_by(own);
        let before = awaited.map(|awaited| (awaited, self.owners_in(self.class(own))));
        self.change(own, |slots| slots.begin_share(own)).unwrap();
        if let Some((awaited, before)) = before {
            self.check_succession(&before, awaited, own);
        }
    }

    pub(super) fn weigh(&mut self, actor: u64, own: u64, weight: u16) -> Weighed {
        self.change(actor, |slots| slots.weigh(own, weight))
            .unwrap()
    }

    pub(super) fn depart(&mut self, own: u64) {
        self.change(own, |slots| slots.depart(own)).unwrap();
        self.close(own);
    }

    /// Does the work of a member after a lifeline has hung up.
    pub(super) fn attend(&mut self, own: u64) {
        let slots = self.change(own, |slots| slots.take_over(own)).unwrap();
        for slot in slots {
            self.takers.insert(self.table().row(slot).cookie, own);
        }
    }

    /// The members that have taken over rings read these rings to the end.
    pub(super) fn settle_all(&mut self) {
        self.settle(self.takers.clone());
    }

    fn settle(&mut self, rings: BTreeMap<u64, u64>) {
        for (cookie, taker) in rings {
            self.takers.remove(&cookie);
            if !self.members().contains(&taker) {
                continue;
            }
            let before = self.kernel.sockets[&cookie].taken;
            let inherited = match self.class(taker) == self.class(cookie) {
                true => self.take(cookie, usize::MAX),
                false => self.give_up(cookie),
            };
            let gone = FinalCounters {
                members: 1,
                received: self.kernel.sockets[&cookie].received,
                taken: before,
                inherited,
                ..FinalCounters::default()
            };
            self.change(taker, |slots| slots.vacate(cookie, &gone))
                .unwrap();
        }
    }

    /// Takes packets from a ring. Returns the number of these packets.
    fn take(&mut self, cookie: u64, most: usize) -> u64 {
        let Some(socket) = self.kernel.sockets.get_mut(&cookie) else {
            return 0;
        };
        let count = socket.ring.len().min(most);
        for packet in socket.ring.drain(..count) {
            assert!(self.kernel.taken.insert(packet), "read twice");
        }
        socket.taken += count as u64;
        count as u64
    }

    /// The process of a socket ends.
    pub(super) fn close(&mut self, cookie: u64) {
        if let Some(socket) = self.kernel.sockets.get_mut(&cookie) {
            socket.is_open = false;
        }
        self.kernel.release(cookie);
        if self.members().is_empty() && !self.has_founder {
            self.end();
        }
    }

    /// The last member is gone: the kernel frees the descriptor store and the table.
    fn end(&mut self) {
        for deposit in std::mem::take(&mut self.kernel.fd_store) {
            if let StoredFd::Socket(cookie) = deposit {
                self.kernel.release(cookie);
            }
        }
        assert!(self.kernel.array.is_empty());
        self.kernel.rings.iter_mut().for_each(BTreeMap::clear);
        for socket in self.kernel.sockets.values_mut() {
            self.kernel.ended += socket.ring.drain(..).count() as u64;
        }
        self.memory = self.next_memory();
        self.takers.clear();
    }

    /// All living members look after the group. If there is none, the founder does.
    pub(super) fn recover(&mut self) {
        if self.has_founder && self.members().is_empty() {
            self.settle_by_founder();
        }
        for member in self.members() {
            self.attend(member);
        }
    }

    /// The sockets in the group whose processes live.
    pub(super) fn members(&self) -> Vec<u64> {
        let members = self.kernel.array.iter().copied();
        let is_open = |cookie: &u64| self.kernel.sockets[cookie].is_open;
        members.filter(is_open).collect()
    }

    pub(super) fn in_slot(&self, slot: u8) -> u64 {
        self.kernel.in_slot(slot)
    }

    /// The socket that gets the packets of each bucket.
    pub(super) fn owners(&self) -> Vec<u64> {
        (0..BUCKETS).map(|bucket| self.owner(bucket)).collect()
    }

    fn owner(&self, bucket: usize) -> u64 {
        let slot = self.table().default.buckets[bucket].load(Ordering::Relaxed);
        self.kernel.in_slot(slot)
    }

    pub(super) fn send(&mut self, packets: u64) {
        for _ in 0..packets {
            let number = self.kernel.sent;
            self.kernel.sent += 1;
            let hash = u32::try_from(self.kernel.random(1 << 32)).unwrap();
            if self.kernel.array.is_empty() {
                self.kernel.ended += 1;
                continue;
            }
            let Some(owner) = self.owner_of_packet(number, bucket(hash)) else {
                self.kernel.no_member += 1;
                continue;
            };
            let socket = self.kernel.sockets.get_mut(&owner).unwrap();
            assert!(!socket.refuses, "a placeholder was given a packet");
            socket.ring.push(number);
            socket.received += 1;
        }
    }
}
