//! A loaded object: its BPF program, its maps, and test runs of the BPF program.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;

use fanpcap_bpf::{Instruction, MapSpec, Object, ProgramKind};

use super::{LoadedProgram, Map, Refused, Run, locked_limit};

/// A compiled object that is loaded into the kernel. After this value is dropped, an attached BPF
/// program stays attached, but this process can no longer read the maps.
#[derive(Debug)]
pub struct Loaded {
    program: LoadedProgram,
    /// The maps, by their names in the object.
    maps: Vec<(&'static str, Map)>,
    /// The variant of the BPF program for test runs: in a test run, the socket buffer begins with
    /// the network header. `None` if this variant would equal the BPF program.
    trial: Option<Trial>,
}

/// The code of a BPF program that is loaded at the first test run.
#[derive(Debug)]
struct Trial {
    code: Vec<Instruction>,
    functions: Vec<u32>,
    program: OnceLock<LoadedProgram>,
}

/// Why an object can't be loaded.
#[derive(Debug)]
pub enum LoadError {
    /// A capability is missing.
    Privilege {
        /// The capabilities that the process needs to load the object.
        capabilities: &'static str,
        /// The kernel's error.
        error: io::Error,
    },
    /// The object needs more locked memory than the process may use. Only kernels before 5.11 count
    /// a BPF object's memory as locked memory.
    Locked {
        /// Bytes of memory that the process may lock.
        limit: u64,
    },
    /// A map can't be created or filled.
    Map(io::Error),
    /// The verifier refuses the BPF program.
    Refused(Refused),
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Privilege {
                capabilities,
                error,
            } => {
                write!(
                    f,
                    "loading a BPF program takes {capabilities}, which this process lacks or has \
                     given up: {error}"
                )
            }
            Self::Locked { limit } => write!(
                f,
                "before Linux 5.11 BPF programs and their maps are locked memory, and this process may lock {limit} \
                 bytes: raise that limit (ulimit -l unlimited, LimitMEMLOCK=infinity in a unit)"
            ),
            Self::Map(error) => write!(f, "the BPF program's maps: {error}"),
            Self::Refused(refused) => refused.fmt(f),
        }
    }
}

impl LoadError {
    /// Returns the error for a map that belongs to a BPF program of this kind.
    pub fn of_map(kind: ProgramKind, error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EPERM) => denied(kind, error),
            _ => Self::Map(error),
        }
    }
}

impl std::error::Error for LoadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Privilege { error, .. } | Self::Map(error) => Some(error),
            Self::Refused(refused) => Some(refused),
            Self::Locked { .. } => None,
        }
    }
}

/// Bytes before the network header in the buffer of a test run.
const TRIAL_START: i32 = 14;

impl Loaded {
    /// Creates the object's maps and loads its BPF program. In the kernel, the maps and the BPF
    /// program get the name `name`: at most 15 letters, digits, dots and underscores.
    ///
    /// # Errors
    /// See [`LoadError`].
    pub fn load(object: &Object, name: &str) -> Result<Self, LoadError> {
        Self::load_with(object, name, &[])
    }

    /// Loads the object as [`Loaded::load`] does, but with the maps in `given`. The BPF program
    /// uses a given map for the map of the same name that the object specifies. If the object
    /// specifies that the caller gives a map, `given` must have this map. For every other map of
    /// the object that is not in `given`, this function creates a new map.
    ///
    /// # Errors
    /// See [`LoadError`]. [`LoadError::Map`] when `given` lacks a map that the caller must give, or
    /// when a given map has another shape than the object specifies.
    pub fn load_with(
        object: &Object,
        name: &str,
        given: &[(&str, BorrowedFd<'_>)],
    ) -> Result<Self, LoadError> {
        Self::load_by(object, name, 0, &|spec| map(name, spec, given))
    }

    /// Loads the object as [`Loaded::load_with`] does, but so that only one device of the calling
    /// thread's network namespace can run it: see [`LoadedProgram::load_functions`].
    ///
    /// # Errors
    /// As [`Loaded::load_with`].
    pub fn load_for(
        object: &Object,
        name: &str,
        given: &[(&str, BorrowedFd<'_>)],
        ifindex: u32,
    ) -> Result<Self, LoadError> {
        Self::load_by(object, name, ifindex, &|spec| map(name, spec, given))
    }

    /// Loads the object as [`Loaded::load_with`] does, but shares the maps of the same names with
    /// `other`, an object that is compiled from the same source for another hook.
    ///
    /// # Errors
    /// As [`Loaded::load_with`].
    pub fn load_sharing(
        object: &Object,
        name: &str,
        given: &[(&str, BorrowedFd<'_>)],
        other: &Self,
    ) -> Result<Self, LoadError> {
        Self::load_by(object, name, 0, &|spec| match other.map(spec.name) {
            Some(map) if !spec.is_given => map.try_clone(),
            _ => map(name, spec, given),
        })
    }

    /// Loads the object for test runs, as [`Loaded::load`] does. Creates an empty map in place of
    /// each map that the caller would have to give.
    ///
    /// # Errors
    /// See [`LoadError`].
    pub fn load_apart(object: &Object, name: &str) -> Result<Self, LoadError> {
        Self::load_by(object, name, 0, &|spec| Map::create(name, spec))
    }

    fn load_by(
        object: &Object,
        name: &str,
        device: u32,
        map: &dyn Fn(&MapSpec) -> io::Result<Map>,
    ) -> Result<Self, LoadError> {
        let maps = object.maps.iter();
        let maps = maps.map(|spec| Ok((spec.name, map(spec)?)));
        let maps: io::Result<Vec<_>> = maps.collect();
        let maps = maps.map_err(|error| LoadError::of_map(object.kind, error))?;
        let numbers: Vec<i32> = maps.iter().map(|(_, map)| map.descriptor()).collect();
        let code = object.relocated(&numbers, 0);
        let program =
            LoadedProgram::load_functions(object.kind, name, &code, &object.functions, device);
        let program = program.map_err(|refused| match refused.error.raw_os_error() {
            Some(libc::EPERM) => denied(object.kind, refused.error),
            _ => LoadError::Refused(refused),
        })?;
        let is_trial_other = object.has_start() && object.kind == ProgramKind::SocketFilter;
        let trial = is_trial_other.then(|| Trial {
            code: object.relocated(&numbers, TRIAL_START),
            functions: object.functions.clone(),
            program: OnceLock::new(),
        });
        Ok(Self {
            program,
            maps,
            trial,
        })
    }

    /// Returns the BPF program alone. The kernel keeps the BPF program's maps.
    pub fn into_program(self) -> LoadedProgram {
        self.program
    }

    /// Bytes that the kernel charges to a socket for the BPF program: the length of the code after
    /// the verifier has rewritten it. 0 if the length is unknown.
    pub fn charged(&self) -> u64 {
        self.program.translated().unwrap_or(0).into()
    }

    /// The number of instructions that the verifier has walked; see [`LoadedProgram::verified`].
    ///
    /// # Errors
    /// No known kernel returns an error.
    pub fn verified(&self) -> io::Result<u32> {
        self.program.verified()
    }

    /// Runs the BPF program once on a frame whose metadata has no VLAN tag, mark, queue or hash.
    /// Returns the BPF program's result.
    ///
    /// # Errors
    /// See [`LoadedProgram::run`].
    pub fn run(&self, frame: &[u8]) -> io::Result<u32> {
        self.time(frame, 1).map(|(verdict, _)| verdict)
    }

    /// Runs the BPF program once on a packet with a mark; see [`Loaded::run`]. Not for XDP
    /// programs, whose context has no mark.
    ///
    /// # Errors
    /// See [`LoadedProgram::run`].
    pub fn run_marked(&self, frame: &[u8], mark: u32) -> io::Result<u32> {
        // The first fields of struct __sk_buff (linux/bpf.h): len and pkt_type, which can't be set,
        // then mark.
        let context = [0, 0, mark].map(u32::to_ne_bytes).concat();
        Ok(self.tried()?.run(frame, &context, 1)?.verdict)
    }

    /// Runs the BPF program `repeat` times. Returns the last result, and the average nanoseconds of
    /// a run.
    ///
    /// # Errors
    /// See [`LoadedProgram::run`].
    pub fn time(&self, frame: &[u8], repeat: u32) -> io::Result<(u32, u32)> {
        let program = self.tried()?;
        loop {
            // A signal only ends a test run early, so the test run is repeated.
            match program.run(frame, &[], repeat) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                run => {
                    return run.map(
                        |Run {
                             verdict,
                             nanoseconds,
                         }| (verdict, nanoseconds),
                    );
                }
            }
        }
    }

    fn tried(&self) -> io::Result<&LoadedProgram> {
        match &self.trial {
            None => Ok(&self.program),
            Some(trial) => trial.program(),
        }
    }

    /// The map of this name; `None` if the object has no such map.
    pub fn map(&self, name: &str) -> Option<&Map> {
        let found = self.maps.iter().find(|(known, _)| *known == name);
        found.map(|(_, map)| map)
    }
}

impl From<LoadedProgram> for Loaded {
    /// A BPF program that another process has loaded. Its maps are out of reach.
    fn from(program: LoadedProgram) -> Self {
        Self {
            program,
            maps: Vec::new(),
            trial: None,
        }
    }
}

impl AsFd for Loaded {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }
}

/// Returns the map for this specification: the given map of this name, or a new map.
fn map(name: &str, spec: &MapSpec, given: &[(&str, BorrowedFd<'_>)]) -> io::Result<Map> {
    match given.iter().find(|(known, _)| *known == spec.name) {
        Some((_, fd)) => Map::given(*fd, spec),
        None if spec.is_given => {
            let text = format!("the caller has not given the map {}", spec.name);
            Err(io::Error::new(io::ErrorKind::InvalidInput, text))
        }
        None => Map::create(name, spec),
    }
}

fn denied(kind: ProgramKind, error: io::Error) -> LoadError {
    match locked_limit() {
        Some(limit) => LoadError::Locked { limit },
        None => LoadError::Privilege {
            capabilities: kind.capabilities(),
            error,
        },
    }
}

impl Trial {
    fn program(&self) -> io::Result<&LoadedProgram> {
        if self.program.get().is_none() {
            let (kind, name) = (ProgramKind::SocketFilter, "trial");
            let program = LoadedProgram::load_functions(kind, name, &self.code, &self.functions, 0);
            let _ = self.program.set(program.map_err(|refused| refused.error)?);
        }
        self.program.get().ok_or(io::ErrorKind::Other.into())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Table;
    use super::*;
    use fanpcap_bpf::Relocation;
    use std::sync::atomic::Ordering;

    /// Returns a BPF program that returns byte 9 of entry 1 of the map "table".
    fn object() -> Object {
        let map = Instruction::map(1, 0);
        let look_up = [
            Instruction::new(0x62, 10, 0, -4, 1), // BPF_ST | BPF_MEM | BPF_W
            Instruction::new(0xbf, 2, 10, 0, 0),  // BPF_ALU64 | BPF_MOV | BPF_X
            Instruction::new(0x07, 2, 0, 0, -4),  // BPF_ALU64 | BPF_ADD | BPF_K
            Instruction::new(0x85, 0, 0, 0, 1),   // bpf_map_lookup_elem
            Instruction::new(0x15, 0, 0, 1, 0),   // BPF_JMP | BPF_JEQ | BPF_K
            Instruction::new(0x71, 0, 0, 1, 0),   // BPF_LDX | BPF_MEM | BPF_B
            Instruction::exit(),
        ];
        Object {
            kind: ProgramKind::SocketFilter,
            instructions: [&map[..], &look_up].concat(),
            functions: Vec::new(),
            maps: vec![MapSpec::given("table", 4096)],
            relocations: vec![(0, Relocation::Map(0))],
            notes: Vec::new(),
        }
    }

    #[test]
    #[ignore = "needs root: eBPF"]
    fn a_program_reads_the_map_that_it_was_given() {
        let table = Table::create("table", 4096).unwrap();
        let given = [("other", table.as_fd()), ("table", table.as_fd())];
        let loaded = Loaded::load_with(&object(), "test", &given).unwrap();
        for byte in [0, 7, 255] {
            table.bytes()[9].store(byte, Ordering::Relaxed);
            assert_eq!(loaded.run(&[0; 60]).unwrap(), byte.into());
        }
    }

    #[test]
    #[ignore = "needs root: eBPF"]
    fn a_map_that_is_missing_or_of_another_shape_is_named() {
        let missing = Loaded::load(&object(), "test").unwrap_err();
        assert!(
            missing.to_string().contains("not given the map table"),
            "{missing}"
        );
        assert_eq!(
            Loaded::load_apart(&object(), "test")
                .unwrap()
                .run(&[0; 60])
                .unwrap(),
            0
        );
        let small = Table::create("table", 2048).unwrap();
        let wrong = Loaded::load_with(&object(), "test", &[("table", small.as_fd())]).unwrap_err();
        assert!(wrong.to_string().contains("256 values"), "{wrong}");
    }
}
