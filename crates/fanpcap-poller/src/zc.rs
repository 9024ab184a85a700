//! The source `zc`: the receive queues of a device whose driver is one of PF_RING ZC, by PF_RING's
//! library. The host gets no packets of the device.

use crate::burst::{Burst, Packet};
use crate::device_socket::DeviceSocket;
use crate::packet::WallClock;
use crate::source::{Source, SourceCounts, SourceError};
use fanpcap_pfring::{OpenError, Options, Receiver};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// A receive queue as a source.
pub struct ZcSource {
    receiver: Receiver,
    queue: u16,
    clock: WallClock,
    socket: Arc<DeviceSocket>,
    counts: SourceCounts,
}

/// Bytes of the longest packet (`MAX_CAPLEN`).
const LONGEST: u32 = 65_600;

/// Why a device can't be opened.
#[derive(Debug)]
pub enum ZcError {
    /// The library, the module, or the driver does not open it.
    Pfring(OpenError),
    /// The error of a packet socket on the device.
    Socket(io::Error),
}

/// Takes the packets of all receive queues of a device in the calling thread's network namespace,
/// from now on.
///
/// # Errors
/// See [`ZcError`].
pub fn open(ifindex: u32, device: &str) -> Result<Vec<ZcSource>, ZcError> {
    let socket = Arc::new(DeviceSocket::open(ifindex).map_err(ZcError::Socket)?);
    let open = |queue: u16| {
        let options = Options {
            snaplen: LONGEST,
            cluster: None,
            outgoing: false,
            is_promiscuous: true,
        };
        let receiver = fanpcap_pfring::open(&format!("zc:{device}@{queue}"), &options);
        Ok(ZcSource {
            receiver: receiver.map_err(ZcError::Pfring)?,
            queue,
            clock: WallClock::new(),
            socket: Arc::clone(&socket),
            counts: SourceCounts::default(),
        })
    };
    let first = open(0)?;
    let queues = first.receiver.handle().queues();
    let mut all = vec![first];
    for queue in 1..queues.into() {
        all.push(open(queue)?);
    }
    Ok(all)
}

impl Source for ZcSource {
    fn burst<'s>(&'s mut self, burst: &mut Burst<'s>) -> Result<(), SourceError> {
        self.clock.renew();
        let clock = &self.clock;
        let received = self.receiver.burst(burst.room(), |packet| {
            let is_stamped = !packet.stamp.is_zero();
            burst.push(Packet {
                wire_len: packet.wire_len,
                hash: packet.hash,
                stamp_ns: is_stamped.then(|| clock.monotonic_of(packet.stamp)),
                ..Packet::of(packet.into_bytes())
            });
        });
        received.map_err(SourceError::Other)
    }

    /// The library takes a burst's memory back at the next burst.
    fn release(&mut self) {}

    fn check(&mut self) -> Result<(), SourceError> {
        self.socket.check()
    }

    /// The queue's own descriptor does not wake for packets that the driver has not looked for.
    fn waits_on(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn transmit(&mut self, frame: &[u8]) -> io::Result<bool> {
        self.receiver.send(frame)
    }

    fn queue(&self) -> u16 {
        self.queue
    }

    fn counts(&mut self) -> SourceCounts {
        match self.receiver.handle().counts() {
            Ok(counts) => {
                self.counts.received = counts.read + counts.dropped;
                self.counts.dropped = counts.dropped;
            }
            Err(_) => self.counts.failed += 1,
        }
        self.counts
    }
}
