//! A port, and a pool in ordinary memory. The test fills it as a BPF program does.

use super::written::{DEVICE, Writer, Written, new_memory, room_of, written};
use fanpcap_reader::{Input, LinkState, Port, PortStatistics, ReadError, Ring};
use fanpcap_ring::{Pool, PoolClocks, PoolMemory, Remains};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Bytes of the pool and of a block.
const LEN: usize = 1 << 16;
const BLOCK_LEN: usize = 1 << 14;

/// The difference between the time of day and the monotonic clock: seven seconds in these tests.
pub(crate) fn offset() -> u64 {
    7_000_000_000
}

/// The BPF program's side of one lane, and the requests of the lane's reader.
pub(crate) struct FakeProgram {
    /// The descriptor on which the reader waits. It is readable when bytes were written to `there`.
    here: UnixStream,
    there: UnixStream,
    lane: Mutex<Lane>,
    /// Packets that come while the reader requests a wake-up, one packet at each request.
    pub(crate) late: Mutex<VecDeque<Written>>,
    pub(crate) armed: Mutex<Vec<u64>>,
    /// Whether a packet has no room as soon as the reader rests.
    pub(crate) drops: AtomicBool,
}

struct Lane {
    writer: Writer,
    /// The position at which the reader is woken.
    wake_at: u64,
}

impl Lane {
    fn position(&self) -> u64 {
        self.writer.position(0).load(Ordering::Acquire)
    }

    fn read(&self) -> u64 {
        self.writer.read(0).load(Ordering::Acquire)
    }
}

fn pool(memory: PoolMemory) -> Pool {
    let clocks = PoolClocks {
        now: || u64::MAX,
        offset,
    };
    Pool::new(memory, DEVICE.ifindex, clocks)
}

impl FakeProgram {
    /// Creates a device. Returns the BPF program's side of the device, and the input for the
    /// reader.
    pub(crate) fn new(timeout: Option<Duration>) -> (Arc<Self>, Input) {
        let (writer, memory) = new_memory(BLOCK_LEN, LEN / BLOCK_LEN, 1);
        let (here, there) = UnixStream::pair().unwrap();
        here.set_nonblocking(true).unwrap();
        let lane = Lane { writer, wake_at: 0 };
        let device = Arc::new(Self {
            here,
            there,
            lane: Mutex::new(lane),
            late: Mutex::default(),
            armed: Mutex::default(),
            drops: AtomicBool::default(),
        });
        let input = Input {
            ring: Ring::Pool(pool(memory)),
            port: Arc::clone(&device) as Arc<dyn Port>,
            timeout,
        };
        (device, input)
    }

    pub(crate) fn arrive(&self, packets: &[Written]) {
        for packet in packets {
            let mut lane = self.lane.lock().unwrap();
            assert!(lane.writer.arrive(0, packet), "the pool is full");
            if lane.position() >= lane.wake_at {
                lane.wake_at = u64::MAX;
                (&self.there).write_all(&[0]).unwrap();
            }
        }
    }

    /// The ring of a reader that took `taken` records and then died.
    pub(crate) fn remains(&self, taken: u64) -> Remains {
        self.remains_by(taken, offset)
    }

    /// As [`FakeProgram::remains`]. The offset was read at another moment.
    pub(crate) fn remains_by(&self, taken: u64, offset: fn() -> u64) -> Remains {
        let copy = self.lane.lock().unwrap().writer.copy();
        let clocks = PoolClocks {
            now: || u64::MAX,
            offset,
        };
        Remains::of_pool(Pool::new(copy, DEVICE.ifindex, clocks), taken)
    }

    /// Spoils the last packet.
    pub(crate) fn spoil(&self) {
        let lane = self.lane.lock().unwrap();
        // The packet's length follows the stamp.
        let next = lane.position() - room_of(&written(1));
        let at = lane.writer.offset(0, next) + 8;
        lane.writer.put(at, &u32::to_ne_bytes(1 << 20));
    }
}

impl Port for FakeProgram {
    fn waits_on(&self) -> BorrowedFd<'_> {
        self.here.as_fd()
    }

    fn is_socket(&self) -> bool {
        false
    }

    fn arm(&self, after: u64) -> bool {
        self.armed.lock().unwrap().push(after);
        if let Some(packet) = self.late.lock().unwrap().pop_front() {
            self.arrive(&[packet]);
        }
        while (&self.here).read(&mut [0; 64]).is_ok_and(|count| count > 0) {}
        let mut lane = self.lane.lock().unwrap();
        lane.wake_at = lane.position() + after;
        after > 1 || lane.position() == lane.read()
    }

    fn rest(&self) -> bool {
        while (&self.here).read(&mut [0; 64]).is_ok_and(|count| count > 0) {}
        self.lane.lock().unwrap().wake_at = u64::MAX;
        if self.drops.load(Ordering::Acquire) {
            (&self.there).write_all(&[0]).unwrap();
        }
        true
    }

    fn loopback(&self) -> Option<u32> {
        None
    }

    fn check(&self, _: i16) -> Result<LinkState, ReadError> {
        Ok(LinkState::Up)
    }

    fn link(&self) -> Result<LinkState, ReadError> {
        Ok(LinkState::Up)
    }

    fn poll_error(&self, error: io::Error) -> ReadError {
        ReadError::new(error)
    }

    fn take_statistics(&self) -> io::Result<PortStatistics> {
        Ok(PortStatistics::default())
    }
}

/// A packet with this time and length.
pub(crate) fn record(microseconds: u64, length: u8) -> Written {
    Written {
        data: (0..length).collect(),
        ..written(microseconds * 1000)
    }
}

pub(crate) fn records<const N: usize>(microseconds: [u64; N]) -> [Written; N] {
    microseconds.map(|microseconds| record(microseconds, 60))
}
