//! A member's rings on one device, and the BPF program that fills them.

use crate::port;
use crate::program::{GroupProgram, SlotFilter};
use crate::rings::MemberRings;
use fanpcap_bpf::{Classic, Object};
use fanpcap_engine::MemberIo;
use fanpcap_linux::bpf::{Loaded, LoadedProgram};
use fanpcap_reader::Input;
use fanpcap_steer::ebpf;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

/// A member's rings.
#[derive(Debug)]
pub(crate) struct RingsOfMember {
    program: Arc<GroupProgram>,
    rings: MemberRings,
    snaplen: u32,
}

impl RingsOfMember {
    /// Makes a value for rings that no slot uses yet. `snaplen` is the number of bytes of each
    /// packet to keep.
    pub(crate) fn new(program: Arc<GroupProgram>, rings: MemberRings, snaplen: u32) -> Self {
        Self {
            program,
            rings,
            snaplen,
        }
    }
}

/// Loads a filter. `None` if the kernel refuses it.
fn load(filter: Object) -> Option<LoadedProgram> {
    let loaded = Loaded::load(&filter, "fanpcap_filter").ok();
    loaded.map(Loaded::into_program)
}

impl MemberIo for RingsOfMember {
    fn admit(&self, slot: u8, socket: u64) -> io::Result<()> {
        self.program.put(slot, &self.rings, self.snaplen, socket)
    }

    fn input(
        &self,
        slot: u8,
        socket: BorrowedFd<'static>,
        timeout: Option<Duration>,
    ) -> io::Result<Input> {
        port::open(socket, &self.program, slot, &self.rings, timeout)
    }

    fn filter(&self, slot: u8, code: &[Classic], number: u32) -> bool {
        let received = ebpf::xdp_filter(code).ok().and_then(load);
        let filter = received.map(|received| SlotFilter {
            received,
            sent: match self.rings.has_sent() && self.program.filters_sent() {
                true => ebpf::sent_filter(code).ok().and_then(load),
                false => None,
            },
            number,
        });
        self.program.set_filter(slot, filter.as_ref()).is_ok() && filter.is_some()
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.rings.descriptors()
    }

    fn bytes(&self) -> usize {
        self.rings.len()
    }
}
