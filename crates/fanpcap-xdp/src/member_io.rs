//! A member's pool on one device, and the BPF program that fills it.

use crate::pool::MemberPool;
use crate::port::{CLOCKS, PoolPort};
use crate::program::{GroupProgram, SlotFilter};
use fanpcap_bpf::{Classic, Object};
use fanpcap_engine::MemberIo;
use fanpcap_linux::bpf::{Loaded, LoadedProgram};
use fanpcap_linux::packet;
use fanpcap_reader::{Input, Ring};
use fanpcap_ring::Pool;
use fanpcap_steer::ebpf;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

/// A member's pool.
#[derive(Debug)]
pub(crate) struct PoolOfMember {
    pub(crate) program: Arc<GroupProgram>,
    pub(crate) pool: MemberPool,
    pub(crate) snaplen: u32,
    pub(crate) sent: bool,
}

/// Loads a filter. `None` if the kernel refuses it.
fn load(filter: Object) -> Option<LoadedProgram> {
    let loaded = Loaded::load(&filter, "fanpcap_filter").ok();
    loaded.map(Loaded::into_program)
}

impl MemberIo for PoolOfMember {
    fn admit(&self, slot: u8, socket: u64) -> io::Result<()> {
        let program = &self.program;
        program.put(slot, &self.pool, self.snaplen, socket, self.sent)
    }

    fn input(
        &self,
        slot: u8,
        socket: BorrowedFd<'static>,
        timeout: Option<Duration>,
    ) -> io::Result<Input> {
        let ifindex = packet::address(socket)?.ifindex;
        let port = PoolPort::new(socket, &self.program, slot, &self.pool)?;
        Ok(Input {
            ring: Ring::Pool(Pool::new(self.pool.array.map()?, ifindex, CLOCKS)),
            port: Arc::new(port),
            timeout,
        })
    }

    fn filter(&self, slot: u8, code: &[Classic], number: u32) -> bool {
        let received = ebpf::xdp_filter(code).ok().and_then(load);
        let filter = received.map(|received| SlotFilter {
            received,
            sent: match self.sent && self.program.sees_sent().is_ok() {
                true => ebpf::sent_filter(code).ok().and_then(load),
                false => None,
            },
            number,
        });
        self.program.set_filter(slot, filter.as_ref()).is_ok() && filter.is_some()
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.pool.descriptors().into()
    }

    fn bytes(&self) -> usize {
        self.pool.array.size()
    }

    fn captures_sent(&self) -> bool {
        self.sent
    }
}

#[cfg(test)]
mod tests;
