//! The node's BPF program at XDP. The BPF program finds a packet's bucket and counts the packet.
//! Then it drops the packet, passes it on, or ships its first bytes.
//!
//! The BPF program adds variables to pointers, so loading it needs `CAP_PERFMON` as well as
//! `CAP_BPF` and `CAP_NET_ADMIN`. The verifier accepts the BPF program since Linux 5.18.

mod code;
mod hash;
mod frame;
mod in_line;
mod leave;
mod key;

use fanpcap_bpf::assembler::*;
use fanpcap_bpf::{MapSpec, Object};
use fanpcap_ring::pool::PoolShape;
use fanpcap_steer::ebpf::{self, EbpfError, Keyed};
use fanpcap_steer::ir::Filter;

use crate::keys::flow_tree;
use crate::layout::{self, Lanes};
use crate::{Key, Selection};
use code::MAP_CONTROL;

/// What the BPF program does with this node's packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Passes the packets on to the host.
    Pass,
    /// Passes the packets on to the BPF program in [`layout::NEXT_MAP`], or to the host if the map
    /// is empty. Every packet costs more time than with `Pass`, even packets of other nodes.
    PassToNext,
    /// Writes the packets' first bytes into the node's pool, and drops the packets.
    Ship {
        /// How many bytes of a frame are shipped: a multiple of 8, at most
        /// [`crate::record::MOST_BYTES`].
        bytes: u16,
        /// The shape of the pool.
        shape: PoolShape,
    },
}

/// A node's BPF program.
#[derive(Clone, Debug)]
pub struct Program {
    /// How the cluster selects packets.
    pub selection: Selection,
    /// The number of the cluster whose in-line frames are accepted.
    pub cluster: u32,
    /// What the BPF program does with this node's packets.
    pub action: Action,
    /// The device's lanes.
    pub lanes: Lanes,
    /// The cluster's filter: packets of this node that do not pass it are dropped.
    pub filter: Option<Filter>,
}

impl Program {
    /// Compiles the BPF program. The loader must supply all maps of the BPF program.
    ///
    /// # Errors
    /// Fails if the compiler has a bug: see [`EbpfError`].
    pub fn object(&self) -> Result<Object, EbpfError> {
        match flow_tree().filter(|_| self.selection.key == Key::Flow) {
            Some(tree) => ebpf::xdp_by_hash(&tree, self),
            None => ebpf::xdp_by_headers(self),
        }
    }
}

impl Keyed for Program {
    fn maps(&self) -> Vec<MapSpec> {
        let mut maps = vec![layout::control_map(), layout::counts_map(self.lanes)];
        match self.action {
            Action::Pass => {}
            Action::PassToNext => maps.push(layout::next_map()),
            Action::Ship { .. } => maps.push(layout::pool_map()),
        }
        maps
    }

    fn arrive(&self, asm: &mut Assembler, keyed: Label) {
        match self.selection.key {
            Key::Packet => frame::by_content(asm, self.selection.initial, keyed),
            Key::Identification => frame::by_identification(asm, self.selection.initial, keyed),
            Key::Flow | Key::RoundRobin => {}
        }
        let by_headers = asm.label();
        self.in_line(asm, by_headers);
        self.require_table(asm);
        if self.selection.key == Key::RoundRobin {
            asm.value(R1, MAP_CONTROL, code::offset(layout::control::TURNS));
            asm.set(R8, 1);
            asm.fetch_add(R1, 0, R8);
            asm.alu(Op::Add, R8, 1);
            asm.jump(keyed);
        }
        // Another node may accept this frame as a coordinator's, so no node may count it as a turn.
        asm.bind(by_headers);
    }

    fn key(&self, asm: &mut Assembler, keyed: Label) {
        self.own_key(asm, keyed);
        key::by_content(self, asm);
    }

    fn filter(&self) -> Option<&Filter> {
        self.filter.as_ref()
    }

    fn leave(&self, asm: &mut Assembler, filter: Option<Label>) {
        self.bucket(asm);
        self.claim(asm);
        if let Some(filter) = filter {
            self.pass_filter(asm, filter);
        }
        match self.action {
            Action::Pass => self.pass_own(asm),
            Action::PassToNext => {
                self.own(asm);
                leave::to_next(asm);
            }
            Action::Ship { bytes, shape } => {
                self.own(asm);
                self.ship(asm, bytes, shape);
            }
        }
    }
}
