//! A group's part of a device: its BPF program with its maps, and both ends of the device registry.
//!
//! The group's descriptor store has descriptors of all these objects. Each member's process also
//! has them open, because the kernel empties an array of BPF programs when the array's last
//! descriptor is closed.

use crate::count_maps::{CountMaps, counts_by_them};
use crate::pool::MemberPool;
use crate::port::{CLOCKS, PoolOfMember};
use crate::program::{GroupProgram, PROGRAM_DESCRIPTORS};
use crate::registry::DeviceRegistry;
use crate::unavailable::{crowded, no_memory, of_part, of_store, unserved};
use fanpcap_engine::fd_store::{FdStore, StoredFd};
use fanpcap_engine::{
    Ask, Counts, Ledger, Loader, MemberIo, NewGroup, Next, OnDevice, Refusal, faults,
};
use fanpcap_linux::bpf::RingBuffer;
use fanpcap_linux::interface;
use fanpcap_linux::process::memory;
use fanpcap_linux::wait::pipe::Pipe;
use fanpcap_ring::pool::PoolShape;
use fanpcap_ring::{Pool, Remains};
use fanpcap_steer::ForEngine;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

/// A group's part of a device, in one process.
pub(crate) struct OnXdp {
    program: Arc<GroupProgram>,
    counts: CountMaps,
    /// Both ends of the descriptor store of the device registry.
    registry: [OwnedFd; 2],
    ifindex: u32,
}

impl OnXdp {
    /// Makes a new group's part, and puts its descriptors into the group's descriptor store.
    ///
    /// # Errors
    /// As [`FdStore::put`].
    pub(crate) fn new(
        program: GroupProgram,
        counts: CountMaps,
        registry: &DeviceRegistry,
        group: &NewGroup<'_>,
    ) -> io::Result<Self> {
        let NewGroup { store, ifindex, .. } = *group;
        store.put(StoredFd::Engine(PROGRAM), &program.descriptors())?;
        store.put(StoredFd::Engine(COUNTERS), &counts.descriptors())?;
        let [into, out_of] = registry.ends().map(|end| end.try_clone_to_owned());
        Ok(Self {
            program: Arc::new(program),
            counts,
            registry: [into?, out_of?],
            ifindex,
        })
    }

    /// Opens a group's part, from the group's descriptor store and both ends of the registry's
    /// store.
    ///
    /// # Errors
    /// `InvalidData` if the store has no entries of such a part.
    pub(crate) fn open(store: &FdStore, registry: [OwnedFd; 2], ifindex: u32) -> io::Result<Self> {
        let parts = store.find(StoredFd::Engine(PROGRAM))?.unwrap_or_default();
        let parts = <[OwnedFd; PROGRAM_DESCRIPTORS]>::try_from(parts);
        let parts = parts.map_err(|_| io::ErrorKind::InvalidData)?;
        let counts = store.find(StoredFd::Engine(COUNTERS))?;
        Ok(Self {
            program: Arc::new(GroupProgram::open(parts)?),
            counts: CountMaps::open(&counts.unwrap_or_default())?,
            registry,
            ifindex,
        })
    }

    fn open_registry(&self) -> io::Result<DeviceRegistry> {
        let [into, out_of] = self.registry.each_ref().map(OwnedFd::try_clone);
        DeviceRegistry::of([into?, out_of?], self.ifindex)
    }
}

impl OnDevice for OnXdp {
    fn entries(&self) -> Vec<StoredFd> {
        vec![
            StoredFd::Engine(PROGRAM),
            StoredFd::Engine(COUNTERS),
            StoredFd::GroupLifeline,
        ]
    }

    fn device_descriptors(&self) -> [BorrowedFd<'_>; 2] {
        self.registry.each_ref().map(AsFd::as_fd)
    }

    fn attach(&self, store: &FdStore, steals: bool) -> Result<u8, Refusal> {
        let attach = || {
            let program = store.find(StoredFd::Program)?;
            let program = program.and_then(|parts| parts.into_iter().next());
            let program = program.ok_or(io::ErrorKind::InvalidData)?;
            let lifeline = Pipe::new()?;
            faults::step();
            store.put(StoredFd::GroupLifeline, &[lifeline.write.as_fd()])?;
            let registry = self.open_registry()?;
            let number = registry.attach(program.as_fd(), lifeline.read.as_fd())?;
            if let Some(number) = number.filter(|_| steals) {
                registry.steal_for(number, true)?;
            }
            Ok(number)
        };
        let number = attach().map_err(|error| unserved(&error))?;
        let device = || interface::name(self.ifindex).unwrap_or_default();
        number.ok_or_else(|| crowded(&device()))
    }

    fn check(&self, steals: Option<(u8, bool)>) -> io::Result<()> {
        let registry = self.open_registry()?;
        let steal = |(number, steals)| registry.steal_for(number, steals);
        steals.map_or(Ok(()), steal)
    }

    fn clear(&self) -> io::Result<()> {
        let registry = self.open_registry()?;
        match registry.has_gone() {
            true => registry.clear(),
            false => Ok(()),
        }
    }

    fn sees_sent(&self) -> Result<(), Refusal> {
        Ok(self.program.sees_sent()?)
    }

    fn open(&self, ask: &Ask, made: Option<Vec<OwnedFd>>) -> Result<Box<dyn MemberIo>, Refusal> {
        let shape = self.program.shape;
        let pool = match made {
            Some(made) => open_new(made, shape).map_err(of_store)?,
            None => create_pool(ask, shape)?,
        };
        Ok(Box::new(PoolOfMember {
            program: Arc::clone(&self.program),
            pool,
            snaplen: ask.snaplen,
            sent: ask.outgoing,
        }))
    }

    fn dismiss(&self, slot: u8) -> io::Result<()> {
        self.program.take_away(slot)
    }

    fn stop(&self, slot: u8) {
        self.program.set_snaplen(slot, 0);
    }

    fn slow_to_close(&self) -> Option<BorrowedFd<'_>> {
        // The device's link is not closed later: the next handle could not take the device at once.
        self.program.sent_link()
    }

    fn is_detached(&self) -> bool {
        self.program.is_detached()
    }

    fn counted(&self, slot: u8) -> [u64; 2] {
        self.program.slot_counts(slot).for_slot()
    }

    fn ledger(&self) -> Ledger {
        self.program.group_counts()
    }

    fn counters(&self) -> io::Result<(Counts, u64)> {
        self.counts.read()
    }

    fn has_unread(&self, rings: &[OwnedFd]) -> io::Result<bool> {
        let own = rings.iter().map(OwnedFd::try_clone);
        let pool = MemberPool::open(own.collect::<io::Result<_>>()?, self.program.shape)?;
        Ok(pool.array.map_words()?.has_unread())
    }

    fn remains(&self, rings: Vec<OwnedFd>, taken: u64) -> io::Result<Remains> {
        let pool = MemberPool::open(rings, self.program.shape)?;
        let pool = Pool::new(pool.array.map()?, self.ifindex, CLOCKS);
        Ok(Remains::of_pool(pool, taken))
    }

    fn loader(&self) -> io::Result<Box<dyn Loader + '_>> {
        let registry = self.open_registry()?;
        Ok(Box::new(LoaderOnXdp {
            group: self,
            registry,
        }))
    }

    fn replace(&self, number: u8, next: &[OwnedFd]) -> io::Result<()> {
        let (received, sent) = next.split_first().ok_or(io::ErrorKind::InvalidData)?;
        let sent = sent.first().map(OwnedFd::try_clone).transpose()?;
        let registry = self.open_registry()?;
        let former = registry.exchange(number, received.as_fd())?;
        faults::step();
        if let Some(Err(error)) = sent.map(|sent| self.program.replace_sent(sent)) {
            registry.exchange(number, former.as_fd())?;
            return Err(error);
        }
        Ok(())
    }
}

/// The loader for a group, with the registry of its device.
struct LoaderOnXdp<'a> {
    group: &'a OnXdp,
    registry: DeviceRegistry,
}

impl Loader for LoaderOnXdp<'_> {
    fn load(&self, steering: &ForEngine, _: &str, table: BorrowedFd<'_>) -> Result<Next, Refusal> {
        let compile = |capture: &crate::Capture| steering.object(capture);
        let given = self.group.counts.given(table);
        let maps = self.registry.device().maps();
        let (received, sent) = self.group.program.load_next(maps, &given, &compile)?;
        let programs = [Some(received.as_fd()), sent.as_ref().map(AsFd::as_fd)];
        let programs = programs.iter().flatten().map(|it| it.try_clone_to_owned());
        Ok(Next {
            programs: programs.collect::<io::Result<_>>().map_err(of_store)?,
            counts: counts_by_them(&received),
        })
    }
}

/// Creates a member's pool. Refuses if a memory limit leaves too little memory for the pool.
/// Without this refusal, the process could reach the limit at its next new page, and the kernel
/// could kill it.
fn create_pool(ask: &Ask, shape: PoolShape) -> Result<MemberPool, Refusal> {
    let needed = MemberPool::bytes(ask.bytes, shape);
    let limits = memory::limits(Path::new("/"));
    let limit = limits.into_iter().min_by_key(|limit| limit.left());
    let is_short = limit.is_some_and(|it| needed + needed.min(it.bytes / 8) > it.left());
    // Without the privilege, the founder makes the pool, and the limit of this process is no
    // matter.
    if is_short && RingBuffer::smallest("fanpcap_test").is_ok() {
        return Err(no_memory(needed, limit));
    }
    let pool = MemberPool::create(ask.bytes, shape);
    pool.map_err(|error| match error.raw_os_error() {
        Some(ENOMEM) => no_memory(needed, limit),
        _ => of_part("the pool", &error),
    })
}

/// Opens the pool that a founder has made for a newcomer. Refuses a pool in which packets were.
fn open_new(made: Vec<OwnedFd>, shape: PoolShape) -> io::Result<MemberPool> {
    let pool = MemberPool::open(made, shape)?;
    let words = pool.array.map_words()?;
    match (0..words.lanes()).any(|lane| words.is_used(lane)) {
        true => Err(io::ErrorKind::ResourceBusy.into()),
        false => Ok(pool),
    }
}

/// Numbers of the engine's entries in the group's descriptor store.
const PROGRAM: u64 = 0;
const COUNTERS: u64 = 1;

// errno(3).
const ENOMEM: i32 = 12;
