//! What all members of a steered group share: the table, the locker, the lifelines and the door.
//! The first member makes them, the kernel frees them with the last.

use crate::door::Door;
use crate::locker::{Deposit, Locker};
use crate::namespace::Namespace;
use crate::on_xdp::OnXdp;
use crate::page::Page;
use crate::record::DESCRIPTORS;
use crate::table::{Classes, Part, Table, at};
use fanpcap_buckets::layout::{self, BUCKETS, SLOTS};
use fanpcap_config::source::PROGRAM_MAX;
use fanpcap_linux::bpf;
use fanpcap_linux::file::sealed;
use fanpcap_linux::wait::{Epoll, clock};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU32;

/// Bytes of the table's map, and of one with parts for classes of members.
const TABLE_LEN: u32 = 98_304;
const TABLE_LEN_WITH_CLASSES: u32 = 393_216;
const _: () = assert!(TABLE_LEN as usize == layout::SIZE);
const _: () = assert!(TABLE_LEN_WITH_CLASSES as usize == layout::SIZE_WITH_CLASSES);

/// The length of the table of a group on the XDP engine, or of packet sockets.
fn table_len(is_on_xdp: bool) -> u32 {
    if is_on_xdp {
        TABLE_LEN_WITH_CLASSES
    } else {
        TABLE_LEN
    }
}

/// Table, locker, lifelines and door of one group, in one process.
#[derive(Debug)]
pub(crate) struct Shared {
    map: bpf::Table,
    pub(crate) locker: Locker,
    /// Readable while a lifeline has hung up, or a newcomer knocks.
    pub(crate) lifelines: Epoll,
    door: Door,
    /// That of the group's device.
    pub(crate) namespace: Namespace,
    /// The parts of the XDP engine, where it fills the members' rings.
    pub(crate) on_xdp: Option<OnXdp>,
}

/// Which group a table is of.
pub(crate) fn group_key(ifindex: u32, group: u16) -> u64 {
    (u64::from(ifindex) << 16) | u64::from(group)
}

/// The interface index and the group's number in a key.
pub(crate) fn group_of(key: u64) -> (u32, u16) {
    let [low, high, ifindex @ .., _, _] = key.to_le_bytes();
    (u32::from_le_bytes(ifindex), u16::from_le_bytes([low, high]))
}

impl Shared {
    /// That of a new group of packet sockets.
    ///
    /// # Errors
    /// `EPERM` without `CAP_BPF`; `EMFILE` and the like.
    pub(crate) fn new(key: u64) -> io::Result<Self> {
        Self::with_table(key, table_len(false))
    }

    /// That of a new group on the XDP engine, without the engine's parts.
    ///
    /// # Errors
    /// As [`Shared::new`].
    pub(crate) fn for_xdp(key: u64) -> io::Result<Self> {
        Self::with_table(key, table_len(true))
    }

    fn with_table(key: u64, len: u32) -> io::Result<Self> {
        let shared = Self {
            map: bpf::Table::create("fanpcap_table", len)?,
            locker: Locker::new()?,
            lifelines: Epoll::new()?,
            door: Door::new()?,
            namespace: Namespace::here(),
            on_xdp: None,
        };
        shared.table().begin(key);
        let lifelines = [shared.lifelines.as_fd()];
        shared.locker.put(Deposit::Lifelines, &lifelines)?;
        Ok(shared)
    }

    /// What another member has handed over, in the order of [`Shared::descriptors`].
    ///
    /// # Errors
    /// When a descriptor is not what it should be.
    pub(crate) fn of(descriptors: Vec<OwnedFd>, key: u64) -> io::Result<Self> {
        let ([map, into, out_of, door], dock) = split(descriptors)?;
        let map = bpf::Table::open(map, table_len(!dock.is_empty()))?;
        let (locker, lifelines) = Locker::of(into, out_of)?;
        let dock = <[OwnedFd; 2]>::try_from(dock).ok();
        let on_xdp = dock.map(|dock| OnXdp::of(&locker, dock)).transpose()?;
        let shared = Self {
            map,
            locker,
            lifelines: Epoll::from(lifelines),
            door: Door::of(door)?,
            namespace: Namespace::here(),
            on_xdp,
        };
        match shared.table().is_of(key) {
            true => Ok(shared),
            false => Err(of_another()),
        }
    }

    /// The map, both ends of the locker, which has the lifelines, and the door; where there is a
    /// dock, both ends of its locker.
    pub(crate) fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let [into, out_of] = self.locker.ends();
        let mut all = vec![self.map.as_fd(), into, out_of, self.door.as_fd()];
        all.extend(self.on_xdp.iter().flat_map(OnXdp::dock_ends));
        all
    }

    /// Opens the group's door beside the page of its first member.
    ///
    /// # Errors
    /// As [`Door::open`], and what epoll says.
    pub(crate) fn open_door(&self, page: &Page) -> io::Result<()> {
        self.door.open(page)?;
        self.lifelines.add(self.door.as_fd(), true)
    }

    /// Hands what the members share to those who knock. Needs no lock.
    ///
    /// # Errors
    /// As [`Door::answer`].
    pub(crate) fn answer(&self) -> io::Result<()> {
        self.door.answer(&self.descriptors())
    }

    /// Keeps the group's BPF program, and its text for newcomers that bring none.
    ///
    /// # Errors
    /// As [`Locker::put`] and [`Locker::remove`].
    pub(crate) fn keep_program(&self, program: BorrowedFd<'_>, text: &str) -> io::Result<()> {
        // Best effort: without the text a newcomer must bring the steering program.
        let text = sealed::create(text).ok();
        let mut kept = vec![program];
        kept.extend(text.as_ref().map(AsFd::as_fd));
        self.keep(&kept)
    }

    /// Keeps the group's BPF program, and the file with its text.
    ///
    /// # Errors
    /// As [`Shared::keep_program`].
    pub(crate) fn keep(&self, program: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.locker.remove(Deposit::Program)?;
        self.locker.put(Deposit::Program, program)
    }

    /// The text of the group's steering program, where it was kept.
    pub(crate) fn program_text(&self) -> Option<String> {
        let kept = self.locker.find(Deposit::Program).ok()??;
        sealed::read(kept.into_iter().nth(1)?, PROGRAM_MAX).ok()?
    }

    /// Publishes what has become of the packets that came to the group on XDP.
    pub(crate) fn publish_ledger(&self) {
        if let Some(on_xdp) = &self.on_xdp {
            self.table().publish_ledger(&|| on_xdp.ledger());
        }
    }

    /// The same if the published figures are old.
    pub(crate) fn renew_ledger(&self) {
        if self.table().has_old_ledger(clock::monotonic_ns()) {
            self.publish_ledger();
        }
    }

    /// The index of the interface that the group is on.
    pub(crate) fn ifindex(&self) -> u32 {
        group_of(self.table().get(at::GROUP)).0
    }

    /// The table's map, for the group's BPF program.
    pub(crate) fn map(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }

    /// The table.
    pub(crate) fn table(&self) -> Table<'_> {
        table(&self.map)
    }
}

/// The group's own of the descriptors that a member has handed over, and the others.
fn split(descriptors: Vec<OwnedFd>) -> io::Result<([OwnedFd; DESCRIPTORS], Vec<OwnedFd>)> {
    let mut all = descriptors.into_iter();
    let own: Vec<OwnedFd> = all.by_ref().take(DESCRIPTORS).collect();
    let own = own.try_into();
    let own = own.map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
    Ok((own, all.collect()))
}

/// The table of the group alone, of what a member has handed over. Takes no lock: the locker is not
/// looked into.
///
/// # Errors
/// When it is not the table of this group.
pub(crate) fn table_alone(descriptors: Vec<OwnedFd>, key: u64) -> io::Result<bpf::Table> {
    let ([map, ..], dock) = split(descriptors)?;
    let map = bpf::Table::open(map, table_len(!dock.is_empty()))?;
    match table(&map).is_of(key) {
        true => Ok(map),
        false => Err(of_another()),
    }
}

/// The table in a map.
pub(crate) fn table(map: &bpf::Table) -> Table<'_> {
    let (count, words) = (layout::RANK_COUNT, crate::table::at::END);
    let bytes = map.bytes();
    let beyond = map.len().saturating_sub(layout::SIZE);
    let numbers = map.view::<AtomicU32>(layout::SIZE, beyond / size_of::<u32>());
    Table {
        default: Part {
            buckets: bytes.get(..layout::BUCKETS).unwrap_or_default(),
            ranks: bytes.get(layout::RANKS..count).unwrap_or_default(),
            rank_count: map.view::<AtomicU32>(count, 1).unwrap_or_default(),
        },
        classes: Classes {
            bytes: bytes.get(layout::SIZE..).unwrap_or_default(),
            numbers: numbers.unwrap_or_default(),
        },
        seats: map.words(layout::SEATS, SLOTS).unwrap_or_default(),
        holders: map.words(layout::HOLDERS, SLOTS).unwrap_or_default(),
        loads: map.view(layout::LOADS, 2 * BUCKETS).unwrap_or_default(),
        words: map.words(layout::OWN, words).unwrap_or_default(),
    }
}

fn of_another() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "its table is of another group")
}
