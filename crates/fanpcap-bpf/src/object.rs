//! A compiled eBPF program: its instructions, the maps it needs, and where their descriptors go.

use crate::Instruction;

/// What an eBPF program is for (linux/bpf.h, `enum bpf_prog_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramKind {
    /// A socket's filter, or the program of a fan-out group.
    SocketFilter,
    /// A device's traffic control (tcx).
    SchedCls,
    /// A device's, before the kernel's own stack.
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

    /// The struct that the program is given (linux/bpf.h).
    pub const fn context(self) -> &'static str {
        match self {
            Self::SocketFilter | Self::SchedCls => "__sk_buff",
            Self::Xdp => "xdp_md",
        }
    }

    /// The capabilities that loading takes.
    pub const fn capabilities(self) -> &'static str {
        match self {
            Self::SocketFilter => "CAP_BPF",
            Self::SchedCls | Self::Xdp => "CAP_BPF and CAP_NET_ADMIN",
        }
    }
}

/// How a map keeps its values (linux/bpf.h, `enum bpf_map_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapKind {
    /// Rows by index, zeros at first. Keys have 4 bytes.
    Array,
    /// The same, apart for each CPU.
    PerCpuArray,
    /// Values by key.
    Hash,
    /// The same. The kernel drops the least recently used value when there is no room.
    LruHash,
    /// BPF programs by index, for tail calls. The kernel empties the map when no process has it
    /// open any more.
    ProgArray,
    /// Ring buffers by index (`BPF_MAP_TYPE_ARRAY_OF_MAPS`).
    RingArray,
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
            Self::RingArray => 12,
        }
    }
}

/// A map that the program needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapSpec {
    /// By which its maker and those who read it find it. The kernel is not told.
    pub name: &'static str,
    /// How it keeps its values.
    pub kind: MapKind,
    /// Bytes of a key.
    pub key_len: u32,
    /// Bytes of a value.
    pub value_len: u32,
    /// Most values.
    pub entries: u32,
    /// Keys of the values that it begins with, one behind the other.
    pub keys: Vec<u8>,
    /// Those values, in the order of their keys.
    pub values: Vec<u8>,
    /// Whether the loader is given the map; it creates the others. Processes can map a given array
    /// into their memory (`BPF_F_MMAPABLE`).
    pub is_given: bool,
}

impl MapSpec {
    /// A map that begins empty, or with zeros if it is an array.
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

    /// A table: an array that the loader is given, and that processes can map. It has `len` bytes
    /// in rows of [`TABLE_ROW`].
    pub fn given(name: &'static str, len: u32) -> Self {
        Self::given_rows(name, MapKind::Array, TABLE_ROW, len.div_ceil(TABLE_ROW))
    }

    /// A map that is addressed by index, and that the loader is given.
    pub fn given_rows(name: &'static str, kind: MapKind, value_len: u32, entries: u32) -> Self {
        Self {
            is_given: true,
            ..Self::new(name, kind, 4, value_len, entries)
        }
    }
}

/// Bytes of a row of a table. The rows are contiguous. A BPF program looks a row up and selects
/// bytes of it by shifts. Instead it could add the offset to the table's address. But without
/// `CAP_PERFMON` the verifier then walks paths apart that differ in any number
/// (`explore_alu_limits`): 100 times the work for mode `flow`.
pub const TABLE_ROW: u32 = 8;

/// What an instruction lacks until the object is loaded. Maps are named by their index in
/// [`Object::maps`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relocation {
    /// The map; the first of the two instructions of [`Instruction::map`].
    Map(usize),
    /// An address in the array's row 0; the first of the two of [`Instruction::map_value`]. The
    /// second one's immediate is the offset in the row.
    Value(usize),
    /// Bytes of the frame before those that the socket buffer begins with.
    Start,
}

/// A compiled eBPF program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// What it is for.
    pub kind: ProgramKind,
    /// Its instructions, without what [`Object::relocations`] put in.
    pub instructions: Vec<Instruction>,
    /// The indices at which functions begin, in rising order, without the main one's 0.
    pub functions: Vec<u32>,
    /// Its maps.
    pub maps: Vec<MapSpec>,
    /// By index of an instruction: what that instruction lacks.
    pub relocations: Vec<(usize, Relocation)>,
    /// By index of an instruction, rising: what the code is for from there on.
    pub notes: Vec<(usize, String)>,
}

impl Object {
    /// Whether the code depends on where the socket buffer begins.
    pub fn has_start(&self) -> bool {
        let mut relocations = self.relocations.iter();
        relocations.any(|&(_, what)| what == Relocation::Start)
    }

    /// How many instructions there are if those of a function count with each call. A verifier that
    /// follows calls goes through so many at least.
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

    /// The instructions as the kernel takes them. `maps` are the descriptors of the maps, in their
    /// order; `start` is the frame's bytes before the socket buffer.
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

/// Functions call functions so deep at most (MAX_CALL_FRAMES).
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
