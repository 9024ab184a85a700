//! A compiled eBPF program: its instructions, the maps that it needs, and the instructions into
//! which the loader writes map descriptors.

use crate::Instruction;

/// The type of an eBPF program (linux/bpf.h, `enum bpf_prog_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramKind {
    /// A socket filter, or the BPF program of a fan-out group.
    SocketFilter,
    /// Traffic control of a device (tcx).
    SchedCls,
    /// XDP: runs at a device, before the kernel's network stack.
    Xdp,
}

impl ProgramKind {
    /// The kernel's number.
    pub const fn number(self) -> u32 {
        match self {
            Self::SocketFilter => 1,
            Self::SchedCls => 3,
            Self::Xdp => 6,
        }
    }

    /// The BPF program's context struct (linux/bpf.h).
    pub const fn context(self) -> &'static str {
        match self {
            Self::SocketFilter | Self::SchedCls => "__sk_buff",
            Self::Xdp => "xdp_md",
        }
    }

    /// The capabilities that loading needs.
    pub const fn capabilities(self) -> &'static str {
        match self {
            Self::SocketFilter => "CAP_BPF",
            Self::SchedCls | Self::Xdp => "CAP_BPF and CAP_NET_ADMIN",
        }
    }
}

/// The kind of a map (linux/bpf.h, `enum bpf_map_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapKind {
    /// Values by index, zero at first. Keys have 4 bytes.
    Array,
    /// An array with separate values for each CPU.
    PerCpuArray,
    /// Values by key.
    Hash,
    /// Values by key, as [`MapKind::Hash`]. When the map is full, the kernel drops the least
    /// recently used value.
    LruHash,
    /// BPF programs by index, for tail calls. The kernel empties the map when no process has it
    /// open.
    ProgArray,
    /// Maps by index (`BPF_MAP_TYPE_ARRAY_OF_MAPS`): ring buffers, or arrays.
    MapArray,
    /// AF_XDP sockets by index (`BPF_MAP_TYPE_XSKMAP`), to which BPF programs redirect packets.
    SocketArray,
    /// A ring buffer, which the caller passes to the loader.
    RingBuffer,
}

impl MapKind {
    /// The kernel's number.
    pub const fn number(self) -> u32 {
        match self {
            Self::Hash => 1,
            Self::Array => 2,
            Self::ProgArray => 3,
            Self::PerCpuArray => 6,
            Self::LruHash => 9,
            Self::MapArray => 12,
            Self::SocketArray => 17,
            Self::RingBuffer => 27,
        }
    }
}

/// A map that a BPF program needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapSpec {
    /// The name by which the creator and the readers of the map find it. The kernel does not get
    /// the name.
    pub name: &'static str,
    /// The map's kind.
    pub kind: MapKind,
    /// Bytes of a key.
    pub key_len: u32,
    /// Bytes of a value.
    pub value_len: u32,
    /// The maximum number of values in the map.
    pub entries: u32,
    /// Keys of the initial values, one after the other.
    pub keys: Vec<u8>,
    /// The initial values, in the order of their keys.
    pub values: Vec<u8>,
    /// Whether the caller passes the map to the loader; if not, the loader creates the map.
    /// Processes can map an array that the caller passes into their memory (`BPF_F_MMAPABLE`).
    pub is_given: bool,
}

impl MapSpec {
    /// A map that is empty at first. An array holds zeros at first.
    pub const fn new(
        name: &'static str,
        kind: MapKind,
        key_len: u32,
        value_len: u32,
        entries: u32,
    ) -> Self {
        Self {
            name,
            kind,
            key_len,
            value_len,
            entries,
            keys: Vec::new(),
            values: Vec::new(),
            is_given: false,
        }
    }

    /// A table: an array that the caller passes to the loader, and that processes can map into
    /// their memory. The table has `len` bytes, in entries of [`TABLE_ROW`] bytes.
    pub fn given(name: &'static str, len: u32) -> Self {
        Self::given_rows(name, MapKind::Array, TABLE_ROW, len.div_ceil(TABLE_ROW))
    }

    /// A map that the caller passes to the loader, addressed by index.
    pub fn given_rows(name: &'static str, kind: MapKind, value_len: u32, entries: u32) -> Self {
        Self {
            is_given: true,
            ..Self::new(name, kind, 4, value_len, entries)
        }
    }
}

/// Size of a table's entry in bytes. Entries are contiguous. A BPF program looks up an entry and
/// selects bytes of the entry by shifts. If the BPF program added an offset to the table's address
/// instead, the verifier would have 100 times the work for mode `flow`: without `CAP_PERFMON`, the
/// verifier would walk paths separately if they differ in any number (`explore_alu_limits`).
pub const TABLE_ROW: u32 = 8;

/// A value that an instruction gets only when the object is loaded. The number in a variant is the
/// map's index in [`Object::maps`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relocation {
    /// The map's descriptor. The instruction is the first one of [`Instruction::map`].
    Map(usize),
    /// The descriptor of an array, for an address in its entry 0. The instruction is the first one
    /// of [`Instruction::map_value`]. The immediate of the second instruction is the offset in the
    /// entry.
    Value(usize),
    /// The number of frame bytes before the socket buffer's first byte.
    Start,
}

/// A compiled eBPF program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// The program's type.
    pub kind: ProgramKind,
    /// The instructions before the loader fills in [`Object::relocations`].
    pub instructions: Vec<Instruction>,
    /// The indices at which functions begin, ascending, without the main function's 0.
    pub functions: Vec<u32>,
    /// The maps that the instructions use.
    pub maps: Vec<MapSpec>,
    /// The values that the loader fills in, each with the index of its instruction.
    pub relocations: Vec<(usize, Relocation)>,
    /// Notes for listings: the index of an instruction, and the purpose of the code from this
    /// instruction on. Indices ascend.
    pub notes: Vec<(usize, String)>,
}

impl Object {
    /// Whether the code depends on where the socket buffer begins.
    pub fn has_start(&self) -> bool {
        let mut relocations = self.relocations.iter();
        relocations.any(|&(_, what)| what == Relocation::Start)
    }

    /// The number of instructions, where those of a function count once for each call of the
    /// function. A verifier that follows calls visits at least this many instructions.
    pub fn steps(&self) -> usize {
        let starts = self.functions.iter();
        let starts = starts.filter_map(|&at| usize::try_from(at).ok());
        let bounds: Vec<usize> = [0]
            .into_iter()
            .chain(starts)
            .chain([self.instructions.len()])
            .collect();
        let own: Vec<usize> = bounds.windows(2).map(|range| range[1] - range[0]).collect();
        let within = |at: usize| bounds.partition_point(|&begin| begin <= at) - 1;
        let calls = self.instructions.iter().enumerate();
        let calls: Vec<(usize, usize)> = calls
            .filter_map(|(at, instruction)| {
                Some((within(at), within(instruction.called_from(at)?)))
            })
            .collect();
        let mut steps = own.clone();
        for _ in 0..FRAMES_MAX {
            let mut all = own.clone();
            for &(caller, function) in &calls {
                all[caller] += steps.get(function).copied().unwrap_or(0);
            }
            steps = all;
        }
        steps[0]
    }

    /// The instructions for the kernel. `maps` are the descriptors of the maps, in the order of
    /// [`Object::maps`]. `start` is the number of frame bytes before the socket buffer.
    pub fn relocated(&self, maps: &[i32], start: i32) -> Vec<Instruction> {
        let mut code = self.instructions.clone();
        for &(at, what) in &self.relocations {
            let Some(instruction) = code.get_mut(at) else {
                continue;
            };
            let register = instruction.target();
            let fd = |map: usize| maps.get(map).copied();
            let complete = match what {
                Relocation::Start => Some(instruction.with_immediate(start)),
                Relocation::Map(map) => fd(map).map(|fd| Instruction::map(register, fd)[0]),
                Relocation::Value(map) => {
                    fd(map).map(|fd| Instruction::map_value(register, fd, 0)[0])
                }
            };
            *instruction = complete.unwrap_or(*instruction);
        }
        code
    }
}

/// The deepest nesting of function calls (MAX_CALL_FRAMES).
const FRAMES_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_relocation_gets_what_it_lacks() {
        let lacking = [Instruction::map(1, 0), Instruction::map_value(2, 0, 4)].concat();
        let object = Object {
            kind: ProgramKind::SocketFilter,
            instructions: [lacking, vec![Instruction::set(3, 0), Instruction::exit()]].concat(),
            functions: Vec::new(),
            maps: vec![MapSpec::new("counts", MapKind::Array, 4, 8, 1); 2],
            relocations: vec![
                (0, Relocation::Map(1)),
                (2, Relocation::Value(0)),
                (4, Relocation::Start),
            ],
            notes: Vec::new(),
        };
        assert!(object.has_start());
        let loaded = [Instruction::map(1, 8), Instruction::map_value(2, 7, 4)].concat();
        let end = vec![Instruction::set(3, 14), Instruction::exit()];
        assert_eq!(object.relocated(&[7, 8], 14), [loaded, end].concat());
    }
}
