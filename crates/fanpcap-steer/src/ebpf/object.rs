//! A program that is ready to be loaded, and one that was.

use super::assembler::{Code, Relocation};
use super::listing;
use super::maps::{FRAGMENT_KEY_LEN, FRAGMENT_VALUE_LEN, Map, SET_KEY_LEN, TURNS_LEN, set_keys};
use super::room::NoRoom;
use crate::ir::{COUNTERS, FRAGMENTS_MAX, Program as Tree};
use fanpcap_bpf::{Instruction, MapKind, ProgramKind};
use fanpcap_linux::bpf::{self, Program};
use fanpcap_linux::packet::{self, optmem};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;

/// Instructions, the maps that they need, and where these have to be put in.
#[derive(Debug)]
pub struct Object {
    kind: ProgramKind,
    code: Code,
    maps: Vec<Map>,
    set_keys: Vec<u8>,
}

/// An object that the kernel has. It may be dropped once it is attached, but for its counters.
#[derive(Debug)]
pub struct Loaded {
    program: Program,
    maps: Vec<(Map, bpf::Map)>,
    /// The same for buffers that begin with the network header, as those of a trial do: code, and when it was loaded.
    trial: Option<Trial>,
}

#[derive(Debug)]
struct Trial {
    code: Vec<Instruction>,
    functions: Vec<u32>,
    program: OnceLock<Program>,
}

/// Why an object can't be loaded.
#[derive(Debug)]
pub enum LoadError {
    /// A capability is missing.
    Privilege {
        /// What it takes.
        capabilities: &'static str,
        /// What the kernel said.
        error: io::Error,
    },
    /// It would take more locked memory than the process may have, which kernels before 5.11 count.
    Locked {
        /// How many bytes it may have.
        limit: u64,
    },
    /// A map can't be made or filled.
    Map(io::Error),
    /// The verifier refuses the program.
    Refused(bpf::LoadError),
    /// It is too long for a socket's filter.
    NoRoom(NoRoom),
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Privilege {
                capabilities,
                error,
            } => {
                write!(f, "a program in the kernel takes {capabilities}: {error}")
            }
            Self::Locked { limit } => write!(
                f,
                "before Linux 5.11 programs and their maps are locked memory, of which this process may have {limit} \
                 bytes: raise that (ulimit -l unlimited, LimitMEMLOCK=infinity in a unit)"
            ),
            Self::Map(error) => write!(f, "the program's maps: {error}"),
            Self::Refused(refused) => refused.fmt(f),
            Self::NoRoom(no_room) => no_room.fmt(f),
        }
    }
}

impl std::error::Error for LoadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Privilege { error, .. } | Self::Map(error) => Some(error),
            Self::Refused(refused) => Some(refused),
            Self::Locked { .. } | Self::NoRoom(_) => None,
        }
    }
}

/// Bytes that a trial's buffer has before the network header.
const TRIAL_START: i32 = 14;

impl Object {
    pub(super) fn new(kind: ProgramKind, code: Code, maps: Vec<Map>, tree: &Tree) -> Self {
        let set_keys = if maps.contains(&Map::Sets) {
            set_keys(tree).concat()
        } else {
            Vec::new()
        };
        Self {
            kind,
            code,
            maps,
            set_keys,
        }
    }

    /// Why a socket has no room for it as its filter, by its own length: what the kernel makes of it may be longer.
    pub fn lacks_room(&self) -> Option<NoRoom> {
        let bytes = self.code.instructions.len() as u64 * 8;
        NoRoom::of(bytes)
    }

    /// How many instructions it has.
    pub fn instructions(&self) -> usize {
        self.code.instructions.len()
    }

    /// The same with those of each function counted with each call: what the verifier has to go through at least.
    pub fn steps(&self) -> usize {
        self.code.steps
    }

    /// The maps that it needs, in words, in the order in which the listing numbers them.
    pub fn maps(&self) -> impl Iterator<Item = String> {
        self.maps.iter().map(|map| match map {
            Map::Counters => format!("counters, array of {COUNTERS} numbers"),
            Map::Late => "late fragments, one number".to_owned(),
            Map::Turns => "turns and samples, array on each CPU".to_owned(),
            Map::Fragments => format!("fragments, LRU hash of {FRAGMENTS_MAX} datagrams"),
            Map::Sets => {
                let len = SET_KEY_LEN.try_into().unwrap_or(1);
                format!("sets, hash of {} numbers", self.set_keys.len() / len)
            }
        })
    }

    /// The code, one line for each instruction, with what it is for above.
    pub fn listing(&self) -> String {
        listing::listing(&self.code)
    }

    /// The code, before the maps are put in.
    pub fn code(&self) -> &[Instruction] {
        &self.code.instructions
    }

    /// The same with another instruction at a place: what shows that a test would find a bug in the code.
    #[doc(hidden)]
    #[must_use]
    pub fn with_instruction(mut self, at: usize, instruction: Instruction) -> Self {
        if let Some(place) = self.code.instructions.get_mut(at) {
            *place = instruction;
        }
        self
    }

    /// Makes the maps and loads the program, under a name of at most 15 letters, digits, dots and underscores.
    ///
    /// # Errors
    /// See [`LoadError`].
    pub fn load(&self, name: &str) -> Result<Loaded, LoadError> {
        let made = self
            .maps
            .iter()
            .map(|&map| Ok((map, self.make(map, name)?)));
        let made: Result<Vec<_>, io::Error> = made.collect();
        let maps = made.map_err(|error| match error.raw_os_error() {
            Some(EPERM) => self.denied(error),
            _ => LoadError::Map(error),
        })?;
        let code = self.relocated(&maps, 0);
        let program = Program::load_functions(self.kind, name, &code, &self.code.functions);
        let program = program.map_err(|refused| match refused.error.raw_os_error() {
            Some(EPERM) => self.denied(refused.error),
            _ => LoadError::Refused(refused),
        })?;
        let starts = self.code.relocations.iter();
        let moves = starts
            .into_iter()
            .any(|&(_, what)| what == Relocation::Start);
        let trial = moves.then(|| Trial {
            code: self.relocated(&maps, TRIAL_START),
            functions: self.code.functions.clone(),
            program: OnceLock::new(),
        });
        Ok(Loaded {
            program,
            maps,
            trial,
        })
    }

    /// What `EPERM` is about.
    fn denied(&self, error: io::Error) -> LoadError {
        if let Some(limit) = bpf::locked_limit() {
            return LoadError::Locked { limit };
        }
        LoadError::Privilege {
            capabilities: self.kind.capabilities(),
            error,
        }
    }

    fn make(&self, map: Map, name: &str) -> io::Result<bpf::Map> {
        match map {
            Map::Counters => bpf::Map::array(name, 1, 8 * COUNTERS),
            Map::Late => bpf::Map::array(name, 1, 8),
            Map::Turns => bpf::Map::new(MapKind::PerCpuArray, name, 4, TURNS_LEN, 1),
            Map::Fragments => {
                let (key, value) = (FRAGMENT_KEY_LEN, FRAGMENT_VALUE_LEN);
                bpf::Map::new(MapKind::LruHash, name, key, value, FRAGMENTS_MAX)
            }
            Map::Sets => {
                let len = SET_KEY_LEN.try_into().unwrap_or(1);
                let count = self.set_keys.len() / len;
                let entries = u32::try_from(count).map_err(|_| io::ErrorKind::OutOfMemory)?;
                let map = bpf::Map::new(MapKind::Hash, name, SET_KEY_LEN, 1, entries.max(1))?;
                map.insert(&self.set_keys, &vec![1; count])?;
                Ok(map)
            }
        }
    }

    fn relocated(&self, maps: &[(Map, bpf::Map)], start: i32) -> Vec<Instruction> {
        let mut code = self.code.instructions.clone();
        for &(at, what) in &self.code.relocations {
            let Some(instruction) = code.get_mut(at) else {
                continue;
            };
            let register = instruction.target();
            *instruction = match what {
                Relocation::Start => instruction.with_immediate(start),
                Relocation::Map(map) => match maps.get(map) {
                    Some((_, map)) => map.reference(register)[0],
                    None => continue,
                },
                Relocation::Value(map) => match maps.get(map) {
                    Some((_, map)) => map.address(register)[0],
                    None => continue,
                },
            };
        }
        code
    }
}

impl Loaded {
    /// Makes it the program of the group that a packet socket is in, of mode `PACKET_FANOUT_EBPF`.
    ///
    /// # Errors
    /// See [`packet::set_fanout_program`].
    pub fn attach_fanout(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        packet::set_fanout_program(socket, self.program.as_fd())
    }

    /// Sees to it that a socket has room for it as its filter, beside the one that rejects everything.
    ///
    /// # Errors
    /// [`LoadError::NoRoom`] where it has not. Where that can't be told, attaching it will tell.
    pub fn ensure_room(&self) -> Result<(), LoadError> {
        match optmem::has_room(self.program.as_fd()) {
            Ok(false) => Err(LoadError::NoRoom(self.no_room())),
            Ok(true) | Err(_) => Ok(()),
        }
    }

    /// What to say where a socket has no room for it.
    pub fn no_room(&self) -> NoRoom {
        NoRoom::new(self.program.translated().unwrap_or(0).into())
    }

    /// Makes it the filter of a socket, in place of the one that it had.
    ///
    /// # Errors
    /// `EPERM` when the socket's filter is locked, `ENOMEM` when its memory is used up.
    pub fn attach_filter(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        packet::attach_program(socket, self.program.as_fd())
    }

    /// Tries it out on a frame, which has no tag beside it, no mark, queue or hash.
    ///
    /// # Errors
    /// See [`Program::run`].
    pub fn run(&self, frame: &[u8]) -> io::Result<u32> {
        self.time(frame, 1).map(|(verdict, _)| verdict)
    }

    /// As [`Loaded::run`], of a packet that has a mark. At XDP there is none.
    ///
    /// # Errors
    /// See [`Program::run`].
    pub fn run_marked(&self, frame: &[u8], mark: u32) -> io::Result<u32> {
        // Of struct __sk_buff (linux/bpf.h) the first fields: len and pkt_type, which can't be set, and mark.
        let context: Vec<u8> = [0, 0, mark]
            .into_iter()
            .flat_map(u32::to_ne_bytes)
            .collect();
        Ok(self.tried()?.run(frame, &context, 1)?.verdict)
    }

    /// Tries it out many times: what it returned last, and how many nanoseconds a run took.
    ///
    /// # Errors
    /// See [`Program::run`].
    pub fn time(&self, frame: &[u8], repeat: u32) -> io::Result<(u32, u32)> {
        let program = self.tried()?;
        loop {
            // A signal only ends a trial early.
            match program.run(frame, &[], repeat) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                run => return run.map(|run| (run.verdict, run.nanoseconds)),
            }
        }
    }

    /// How many instructions the verifier went through; see [`Program::verified`].
    ///
    /// # Errors
    /// None on any known kernel.
    pub fn verified(&self) -> io::Result<u32> {
        self.program.verified()
    }

    /// The program for trials.
    fn tried(&self) -> io::Result<&Program> {
        match &self.trial {
            None => Ok(&self.program),
            Some(trial) => trial.program(),
        }
    }

    /// The program's counters, all of [`crate::ir::COUNTERS`]; none where it has none.
    ///
    /// # Errors
    /// None on any known kernel.
    pub fn counters(&self) -> io::Result<Vec<u64>> {
        self.map(Map::Counters)
            .map_or(Ok(Vec::new()), bpf::Map::numbers)
    }

    /// Adds them to `counts`; they can go down, by `dec`. It allocates nothing, so that signal handlers may.
    ///
    /// # Errors
    /// `EPERM` before Linux 5.19 where the process has dropped its privileges.
    pub fn add_counters(&self, counts: &mut [u64; COUNTERS]) -> io::Result<()> {
        let Some(map) = self.map(Map::Counters) else {
            return Ok(());
        };
        let mut own = [0; COUNTERS];
        map.read_numbers(&mut own)?;
        for (count, more) in counts.iter_mut().zip(own) {
            *count = count.wrapping_add(more);
        }
        Ok(())
    }

    /// How many later fragments came before their first, and may have left their flow by that. It allocates nothing.
    ///
    /// # Errors
    /// As [`Loaded::add_counters`].
    pub fn late(&self) -> io::Result<u64> {
        let mut late = [0];
        self.map(Map::Late)
            .map_or(Ok(()), |map| map.read_numbers(&mut late))?;
        Ok(late[0])
    }

    /// Whether it counts those.
    pub fn counts_late(&self) -> bool {
        self.map(Map::Late).is_some()
    }

    fn map(&self, what: Map) -> Option<&bpf::Map> {
        let found = self.maps.iter().find(|(map, _)| *map == what);
        found.map(|(_, map)| map)
    }
}

impl Trial {
    fn program(&self) -> io::Result<&Program> {
        if self.program.get().is_none() {
            let (kind, name) = (ProgramKind::SocketFilter, "trial");
            let program = Program::load_functions(kind, name, &self.code, &self.functions);
            let _ = self.program.set(program.map_err(|refused| refused.error)?);
        }
        self.program.get().ok_or(io::ErrorKind::Other.into())
    }
}

/// errno(3).
const EPERM: i32 = 1;
