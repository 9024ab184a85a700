//! The objects that the members of a steered group share. These are the table, the descriptor
//! store, the lifelines and the rendezvous. The first member makes them, and the kernel frees them
//! with the last member.

use crate::namespace::Namespace;
use crate::page::Page;
use crate::record::{self, DESCRIPTORS, WORDS};
use crate::rendezvous::Rendezvous;
use crate::table::{Classes, Part, Table, at};
use fanpcap_buckets::Slot;
use fanpcap_buckets::layout::{self, BUCKETS, SLOTS};
use fanpcap_config::source::PROGRAM_MAX;
use fanpcap_engine::fd_store::{FdStore, StoredFd};
use fanpcap_engine::{Engine, OnDevice};
use fanpcap_linux::bpf;
use fanpcap_linux::file::{sealed, shared::Word};
use fanpcap_linux::memory::Memory;
use fanpcap_linux::wait::{Epoll, clock};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::AtomicU32;
use std::{io, iter};

/// Bytes of the table: first without the parts for classes, then with them.
const TABLE_LEN: u32 = 98_304;
const TABLE_LEN_WITH_CLASSES: u32 = 393_216;
const _: () = assert!(TABLE_LEN as usize == layout::SIZE);
const _: () = assert!(TABLE_LEN_WITH_CLASSES as usize == layout::SIZE_WITH_CLASSES);

/// Bytes of a group's table. Only groups on an engine other than packet sockets have classes.
fn table_len(has_classes: bool) -> u32 {
    if has_classes {
        TABLE_LEN_WITH_CLASSES
    } else {
        TABLE_LEN
    }
}

/// The shared objects of one group, as one process has them open.
#[derive(Debug)]
pub(crate) struct Shared {
    memory: Memory,
    pub(crate) fd_store: FdStore,
    /// Readable while a lifeline has hung up, or a newcomer sends a request.
    pub(crate) lifelines: Epoll,
    rendezvous: Rendezvous,
    /// The network namespace of the group's device.
    pub(crate) namespace: Namespace,
    /// The engine that fills the members' rings; `None` if packet sockets do.
    pub(crate) engine: Option<&'static dyn Engine>,
    /// The group's part of the device that the engine has taken; `None` on packet sockets.
    pub(crate) on_device: Option<Box<dyn OnDevice>>,
}

/// The key of a group, as the group's table stores it.
pub(crate) fn group_key(ifindex: u32, group: u16) -> u64 {
    (u64::from(ifindex) << 16) | u64::from(group)
}

/// The interface index and the group's number in a key.
pub(crate) fn group_of(key: u64) -> (u32, u16) {
    let [low, high, ifindex @ .., _, _] = key.to_le_bytes();
    (u32::from_le_bytes(ifindex), u16::from_le_bytes([low, high]))
}

impl Shared {
    /// Creates the objects that the members of a new group on packet sockets share.
    ///
    /// # Errors
    /// `EPERM` without `CAP_BPF`; `EMFILE` and the like.
    pub(crate) fn new(key: u64) -> io::Result<Self> {
        let map = bpf::Table::create("fanpcap_table", table_len(false))?;
        Self::with_table(None, key, map.into())
    }

    /// Creates the objects that the members of a new group on `engine` share. The caller then sets
    /// `on_device`.
    ///
    /// # Errors
    /// As [`Shared::new`].
    pub(crate) fn with_classes(engine: &'static dyn Engine, key: u64) -> io::Result<Self> {
        let shared = Self::with_table(Some(engine), key, engine.new_table(table_len(true))?)?;
        shared.table().set(at::ENGINE, engine.id().into());
        Ok(shared)
    }

    fn with_table(
        engine: Option<&'static dyn Engine>,
        key: u64,
        memory: Memory,
    ) -> io::Result<Self> {
        let shared = Self {
            memory,
            fd_store: FdStore::new()?,
            lifelines: Epoll::new()?,
            rendezvous: Rendezvous::new()?,
            namespace: Namespace::here(),
            engine,
            on_device: None,
        };
        shared.table().begin(key);
        let lifelines = [shared.lifelines.as_fd()];
        shared.fd_store.put(StoredFd::Lifelines, &lifelines)?;
        Ok(shared)
    }

    /// Opens the shared objects from descriptors that another member has handed over, in the order
    /// of [`Shared::descriptors`].
    ///
    /// # Errors
    /// When a descriptor is of the wrong kind.
    pub(crate) fn of(descriptors: Vec<OwnedFd>, key: u64) -> io::Result<Self> {
        let ([memory, into, out_of, rendezvous], device) = split(descriptors)?;
        let memory = open_memory(memory, table_len(device.is_some()))?;
        let (fd_store, lifelines) = FdStore::of(into, out_of)?;
        let open = |device| {
            let engine = fanpcap_engines::numbered(table(&memory).get(at::ENGINE));
            let engine = engine.ok_or(io::ErrorKind::Unsupported)?;
            let on_device = engine.open_group(&fd_store, device, group_of(key).0)?;
            Ok::<_, io::Error>((engine, on_device))
        };
        let (engine, on_device) = device.map(open).transpose()?.unzip();
        let shared = Self {
            memory,
            fd_store,
            lifelines: Epoll::from(lifelines),
            rendezvous: Rendezvous::of(rendezvous)?,
            namespace: Namespace::here(),
            engine,
            on_device,
        };
        match shared.table().is_of(key) {
            true => Ok(shared),
            false => Err(of_another()),
        }
    }

    /// The descriptors of the table, of both ends of the descriptor store (which has the
    /// lifelines), and of the rendezvous. If an engine has taken the device, then also the
    /// descriptors that the members of all groups on the device share.
    pub(crate) fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let [into, out_of] = self.fd_store.ends();
        let mut all = vec![self.memory.as_fd(), into, out_of, self.rendezvous.as_fd()];
        all.extend(self.on_device.iter().flat_map(|it| it.device_descriptors()));
        all
    }

    /// Writes to a page the numbers of these descriptors in this process, and the page's `flags`.
    pub(crate) fn show_on(&self, words: &[Word; WORDS], flags: u64) {
        let numbers = self.descriptors();
        let numbers: Vec<RawFd> = numbers.iter().map(AsRawFd::as_raw_fd).collect();
        let [own, registry] = record::shared_words(&numbers);
        words[record::at::REGISTRY].set(registry | flags);
        words[record::at::SHARED].set(own);
    }

    /// Returns how many packets came for a slot's member since it joined, dropped ones included,
    /// and how many were dropped. The engine that fills the member's rings counts these packets.
    /// `None` on packet sockets.
    pub(crate) fn counted(&self, slot: Slot) -> Option<[u64; 2]> {
        let now = self.on_device.as_ref()?.counted(slot.0);
        Some(since(self.table(), slot, now))
    }

    /// Writes the counts of a slot up to now to the table, before the slot's next member comes.
    pub(crate) fn note_counted_before(&self, slot: Slot) {
        let counted = self.on_device.as_ref().map(|it| it.counted(slot.0));
        for (at, count) in (before_at(slot)..).zip(counted.into_iter().flatten()) {
            self.table().set(at, count);
        }
    }

    /// Opens the group's rendezvous beside the page of its first member.
    ///
    /// # Errors
    /// As [`Rendezvous::open`], and the error of epoll_ctl(2).
    pub(crate) fn open_rendezvous(&self, page: &Page) -> io::Result<()> {
        self.rendezvous.open(page)?;
        self.lifelines.add(self.rendezvous.as_fd(), true)
    }

    /// Answers newcomers' requests with the descriptors that the members share. Needs no lock.
    ///
    /// # Errors
    /// As [`Rendezvous::answer`].
    pub(crate) fn answer(&self) -> io::Result<()> {
        self.rendezvous.answer(&self.descriptors())
    }

    /// Puts the group's BPF program and the steering program's text into the descriptor store, for
    /// newcomers.
    ///
    /// # Errors
    /// As [`FdStore::put`] and [`FdStore::remove`].
    pub(crate) fn keep_program(&self, program: BorrowedFd<'_>, text: &str) -> io::Result<()> {
        // An error is ignored: even if the descriptor store does not have the steering program's
        // text, a newcomer can join if its own settings give the same steering program.
        let text = sealed::create(text).ok();
        let kept: Vec<_> = iter::once(program)
            .chain(text.as_ref().map(AsFd::as_fd))
            .collect();
        self.keep(&kept)
    }

    /// Puts the group's BPF program, and the file with the steering program's text, into the
    /// descriptor store.
    ///
    /// # Errors
    /// As [`Shared::keep_program`].
    pub(crate) fn keep(&self, program: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.fd_store.remove(StoredFd::Program)?;
        self.fd_store.put(StoredFd::Program, program)
    }

    /// The text of the group's steering program, if the descriptor store has it.
    pub(crate) fn program_text(&self) -> Option<String> {
        let kept = self.fd_store.find(StoredFd::Program).ok()??;
        sealed::read(kept.into_iter().nth(1)?, PROGRAM_MAX).ok()?
    }

    /// Publishes the ledger of the group's packets, if an engine counts them.
    pub(crate) fn publish_ledger(&self) {
        if let Some(on_device) = &self.on_device {
            self.table().publish_ledger(&|| on_device.ledger());
        }
    }

    /// As [`Shared::publish_ledger`], but only if the published ledger is old.
    pub(crate) fn renew_ledger(&self) {
        if self.table().has_old_ledger(clock::monotonic_ns()) {
            self.publish_ledger();
        }
    }

    /// The index of the interface that the group is on.
    pub(crate) fn ifindex(&self) -> u32 {
        group_of(self.table().get(at::GROUP)).0
    }

    /// The table's memory as a map, for the group's BPF program.
    pub(crate) fn map(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }

    pub(crate) fn table(&self) -> Table<'_> {
        table(&self.memory)
    }

    /// Maps the table once more. The mapping may outlive the other shared objects.
    ///
    /// # Errors
    /// As [`OwnedFd::try_clone`], and the error of mmap(2).
    pub(crate) fn table_alone(&self) -> io::Result<Memory> {
        let memory = self.map().try_clone_to_owned()?;
        open_memory(memory, table_len(self.on_device.is_some()))
    }
}

/// The counts of a slot since its member came. `now` are the slot's counts since the group began.
pub(crate) fn since(table: Table<'_>, slot: Slot, now: [u64; 2]) -> [u64; 2] {
    let before = before_at(slot);
    std::array::from_fn(|which| now[which].wrapping_sub(table.get(before + which)))
}

/// The index in the table of the counts that a slot had before its member came.
fn before_at(slot: Slot) -> usize {
    at::COUNTED_BEFORE + 2 * usize::from(slot.0)
}

/// The descriptors that a member hands over: those of the group, and if an engine has taken the
/// device, those of the device.
type HandedOver = ([OwnedFd; DESCRIPTORS], Option<[OwnedFd; 2]>);

/// Splits the descriptors that a member has handed over.
///
/// # Errors
/// `InvalidData` if there are too few or too many.
pub(crate) fn split(mut descriptors: Vec<OwnedFd>) -> io::Result<HandedOver> {
    let device = descriptors.split_off(DESCRIPTORS.min(descriptors.len()));
    let invalid = |_| io::Error::from(io::ErrorKind::InvalidData);
    let device = match device.is_empty() {
        true => None,
        false => Some(device.try_into().map_err(invalid)?),
    };
    Ok((descriptors.try_into().map_err(invalid)?, device))
}

/// Opens only the table among the objects that a member has handed over. This needs no lock, since
/// the descriptor store is not read.
///
/// # Errors
/// When the table is not this group's.
pub(crate) fn table_alone(descriptors: Vec<OwnedFd>, key: u64) -> io::Result<Memory> {
    let ([memory, ..], device) = split(descriptors)?;
    let memory = open_memory(memory, table_len(device.is_some()))?;
    match table(&memory).is_of(key) {
        true => Ok(memory),
        false => Err(of_another()),
    }
}

/// Maps the table that another process has made: a BPF map or a memory file.
fn open_memory(fd: OwnedFd, len: u32) -> io::Result<Memory> {
    match sealed::is_memory(fd.as_fd()) {
        true => sealed::open_memory(fd, len),
        false => bpf::Table::open(fd, len).map(Memory::from),
    }
}

pub(crate) fn table(memory: &Memory) -> Table<'_> {
    let (count, words) = (layout::RANK_COUNT, crate::table::at::END);
    let bytes = memory.bytes();
    let beyond = memory.len().saturating_sub(layout::SIZE);
    let numbers = memory.view::<AtomicU32>(layout::SIZE, beyond / size_of::<u32>());
    Table {
        default: Part {
            buckets: bytes.get(..layout::BUCKETS).unwrap_or_default(),
            ranks: bytes.get(layout::RANKS..count).unwrap_or_default(),
            rank_count: memory.view::<AtomicU32>(count, 1).unwrap_or_default(),
        },
        classes: Classes {
            bytes: bytes.get(layout::SIZE..).unwrap_or_default(),
            numbers: numbers.unwrap_or_default(),
        },
        sticky_ids: memory.words(layout::STICKY_IDS, SLOTS).unwrap_or_default(),
        holders: memory.words(layout::HOLDERS, SLOTS).unwrap_or_default(),
        loads: memory.view(layout::LOADS, 2 * BUCKETS).unwrap_or_default(),
        words: memory.words(layout::OWN, words).unwrap_or_default(),
    }
}

fn of_another() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "its table is of another group")
}
