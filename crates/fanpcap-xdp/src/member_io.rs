//! A member's rings on one device, and the BPF program that fills them.

use crate::port;
use crate::program::GroupProgram;
use crate::rings::MemberRings;
use fanpcap_bpf::Classic;
use fanpcap_engine::MemberIo;
use fanpcap_linux::bpf::Loaded;
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
        let object = ebpf::xdp_filter(code).ok();
        let loaded = object.and_then(|object| Loaded::load(&object, "fanpcap_filter").ok());
        let loaded = loaded.map(Loaded::into_program);
        let filter = loaded.as_ref().map(|loaded| (loaded, number));
        self.program.set_filter(slot, filter).is_ok() && loaded.is_some()
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.rings.descriptors()
    }

    fn bytes(&self) -> usize {
        self.rings.len()
    }
}
