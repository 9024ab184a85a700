//! Live frames: the kernel runs our BPF program on a frame and sends the result
//! (Documentation/bpf/bpf_prog_run.rst in the kernel's source).

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Error, Result, anyhow, bail, ensure};
use fanpcap_bpf::ProgramKind;
use fanpcap_linux::bpf::{Attached, Hook, LoadedProgram, Map};
use fanpcap_linux::interface;
use fanpcap_linux::process::netns;

use crate::pool::{POOL_LIMIT, Pool};
use crate::program::{self, ROW_HEAD, SLOTS, STATE, STATE_LEN, Shape};

/// Maximum frames per call. A call sends many frames because its set-up costs about 15 us.
pub(crate) const MOST: u64 = 16_384;

/// A pool in maps, and the BPF program that sends it.
#[derive(Debug)]
pub(crate) struct Live {
    program: LoadedProgram,
    state: Map,
    template: Vec<u8>,
    _kept: Kept,
}

impl Live {
    /// Loads the pool and the BPF program, for a device of the calling thread's namespace.
    pub(crate) fn open(pool: &Pool, ifindex: u32) -> Result<Self> {
        try_out(pool.template())?;
        let object = program::send(&Shape {
            len: u32::try_from(pool.len()).unwrap_or(u32::MAX),
            row_len: row_len(pool)?,
            own_len: signed(pool.own_len()),
            even: pool.is_even(),
            stamps: pool.has_stamps(),
            ifindex: i32::try_from(ifindex).unwrap_or(0),
        })?;
        let make = |map: usize| {
            let map = &object.maps[map];
            Map::create(map.name, map).map_err(missing("making a map"))
        };
        let (state, slots) = (make(STATE)?, make(SLOTS)?);
        fill(&slots, pool)?;
        let maps = [&state, &slots].map(|map| map.as_fd().as_raw_fd());
        let code = object.relocated(&maps, 0);
        let program = LoadedProgram::load(ProgramKind::Xdp, "send", &code)?;
        let kept = keep(&program)?;
        Ok(Self {
            program,
            state,
            template: pool.template().to_vec(),
            _kept: kept,
        })
    }

    /// Makes the BPF program start again with the pool's first frame.
    pub(crate) fn rewind(&self) -> Result<()> {
        self.state
            .write(0, &[0; STATE_LEN as usize])
            .map_err(|error| anyhow!("writing a map: {error}"))
    }

    /// Sends the next `count` frames, at most [`MOST`]. Returns the number of frames sent, which is
    /// `count` unless `stop` is set.
    pub(crate) fn send(&self, count: u64, stop: &AtomicBool) -> Result<u64> {
        let begin = self.made()?;
        let mut made = 0;
        while made < count {
            let repeat = u32::try_from(count - made).unwrap_or(u32::MAX);
            match self.program.run_live(&self.template, repeat) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                    bail!("running the BPF program: {error}");
                }
                Ok(()) | Err(_) => made = self.made()? - begin,
            }
            if stop.load(Ordering::Relaxed) {
                break;
            }
        }
        Ok(made)
    }

    /// Frames that the BPF program has made since [`Live::rewind`].
    fn made(&self) -> Result<u64> {
        let state = self.state.read(0);
        let state = state.map_err(|error| anyhow!("reading a map: {error}"))?;
        let number = |place: usize| {
            let bytes = state.get(8 * place..8 * place + 8);
            bytes
                .and_then(|bytes| bytes.try_into().ok())
                .map_or(0, u64::from_ne_bytes)
        };
        match number(2) {
            0 => Ok(number(0)),
            failed => bail!("the BPF program could not make {failed} frames"),
        }
    }
}

/// Checks that the kernel supports live frames of this length. The limit depends on the size of
/// kernel structs, so only a run in the kernel shows it.
fn try_out(template: &[u8]) -> Result<()> {
    let program =
        LoadedProgram::load(ProgramKind::Xdp, "drop", &program::drop_all()).map_err(|refused| {
            if refused.error.kind() == io::ErrorKind::PermissionDenied {
                unprivileged(&refused.error)
            } else {
                refused.into()
            }
        })?;
    program
        .run_live(&[0; 60], 1)
        .map_err(|error| anyhow!("this kernel does not support them (Linux 5.18 does): {error}"))?;
    ensure!(
        program.run_live(template, 1).is_ok(),
        "a frame of {} bytes is too long: one page must hold it and what the kernel adds",
        template.len()
    );
    Ok(())
}

/// Bytes of a frame's entry.
fn row_len(pool: &Pool) -> Result<u32> {
    let row_len = (usize::from(ROW_HEAD.unsigned_abs()) + pool.own_len()).next_multiple_of(8);
    let size = pool.len() * row_len;
    ensure!(
        size <= POOL_LIMIT,
        "they would take {} MiB of the kernel's memory, more than {}",
        size >> 20,
        POOL_LIMIT >> 20
    );
    Ok(u32::try_from(row_len)?)
}

/// Writes all frames into the map.
fn fill(slots: &Map, pool: &Pool) -> Result<()> {
    let (own_len, row_len) = (pool.own_len(), row_len(pool)? as usize);
    let count = u32::try_from(pool.len()).unwrap_or(u32::MAX);
    let (mut rows, mut frame) = (Vec::new(), Vec::new());
    let mut first = 0;
    for number in 0..count {
        pool.write_frame(number.into(), &mut frame);
        let shorter = i64::from(signed(frame.len()) - signed(pool.longest()));
        let copied = own_len.min(frame.len());
        let begin = rows.len();
        rows.extend_from_slice(&shorter.to_ne_bytes());
        rows.extend_from_slice(&signed(copied).to_ne_bytes());
        rows.extend_from_slice(&pool.stamp_at(number.into()).to_ne_bytes());
        rows.extend_from_slice(&frame[..copied]);
        rows.resize(begin + row_len, 0);
        if rows.len() >= CHUNK || number + 1 == count {
            slots
                .write(first, &rows)
                .map_err(|error| anyhow!("filling a map: {error}"))?;
            first = number + 1;
            rows.clear();
        }
    }
    Ok(())
}

/// Maximum bytes per call that fills a map.
const CHUNK: usize = 1 << 20;

fn missing(what: &'static str) -> impl Fn(io::Error) -> Error {
    move |error| {
        if error.kind() == io::ErrorKind::PermissionDenied {
            unprivileged(&error)
        } else {
            anyhow!("{what}: {error}")
        }
    }
}

fn unprivileged(error: &io::Error) -> Error {
    anyhow!("eBPF needs CAP_BPF, CAP_NET_ADMIN and CAP_SYS_ADMIN: {error}")
}

fn signed(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// Keeps the BPF program attached to a device in a separate namespace.
#[derive(Debug)]
struct Kept {
    _attached: Attached,
    _namespace: OwnedFd,
}

/// Without a device, the kernel adds a BPF program to the XDP dispatcher for each run and removes
/// it afterwards. Each time the kernel waits tens of ms for all readers of the old dispatcher. So
/// the BPF program is attached to the loopback device of a separate namespace, where no packet
/// arrives.
fn keep(program: &LoadedProgram) -> Result<Kept> {
    let within = || -> io::Result<Kept> {
        netns::enter_new()?;
        let namespace = netns::current()?;
        let loopback = interface::index("lo").ok_or(io::ErrorKind::NotFound)?;
        Ok(Kept {
            _attached: program.attach(loopback, Hook::Generic)?,
            _namespace: namespace,
        })
    };
    thread::scope(|scope| scope.spawn(within).join())
        .unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
        .map_err(missing("attaching the BPF program in a separate namespace"))
}
