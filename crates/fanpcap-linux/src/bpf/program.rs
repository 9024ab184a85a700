//! Loads BPF programs, and runs them for tests.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use fanpcap_bpf::{Instruction, ProgramKind};

use super::info::{self, Described};
use super::object_id::open_program;
use super::{Attributes, Map, Refused, bpf, len, number, short, types};
use crate::bytes::text;
use crate::errno::owned;

/// A loaded BPF program.
#[derive(Debug)]
pub struct LoadedProgram {
    fd: OwnedFd,
}

/// The outcome of a test run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The BPF program's return value.
    pub verdict: u32,
    /// The average time of a run.
    pub nanoseconds: u32,
}

impl LoadedProgram {
    /// Loads `code`. If the verifier refuses the code, the error has the verifier's log.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn load(kind: ProgramKind, name: &str, code: &[Instruction]) -> Result<Self, Refused> {
        Self::load_functions(kind, name, code, &[], 0)
    }

    /// Loads `code`, which calls functions of its own.
    ///
    /// `functions` are the indices of the functions' first instructions, in ascending order. Each
    /// function takes the context and two numbers, and returns a number. With type information
    /// (`CONFIG_DEBUG_INFO_BTF`) the kernel verifies each function once. Without type information
    /// it verifies the function at every call.
    ///
    /// If `device` is not 0, it is the index of the only device that may run the XDP program. Such
    /// a BPF program may ask the driver about frames (`BPF_F_XDP_DEV_BOUND_ONLY`, since Linux 6.3),
    /// but can't be in a program array.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn load_functions(
        kind: ProgramKind,
        name: &str,
        code: &[Instruction],
        functions: &[u32],
        device: u32,
    ) -> Result<Self, Refused> {
        if !functions.is_empty() {
            if let Ok(program) = load(kind, name, code, functions, device, &mut []) {
                return Ok(program);
            }
        }
        // The kernel takes long to write the log. So this code asks for the log only after a load
        // has failed.
        let mut log = Vec::new();
        for log_len in [0, LOG_LEN, LOG_LEN_MAX] {
            log.resize(log_len, 0);
            let error = match load(kind, name, code, &[], device, &mut log) {
                Ok(program) => return Ok(program),
                Err(error) => error,
            };
            let longer = match error.raw_os_error() {
                Some(libc::EPERM) => false,
                Some(libc::ENOSPC) => log_len < LOG_LEN_MAX,
                _ => log_len == 0,
            };
            if !longer {
                let log = shown(&log);
                return Err(Refused { error, log });
            }
        }
        Err(Refused {
            error: io::ErrorKind::Other.into(),
            log: String::new(),
        })
    }

    /// Loads a socket filter that rejects every packet and counts the packet in `refused`, a map of
    /// one number. When the filter is attached, the caller may drop the returned value.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn refusing(refused: &Map) -> Result<Self, Refused> {
        let [address, address_high] = refused.address(1);
        Self::load(
            ProgramKind::SocketFilter,
            "refuse",
            &[
                address,
                address_high,
                Instruction::set(2, 1),
                Instruction::new(ATOMIC_ADD, 1, 2, 0, 0),
                Instruction::set(0, 0),
                Instruction::exit(),
            ],
        )
    }

    /// Runs the BPF program `repeat` times on `frame`. The kernel neither sends nor delivers the
    /// frame (`BPF_PROG_TEST_RUN`, since Linux 4.12). `context` is empty, or the beginning of
    /// `struct __sk_buff` or `struct xdp_md` with the fields that the kernel lets a caller set.
    ///
    /// # Errors
    /// - `EINVAL` for a frame that is too long, or that is too short for Ethernet or for the IP
    ///   version that the frame names.
    /// - `EINVAL` for a context that sets a field that the kernel does not let a caller set.
    /// - `EINTR` when a signal arrived.
    pub fn run(&self, frame: &[u8], context: &[u8], repeat: u32) -> io::Result<Run> {
        let mut attr = TestRun {
            program: number(&self.fd),
            data_len: len(frame),
            data: frame.as_ptr().expose_provenance() as u64,
            repeat,
            context_len: len(context),
            context: match context {
                [] => 0,
                _ => context.as_ptr().expose_provenance() as u64,
            },
            ..TestRun::default()
        };
        bpf(BPF_PROG_TEST_RUN, &mut attr)?;
        Ok(Run {
            verdict: attr.verdict,
            nanoseconds: attr.duration,
        })
    }

    /// Returns how many instructions the verifier has walked, over all paths
    /// (`BPF_OBJ_GET_INFO_BY_FD`). Before Linux 5.16, returns 0. The verifier's limit is a million.
    ///
    /// # Errors
    /// No known kernel returns an error.
    pub fn verified(&self) -> io::Result<u32> {
        self.info().map(|info| info.verified)
    }

    /// Returns the length in bytes that the code has after the verifier has rewritten it; 0 if the
    /// caller may not load BPF programs.
    ///
    /// # Errors
    /// No known kernel returns an error.
    pub fn translated(&self) -> io::Result<u32> {
        self.info().map(|info| info.translated)
    }

    /// The kernel's id of the BPF program.
    ///
    /// # Errors
    /// No known kernel returns an error.
    pub fn id(&self) -> io::Result<u32> {
        self.info().map(|info| info.id)
    }

    /// Opens the BPF program behind `fd`, which comes from another process.
    ///
    /// # Errors
    /// `InvalidData` when the BPF program is of another kind; `EINVAL` when `fd` is not a BPF
    /// object.
    pub fn open(fd: OwnedFd, kind: ProgramKind) -> io::Result<Self> {
        let program = Self { fd };
        if program.info()?.kind != kind.number() {
            let text = "the BPF program is of another kind";
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        Ok(program)
    }

    fn info(&self) -> io::Result<ProgramInfo> {
        info::of(self.fd.as_fd())
    }

    /// Runs an XDP program `repeat` times on `frame` (`BPF_F_TEST_XDP_LIVE_FRAMES`, since Linux
    /// 5.18). The kernel applies the verdict of each run: for example, if the XDP program redirects
    /// the frame to a device, the kernel sends it there. If a run changes the frame, later runs get
    /// the changed frame. A frame that the device refuses is lost without an error.
    ///
    /// # Errors
    /// `EINVAL` before Linux 5.18, `EINTR` when a signal arrived.
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

impl AsFd for LoadedProgram {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn load(
    kind: ProgramKind,
    name: &str,
    code: &[Instruction],
    functions: &[u32],
    device: u32,
    log: &mut [u8],
) -> io::Result<LoadedProgram> {
    let types = match functions {
        [] => None,
        _ => Some(types::load(kind.context())?),
    };
    let functions: Vec<[u32; 2]> = match functions {
        [] => Vec::new(),
        _ => [0]
            .iter()
            .chain(functions)
            .map(|&at| [at, types::GLOBAL])
            .collect(),
    };
    let mut attr = ProgramLoad {
        kind: kind.number(),
        code_len: len(code),
        code: code.as_ptr().expose_provenance() as u64,
        license: LICENSE.as_ptr().expose_provenance() as u64,
        name: short(name),
        flags: match kind {
            ProgramKind::Xdp if device != 0 => HAS_FRAGS | DEVICE_BOUND_ONLY,
            ProgramKind::Xdp => HAS_FRAGS,
            ProgramKind::SocketFilter | ProgramKind::SchedCls => 0,
        },
        ifindex: device,
        ..ProgramLoad::default()
    };
    if let Some(types) = &types {
        attr.types = number(types);
        attr.function_size = 8;
        attr.functions = functions.as_ptr().expose_provenance() as u64;
        attr.function_count = len(&functions);
    }
    if !log.is_empty() {
        attr.log_level = 1;
        attr.log_len = len(log);
        attr.log = log.as_mut_ptr().expose_provenance() as u64;
    }
    let fd = owned(bpf(BPF_PROG_LOAD, &mut attr)?)?;
    Ok(LoadedProgram { fd })
}

/// Returns the name of the BPF program with this id. Needs `CAP_SYS_ADMIN`.
///
/// # Errors
/// `ENOENT` when no BPF program has this id, `EPERM` without the capability.
pub fn program_name(id: u32) -> io::Result<String> {
    let info: ProgramInfo = info::of(open_program(id)?.as_fd())?;
    Ok(text(&info.name))
}

/// Returns the end of the verifier's log, at most `LOG_SHOWN` bytes.
fn shown(log: &[u8]) -> String {
    let text = text(log);
    let end = text.len().saturating_sub(LOG_SHOWN);
    let from = text.char_indices().map(|(at, _)| at).find(|&at| at >= end);
    text[from.unwrap_or(0)..].to_owned()
}

// SAFETY: `prog_load` of union bpf_attr. Code and log are slices with their own lengths. The
// license ends with a NUL.
unsafe impl Attributes for ProgramLoad {}
// SAFETY: the beginning of struct bpf_prog_info. In a struct of zeros all addresses are 0, so the
// kernel writes nowhere else.
unsafe impl Described for ProgramInfo {}
// SAFETY: `test` of union bpf_attr. Frame and context are slices with their own lengths, which the
// kernel only reads. The struct has no address for output.
unsafe impl Attributes for TestRun {}

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
    ifindex: u32,
    attach_type: u32,
    types: u32,
    function_size: u32,
    functions: u64,
    function_count: u32,
    line_size: u32,
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

/// The part of struct bpf_prog_info that is used here.
#[repr(C)]
#[derive(Default)]
struct ProgramInfo {
    kind: u32,
    id: u32,
    before: [u32; 3],
    translated: u32,
    between: [u64; 5],
    name: [u8; 16],
    after: [u64; 17],
    verified: u32,
    padding: u32,
}

const BPF_PROG_LOAD: libc::c_long = 5;
const BPF_PROG_TEST_RUN: libc::c_long = 10;

const TEST_XDP_LIVE_FRAMES: u32 = 1 << 1;
/// `BPF_F_XDP_HAS_FRAGS`, since Linux 5.18: the BPF program also handles frames in several buffers.
/// A driver whose device may put a frame into several buffers refuses BPF programs without this
/// flag. A tail call works only between BPF programs with the same value of this flag.
const HAS_FRAGS: u32 = 1 << 5;
/// `BPF_F_XDP_DEV_BOUND_ONLY`.
const DEVICE_BOUND_ONLY: u32 = 1 << 6;

/// BPF_STX | BPF_ATOMIC | BPF_DW. The immediate of the instruction is 0, which means BPF_ADD.
const ATOMIC_ADD: u8 = 0xdb;
#[cfg(test)]
const MOVE_REGISTER: u8 = 0xbf;
#[cfg(test)]
const CALL: u8 = 0x85;

/// The license of the BPF programs. The kernel compares this text with its list of GPL-compatible
/// licenses, and offers some helpers only to BPF programs with such a license.
const LICENSE: &CStr = c"Dual BSD/GPL";
/// Bytes of the buffer for the verifier's log. If the log does not fit into `LOG_LEN`, the load is
/// repeated with `LOG_LEN_MAX`. Errors show the last `LOG_SHOWN` bytes of the log.
const LOG_LEN: usize = 1 << 16;
const LOG_LEN_MAX: usize = 1 << 24;
const LOG_SHOWN: usize = 1 << 14;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet;
    use std::net::UdpSocket;

    #[test]
    #[ignore = "needs root: eBPF"]
    fn a_program_that_is_wrong_is_refused_with_the_verifiers_words() {
        // An exit instruction (BPF_JMP | BPF_EXIT) before any instruction has set r0.
        let code = [Instruction::exit()];
        for kind in [ProgramKind::SocketFilter, ProgramKind::Xdp] {
            let refused = LoadedProgram::load(kind, "wrong", &code).unwrap_err();
            let (text, all) = (refused.to_string(), format!("{refused:#}"));
            assert!(text.ends_with(": R0 !read_ok"), "{text}");
            assert!(!text.contains('\n'), "{text}");
            assert!(all.contains("\nprocessed "), "{all}");
        }
    }

    #[test]
    #[ignore = "needs root: eBPF"]
    fn what_a_socket_refuses_is_counted() {
        let refused = Map::array("refused", 1, 8).unwrap();
        let to = UdpSocket::bind("127.0.0.1:0").unwrap();
        let filter = LoadedProgram::refusing(&refused).unwrap();
        packet::attach_program(to.as_fd(), filter.as_fd()).unwrap();
        drop(filter);
        let from = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..3 {
            from.send_to(b"x", to.local_addr().unwrap()).unwrap();
        }
        assert_eq!(refused.numbers().unwrap(), [3]);
        to.set_nonblocking(true).unwrap();
        assert!(to.recv(&mut [0]).is_err());
    }

    #[test]
    #[ignore = "needs root: eBPF, and a kernel with type information"]
    fn a_function_is_verified_once() {
        const CALLS: i32 = 50;
        let call = |at: i32| {
            [
                Instruction::new(MOVE_REGISTER, 1, 6, 0, 0),
                Instruction::set(2, 0),
                Instruction::set(3, 0),
                Instruction::new(CALL, 0, 1, 0, 4 * (CALLS - at) - 3),
            ]
        };
        let mut code = vec![Instruction::new(MOVE_REGISTER, 6, 1, 0, 0)];
        code.extend((0..CALLS).flat_map(call));
        code.push(Instruction::exit());
        let function = len(&code);
        code.extend([Instruction::set(0, 7); 100]);
        code.push(Instruction::exit());
        for kind in [ProgramKind::SocketFilter, ProgramKind::Xdp] {
            let each = LoadedProgram::load(kind, "each", &code).unwrap();
            let once = LoadedProgram::load_functions(kind, "once", &code, &[function], 0).unwrap();
            assert!(each.verified().unwrap() > 5_000);
            assert!(once.verified().unwrap() < 400);
            assert_eq!(once.run(&[0; 60], &[], 1).unwrap().verdict, 7);
        }
    }

    #[test]
    #[ignore = "needs root: eBPF"]
    fn a_run_tells_what_the_program_returned() {
        let code = [Instruction::set(0, 7), Instruction::exit()];
        for kind in [ProgramKind::SocketFilter, ProgramKind::Xdp] {
            let program = LoadedProgram::load(kind, "seven", &code).unwrap();
            assert_eq!(program.run(&[0; 60], &[], 1).unwrap().verdict, 7);
        }
    }
}
