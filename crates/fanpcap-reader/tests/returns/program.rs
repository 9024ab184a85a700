//! A port, and ring buffers in ordinary memory. The test fills them as the kernel and a BPF program
//! do.

use super::written::{DEVICE, Program, Written, written};
use fanpcap_linux::bpf::RingMapping;
use fanpcap_reader::{Input, LinkState, Port, PortStatistics, ReadError, Ring};
use fanpcap_ring::{Records, Remains};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Bytes of a lane.
pub(crate) const LEN: usize = 1 << 16;

/// The difference between the time of day and the monotonic clock: seven seconds in these tests.
pub(crate) fn offset() -> u64 {
    7_000_000_000
}

/// The kernel's side of one lane, and the requests of the lane's reader.
pub(crate) struct FakeProgram {
    /// The descriptor on which the reader waits. It is readable when bytes were written to `there`.
    here: UnixStream,
    there: UnixStream,
    lane: Mutex<Lane>,
    /// Packets that come while the reader requests a wake-up, one packet at each request.
    pub(crate) late: Mutex<VecDeque<Written>>,
    pub(crate) armed: Mutex<Vec<u64>>,
}

struct Lane {
    program: Program,
    produced: u64,
    wake_at: u64,
}

impl FakeProgram {
    /// Creates a device. Returns the kernel's side of the device, and the input for the reader.
    pub(crate) fn new(timeout: Option<Duration>) -> (Arc<Self>, Input) {
        let mapping = RingMapping::anonymous(LEN).unwrap();
        let (here, there) = UnixStream::pair().unwrap();
        here.set_nonblocking(true).unwrap();
        let lane = Lane {
            program: Program::of(&mapping),
            produced: 0,
            wake_at: 1,
        };
        let device = Arc::new(Self {
            here,
            there,
            lane: Mutex::new(lane),
            late: Mutex::default(),
            armed: Mutex::default(),
        });
        let records = Records::new(vec![mapping], &DEVICE, offset).unwrap();
        let input = Input {
            ring: Ring::Records(records),
            port: Arc::clone(&device) as Arc<dyn Port>,
            timeout,
        };
        (device, input)
    }

    pub(crate) fn arrive(&self, packets: &[Written]) {
        for packet in packets {
            let mut lane = self.lane.lock().unwrap();
            assert!(lane.program.arrive(packet), "the ring is full");
            lane.produced += 1;
            if lane.produced == lane.wake_at {
                (&self.there).write_all(&[0]).unwrap();
            }
        }
    }

    /// The ring of a reader that took `taken` records and then died.
    pub(crate) fn remains(&self, taken: u64) -> Remains {
        let copy = self.lane.lock().unwrap().program.copy();
        let records = Records::new(vec![copy], &DEVICE, offset).unwrap();
        Remains::of_records(records, taken)
    }

    pub(crate) fn spoil(&self) {
        let lane = self.lane.lock().unwrap();
        let next = lane.program.read();
        lane.program.put(next, &u32::to_ne_bytes(1 << 20));
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
        lane.wake_at = lane.produced + after;
        after > 1 || lane.program.producer() == lane.program.consumer()
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
