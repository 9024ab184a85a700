//! XDP as an engine: takes over devices, and creates groups on them.

use crate::count_maps::{CountMaps, counts_by_them};
use crate::device::{Untaken, pool_shape};
use crate::on_device::OnXdp;
use crate::pool::MemberPool;
use crate::program::GroupProgram;
use crate::registry::DeviceRegistry;
use crate::rows::HeldCounters;
use crate::selection;
use crate::unavailable::{Unavailable, of_part, of_store};
use fanpcap_engine::fd_store::FdStore;
use fanpcap_engine::{
    Begun, Engine, NewGroup, OnDevice, Refusal, TakenDevice, WatchedCounters, Watcher,
};
use fanpcap_linux::bpf::Table;
use fanpcap_linux::memory::Memory;
use fanpcap_linux::process::pidfd::Process;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The engine.
pub struct Xdp;

impl Engine for Xdp {
    fn name(&self) -> &'static str {
        "xdp"
    }

    fn id(&self) -> u8 {
        0
    }

    fn refusal(&self, part: &'static str, error: io::Error) -> Refusal {
        of_part(part, &error)
    }

    fn ring_bytes(&self, asked: Option<u32>) -> Option<u64> {
        let shape = pool_shape().ok()?;
        Some(MemberPool::bytes(asked, shape))
    }

    fn new_table(&self, len: u32) -> io::Result<Memory> {
        Table::create("fanpcap_table", len).map(Memory::from)
    }

    fn check(&self, ifindex: u32) -> Result<(), Refusal> {
        Ok(find(ifindex).map(drop)?)
    }

    fn take(&self, ifindex: u32) -> Result<Box<dyn TakenDevice>, Refusal> {
        let device = find(ifindex)?.take_over()?;
        let registry = DeviceRegistry::new(device, ifindex);
        Ok(Box::new(registry.map_err(of_store)?))
    }

    fn open_device(
        &self,
        descriptors: [OwnedFd; 2],
        ifindex: u32,
    ) -> io::Result<Box<dyn TakenDevice>> {
        let registry: DeviceRegistry = DeviceRegistry::of(descriptors, ifindex)?;
        // The registry may belong to another device, which had the same index before it was moved
        // to another namespace.
        match registry.device().is_here(ifindex) {
            true => Ok(Box::new(registry)),
            false => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn open_group(
        &self,
        store: &FdStore,
        device: [OwnedFd; 2],
        ifindex: u32,
    ) -> io::Result<Box<dyn OnDevice>> {
        Ok(Box::new(OnXdp::open(store, device, ifindex)?))
    }
}

/// Finds the device with this index, and checks whether it can probably be taken over.
fn find(ifindex: u32) -> Result<Untaken, Unavailable> {
    Untaken::find(ifindex, selection::find(ifindex).ok())
}

impl Watcher for Xdp {
    fn id(&self) -> u8 {
        Engine::id(self)
    }

    fn watch_counters(
        &self,
        process: &Process,
        pid: u32,
        slot: u8,
        socket: u64,
    ) -> io::Result<Box<dyn WatchedCounters>> {
        let held = HeldCounters::of_member(process, pid, slot, socket)?;
        Ok(Box::new(held))
    }
}

impl TakenDevice for DeviceRegistry {
    fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        self.ends()
    }

    fn lifelines(&self) -> BorrowedFd<'_> {
        self.lifelines.as_fd()
    }

    fn begin(&self, group: &NewGroup<'_>) -> Result<Begun, Refusal> {
        let counts = CountMaps::new().map_err(of_store)?;
        let given = counts.given(group.table);
        let compile = |capture: &crate::Capture| group.steering.object(capture);
        let maps = self.device().maps();
        let (program, loaded) = GroupProgram::load(pool_shape()?, maps, &given, &compile)?;
        let on_device = OnXdp::new(program, counts, self, group).map_err(of_store)?;
        let program = loaded.as_fd().try_clone_to_owned().map_err(of_store)?;
        Ok(Begun {
            on_device: Box::new(on_device),
            program,
            counts: counts_by_them(&loaded),
        })
    }
}
