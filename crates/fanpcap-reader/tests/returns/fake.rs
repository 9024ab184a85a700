//! A port, and a ring in ordinary memory. The test fills the ring as the kernel does.

use super::kernel::{BLOCK, FRAME, Memory, Packet};
use fanpcap_linux::packet::ring::Mapping;
use fanpcap_reader::{
    Call, Direction, End, Input, LinkState, Options, Port, PortStatistics, ReadError, Reader, Ring,
};
use fanpcap_ring::{Blocks, Frames, Position, Remains};
use std::collections::VecDeque;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) type Answer = Result<LinkState, &'static str>;

pub(crate) const LO: u32 = 1;

#[derive(Debug)]
pub(crate) struct FakePort {
    /// The descriptor on which the reader waits. It is readable when bytes were written to `there`.
    here: UnixStream,
    there: UnixStream,
    /// A descriptor whose other end is closed. If the reader waits on it, poll(2) reports a
    /// hang-up, so the reader checks the port.
    hung: UnixStream,
    /// The results that the next calls of `check` and of `link` return. While `checks` has results,
    /// the reader waits on `hung`.
    pub(crate) checks: Mutex<VecDeque<Answer>>,
    pub(crate) links: Mutex<VecDeque<Answer>>,
    pub(crate) statistics: Mutex<PortStatistics>,
}

impl FakePort {
    fn new() -> Self {
        let (here, there) = UnixStream::pair().unwrap();
        let (hung, _) = UnixStream::pair().unwrap();
        Self {
            here,
            there,
            hung,
            checks: Mutex::default(),
            links: Mutex::default(),
            statistics: Mutex::default(),
        }
    }

    pub(crate) fn then(&self, answer: Answer) {
        self.checks.lock().unwrap().push_back(answer);
    }

    /// Makes poll(2) report packets.
    pub(crate) fn ring(&self) {
        (&self.there).write_all(&[0]).unwrap();
    }
}

fn answer(answers: &Mutex<VecDeque<Answer>>) -> Result<LinkState, io::Error> {
    let answer = answers.lock().unwrap().pop_front();
    answer
        .unwrap_or(Ok(LinkState::Up))
        .map_err(io::Error::other)
}

impl Port for FakePort {
    fn waits_on(&self) -> BorrowedFd<'_> {
        match self.checks.lock().unwrap().is_empty() {
            true => self.here.as_fd(),
            false => self.hung.as_fd(),
        }
    }

    fn loopback(&self) -> Option<u32> {
        Some(LO)
    }

    fn check(&self, _: i16) -> Result<LinkState, ReadError> {
        answer(&self.checks).map_err(ReadError::new)
    }

    fn link(&self) -> Result<LinkState, ReadError> {
        answer(&self.links).map_err(ReadError::of_gone)
    }

    fn poll_error(&self, error: io::Error) -> ReadError {
        ReadError::new(error)
    }

    fn take_statistics(&self) -> io::Result<PortStatistics> {
        Ok(std::mem::take(&mut *self.statistics.lock().unwrap()))
    }
}

pub(crate) const BLOCKS: usize = 8;
const FRAMES: usize = 16;

/// The kernel's side of a device: its port and its ring.
pub(crate) struct FakeDevice {
    pub(crate) port: Arc<FakePort>,
    memory: Memory,
    is_v3: bool,
    next: usize,
}

impl FakeDevice {
    /// Creates a device. Returns the kernel's side of the device, and the input for the reader.
    pub(crate) fn new(is_v3: bool, timeout: Option<Duration>) -> (Self, Input) {
        let length = if is_v3 {
            BLOCKS * BLOCK
        } else {
            FRAMES * FRAME
        };
        let mapping = Mapping::anonymous(length).unwrap();
        let memory = Memory::of(&mapping);
        let ring = ring(mapping, is_v3);
        let port = Arc::new(FakePort::new());
        let input = Input {
            ring,
            port: Arc::clone(&port) as Arc<dyn Port>,
            timeout,
        };
        let next = 0;
        let device = Self {
            port,
            memory,
            is_v3,
            next,
        };
        (device, input)
    }

    /// Puts packets into the ring: all in one block, or each in a frame if the ring has frames.
    pub(crate) fn arrive(&mut self, packets: &[Packet]) {
        if self.is_v3 {
            let (block, sequence) = (self.next % BLOCKS, self.next as u64 + 1);
            let put = self.memory.put_numbered_block(block, sequence, packets);
            assert_eq!(put, packets.len());
            self.next += 1;
        } else {
            for packet in packets {
                self.memory.put_v2(self.next % FRAMES * FRAME, packet);
                self.next += 1;
            }
        }
        self.port.ring();
    }

    /// The kernel writes packets to the next block and does not close it.
    pub(crate) fn begin_block(&mut self, packets: &[Packet]) {
        let (block, sequence) = (self.next % BLOCKS, self.next as u64 + 1);
        let put = self.memory.put_open_block(block, sequence, packets);
        assert_eq!(put, packets.len());
    }

    /// The ring of a reader that died at this position.
    pub(crate) fn remains(&self, position: Position) -> Remains {
        let memory = self.memory.copy();
        Remains::of(ring(memory, self.is_v3), position)
    }

    /// Corrupts the header of the ring's first packet, which must be the only one.
    pub(crate) fn spoil(&self) {
        let mac = if self.is_v3 { 48 + 24 } else { 12 };
        self.memory.put(mac, &u16::MAX.to_ne_bytes());
    }
}

fn ring(mapping: Mapping, is_v3: bool) -> Ring {
    if is_v3 {
        Ring::V3(Blocks::new(mapping, BLOCK, BLOCKS).unwrap())
    } else {
        Ring::V2(Frames::new(mapping, BLOCK, FRAME, FRAMES).unwrap())
    }
}

pub(crate) const OPTIONS: Options = Options {
    snaplen: 65_535,
    nanoseconds: false,
    nonblocking: false,
    direction: Direction::InOut,
    tag_at: None,
};

pub(crate) const NONBLOCKING: Options = Options {
    nonblocking: true,
    ..OPTIONS
};

/// A packet with this time and length. Its bytes are 0, 1, 2 ...
pub(crate) fn packet(microseconds: u32, length: u8) -> Packet {
    Packet {
        data: (0..length).collect(),
        cut: 0,
        seconds: 7,
        nanoseconds: microseconds * 1000,
        vlan: None,
        pkttype: 0,
        ifindex: 2,
        reserve: 32,
    }
}

#[derive(Debug, PartialEq)]
pub(crate) struct Got {
    pub(crate) seconds: i64,
    pub(crate) fraction: i64,
    pub(crate) len: u32,
    pub(crate) data: Vec<u8>,
}

/// The result of pcap_dispatch(3PCAP).
#[derive(Debug, PartialEq)]
pub(crate) enum Return {
    Count(i32),
    /// `PCAP_ERROR_BREAK`.
    Break,
    /// `PCAP_ERROR`, with the text of pcap_geterr(3PCAP).
    Error(String),
}

/// Reads as pcap_dispatch(3PCAP) does.
pub(crate) fn dispatch(reader: &Reader, max: i32, mut callback: impl FnMut(Got)) -> Return {
    let mut call = Call::new(max);
    let mut packet = fanpcap_reader::Packet::NONE;
    loop {
        // SAFETY: each test reads in one thread.
        match unsafe { reader.next(&mut call, &mut packet) } {
            Ok(()) => {}
            Err(End::Delivered(count)) => return Return::Count(count),
            Err(End::Broken) => return Return::Break,
            Err(End::Failed(error)) => return Return::Error(error.to_string()),
        }
        // SAFETY: the reader has just delivered these bytes.
        let data = unsafe { std::slice::from_raw_parts(packet.data, packet.caplen as usize) };
        callback(Got {
            seconds: packet.seconds,
            fraction: packet.fraction,
            len: packet.len,
            data: data.to_vec(),
        });
    }
}

/// Reads as pcap_dispatch(3PCAP) does. Also returns the fraction of a second of each packet's time.
pub(crate) fn times(reader: &Reader, max: i32) -> (Return, Vec<i64>) {
    let mut times = Vec::new();
    let returned = dispatch(reader, max, |got| times.push(got.fraction));
    (returned, times)
}

/// A time after which the reader certainly waits.
pub(crate) const LATER: Duration = Duration::from_millis(30);

/// Ends the read if the thread that holds this value panics. Otherwise nothing would end the read,
/// and the test would hang.
pub(crate) struct EndsRead<'a>(pub(crate) &'a Reader);

impl Drop for EndsRead<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.control().break_loop();
        }
    }
}

/// Waits until the reader has noticed that a device is down, or up again.
pub(crate) fn await_down(reader: &Reader, is_down: bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while reader.control().is_net_down() != is_down {
        assert!(Instant::now() < end, "down: {is_down}");
        thread::sleep(Duration::from_micros(200));
    }
}

/// Reads while another thread calls `wait`. A packet with the time of 1 microsecond arrives
/// [`LATER`] after `wait` has returned.
pub(crate) fn times_until_later(
    reader: &Reader,
    mut device: FakeDevice,
    wait: impl FnOnce(&FakeDevice) + Send,
) -> (Return, Vec<i64>) {
    thread::scope(|scope| {
        scope.spawn(move || {
            let _ends = EndsRead(reader);
            wait(&device);
            thread::sleep(LATER);
            device.arrive(&[packet(1, 60)]);
            // The device must exist as long as its reader reads.
            thread::sleep(2 * LATER);
        });
        times(reader, -1)
    })
}
