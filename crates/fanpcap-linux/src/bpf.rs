//! eBPF by bpf(2): programs at XDP, a map of one number, and test runs that send what they make.

use std::ffi::CStr;
use std::fmt;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

mod array;
pub mod socket_filter;

pub use array::Array;

/// One instruction (linux/bpf.h, `struct bpf_insn`).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    immediate: i32,
}

impl Instruction {
    /// Puts it together; registers are 0 to 10.
    pub const fn new(code: u8, target: u8, source: u8, offset: i16, immediate: i32) -> Self {
        // The struct has two bit-fields of four bits, whose order is that of the machine's bytes.
        let registers = if cfg!(target_endian = "little") {
            source << 4 | target
        } else {
            target << 4 | source
        };
        Self {
            code,
            registers,
            offset,
            immediate,
        }
    }
}

/// Why the kernel does not take a program.
#[derive(Debug)]
pub struct LoadError {
    /// `EPERM` without `CAP_BPF` and `CAP_NET_ADMIN`; `EINVAL` or `EACCES` when the verifier objects.
    pub error: io::Error,
    /// What the verifier said.
    pub log: String,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let log = self.log.trim_end();
        let end = if log.is_empty() { "" } else { "\n" };
        write!(
            f,
            "the kernel refuses the program: {}{end}{log}",
            self.error
        )
    }
}

impl std::error::Error for LoadError {}

/// An eBPF program of type XDP, loaded.
#[derive(Debug)]
pub struct Program {
    fd: OwnedFd,
}

/// Which of a device's hooks runs a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// The stack's own, after the frame has become an skb; every device has it.
    Generic,
    /// The driver's, before that.
    Driver,
}

/// A program at a device; dropping it takes the program away.
#[derive(Debug)]
pub struct Attached {
    _link: OwnedFd,
}

impl Program {
    /// Loads `code`; when the verifier objects, the error has its log.
    ///
    /// # Errors
    /// See [`LoadError`].
    pub fn load(name: &str, code: &[Instruction]) -> Result<Self, LoadError> {
        load(name, code, &mut []).or_else(|_| {
            // The log is long to write, so it is asked for only when there is something to explain.
            let mut log = vec![0; LOG_LEN];
            load(name, code, &mut log).map_err(|error| LoadError {
                error,
                log: text(&log),
            })
        })
    }

    /// Attaches it to a device of the calling thread's namespace.
    ///
    /// # Errors
    /// `EBUSY` when the device has one, `EOPNOTSUPP` when its driver can't.
    pub fn attach(&self, ifindex: u32, hook: Hook) -> io::Result<Attached> {
        let mut attr = LinkCreate {
            program: number(&self.fd),
            ifindex,
            kind: ATTACH_XDP,
            flags: match hook {
                Hook::Generic => 1 << 1, // XDP_FLAGS_SKB_MODE
                Hook::Driver => 1 << 2,  // XDP_FLAGS_DRV_MODE
            },
        };
        Ok(Attached {
            _link: descriptor(bpf(BPF_LINK_CREATE, &mut attr)?)?,
        })
    }

    /// Runs it `repeat` times on `frame`, each time with the kernel doing what its verdict says, such
    /// as to send the frame on the device that it redirects to (`BPF_F_TEST_XDP_LIVE_FRAMES`, since
    /// Linux 5.18). A run finds what earlier ones wrote into the frame. Frames that the device refuses
    /// vanish without an error.
    ///
    /// # Errors
    /// `EINVAL` on older kernels, `EINTR` when a signal came.
    pub fn run_live(&self, frame: &[u8], repeat: u32) -> io::Result<()> {
        let mut attr = TestRun {
            program: number(&self.fd),
            data_len: len(frame),
            data: frame.as_ptr().expose_provenance() as u64,
            repeat,
            flags: TEST_XDP_LIVE_FRAMES,
            ..TestRun::default()
        };
        bpf(BPF_PROG_TEST_RUN, &mut attr).map(drop)
    }
}

fn load(name: &str, code: &[Instruction], log: &mut [u8]) -> io::Result<Program> {
    let mut attr = ProgramLoad {
        kind: PROGRAM_XDP,
        code_len: len(code),
        code: code.as_ptr().expose_provenance() as u64,
        license: LICENSE.as_ptr().expose_provenance() as u64,
        name: short(name),
        ..ProgramLoad::default()
    };
    if !log.is_empty() {
        attr.log_level = 1;
        attr.log_len = len(log);
        attr.log = log.as_mut_ptr().expose_provenance() as u64;
    }
    let fd = descriptor(bpf(BPF_PROG_LOAD, &mut attr)?)?;
    Ok(Program { fd })
}

/// One 64-bit number that programs and processes share: a map of type array with one element.
#[derive(Debug)]
pub struct Number {
    fd: OwnedFd,
}

impl Number {
    /// Makes one that is 0.
    ///
    /// # Errors
    /// `EPERM` without `CAP_BPF`.
    pub fn new(name: &str) -> io::Result<Self> {
        let mut attr = MapCreate {
            kind: MAP_ARRAY,
            key_len: 4,
            value_len: 8,
            entries: 1,
            name: short(name),
            ..MapCreate::default()
        };
        let fd = descriptor(bpf(BPF_MAP_CREATE, &mut attr)?)?;
        Ok(Self { fd })
    }

    /// What it is now.
    ///
    /// # Errors
    /// None on any known kernel.
    pub fn get(&self) -> io::Result<u64> {
        let (key, mut value) = (0_u32, 0_u64);
        let mut attr = MapElement {
            map: number(&self.fd),
            key: (&raw const key).expose_provenance() as u64,
            value: (&raw mut value).expose_provenance() as u64,
            ..MapElement::default()
        };
        bpf(BPF_MAP_LOOKUP_ELEM, &mut attr)?;
        Ok(value)
    }

    /// The two instructions that put its address into a register of a program that is loaded while
    /// this value lives (`BPF_PSEUDO_MAP_VALUE`).
    pub fn address(&self, register: u8) -> [Instruction; 2] {
        let fd: RawFd = self.fd.as_raw_fd();
        [
            Instruction::new(LOAD_WIDE, register, PSEUDO_MAP_VALUE, 0, fd),
            Instruction::new(0, 0, 0, 0, 0),
        ]
    }
}

/// The attributes of one command: a plain struct whose pointers, held as numbers, are valid for what
/// the command does with them.
trait Attributes {}
impl Attributes for MapCreate {}
impl Attributes for MapElement {}
impl Attributes for ProgramLoad {}
impl Attributes for TestRun {}
impl Attributes for LinkCreate {}

fn bpf<A: Attributes>(command: libc::c_long, attributes: &mut A) -> io::Result<libc::c_long> {
    let size = mem::size_of::<A>();
    // SAFETY: the kernel reads and writes `size` bytes of a live struct; `Attributes` vouches for the
    // pointers in it, which their owners, all in this file, keep alive through the call.
    let rc = unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *attributes, size) };
    if rc < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(rc)
    }
}

fn descriptor(rc: libc::c_long) -> io::Result<OwnedFd> {
    let fd = RawFd::try_from(rc).map_err(|_| io::ErrorKind::InvalidData)?;
    // SAFETY: the command has just opened it for us, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn number(fd: &OwnedFd) -> u32 {
    fd.as_raw_fd().unsigned_abs()
}

fn len<T>(slice: &[T]) -> u32 {
    u32::try_from(slice.len()).unwrap_or(u32::MAX)
}

/// A name as the kernel keeps it: 15 bytes of letters, digits, dots and underscores.
fn short(name: &str) -> [u8; 16] {
    let mut short = [0; 16];
    for (to, from) in short[..15].iter_mut().zip(name.bytes()) {
        *to = from;
    }
    short
}

fn text(log: &[u8]) -> String {
    let end = log.iter().position(|&byte| byte == 0);
    String::from_utf8_lossy(&log[..end.unwrap_or(log.len())]).into_owned()
}

// linux/bpf.h: the leading fields of `union bpf_attr`, one struct for each command. What is left out
// at the end counts as zeros.

#[repr(C)]
#[derive(Default)]
struct MapCreate {
    kind: u32,
    key_len: u32,
    value_len: u32,
    entries: u32,
    flags: u32,
    inner_map: u32,
    numa_node: u32,
    name: [u8; 16],
}

#[repr(C)]
#[derive(Default)]
struct MapElement {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
#[derive(Default)]
struct ProgramLoad {
    kind: u32,
    code_len: u32,
    code: u64,
    license: u64,
    log_level: u32,
    log_len: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
}

#[repr(C)]
#[derive(Default)]
struct TestRun {
    program: u32,
    verdict: u32,
    data_len: u32,
    data_out_len: u32,
    data: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    context_len: u32,
    context_out_len: u32,
    context: u64,
    context_out: u64,
    flags: u32,
    cpu: u32,
    batch_size: u32,
    padding: u32,
}

#[repr(C)]
#[derive(Default)]
struct LinkCreate {
    program: u32,
    ifindex: u32,
    kind: u32,
    flags: u32,
}

// enum bpf_cmd.
const BPF_MAP_CREATE: libc::c_long = 0;
const BPF_MAP_LOOKUP_ELEM: libc::c_long = 1;
const BPF_PROG_LOAD: libc::c_long = 5;
const BPF_PROG_TEST_RUN: libc::c_long = 10;
const BPF_LINK_CREATE: libc::c_long = 28;

/// enum bpf_map_type, bpf_prog_type, bpf_attach_type.
const MAP_ARRAY: u32 = 2;
const PROGRAM_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;

const TEST_XDP_LIVE_FRAMES: u32 = 1 << 1;
/// BPF_LD | BPF_IMM | BPF_DW, and what its source register then means.
const LOAD_WIDE: u8 = 0x18;
const PSEUDO_MAP_VALUE: u8 = 2;

/// Some helpers are for programs under the GPL only. The kernel asks what a program says of itself.
const LICENSE: &CStr = c"Dual BSD/GPL";
const LOG_LEN: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[ignore = "needs root: eBPF"]
    fn a_program_that_is_wrong_is_refused_with_the_verifiers_words() {
        // BPF_JMP | BPF_EXIT while r0 was never set.
        let refused = Program::load("wrong", &[Instruction::new(0x95, 0, 0, 0, 0)]).unwrap_err();
        assert!(refused.to_string().contains("R0 !read_ok"), "{refused}");
    }

    #[test]
    #[ignore = "needs root: eBPF"]
    fn a_number_starts_at_nothing() {
        assert_eq!(Number::new("packets").unwrap().get().unwrap(), 0);
    }
}
