//! An opened device: its receive queues, which lend packets, and its sender.

use crate::abi::{
    BURST, DOWN, GONE, HAS_STAMP, HAS_TAG, INTERRUPTS, PROMISCUOUS, RawCounts, RawFacts,
    RawOptions, RawPacket, RawPort, RawQueue, STAMPS, SYMMETRIC, Table,
};
use crate::eal::{Eal, WORDS, devices, error, words_in};
use crate::name::{Bus, DeviceName};
use crate::open_error::OpenError;
use std::ffi::{CString, c_void};
use std::os::fd::BorrowedFd;
use std::ptr::{NonNull, null, null_mut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fmt, io, slice};

/// What a caller wants of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortOptions {
    /// Receive queues.
    pub queues: u16,
    /// The packets that each queue can keep, if the device can.
    pub descriptors: u16,
    /// Buffers of each queue.
    pub buffers: u32,
    /// Buffers that a queue's thread keeps for itself, at most 512.
    pub cache: u32,
    /// The longest packet without its Ethernet header, if the device can.
    pub mtu: u32,
}

/// What an opened device has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// DPDK's driver.
    pub driver: String,
    /// The longest packet without its Ethernet header; `None` for the device's default.
    pub mtu: Option<u32>,
    /// The packets that each queue can keep.
    pub descriptors: u32,
    /// Whether both directions of a flow come to one queue, by the device's hash.
    pub is_symmetric: bool,
    /// Whether each queue has a descriptor to wait on.
    pub has_interrupts: bool,
    /// Whether the device stamps packets by a clock that can be read.
    pub has_stamps: bool,
    /// Whether the device takes frames for other hosts, too.
    pub is_promiscuous: bool,
}

/// A device's counters, since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounts {
    /// Packets that the device has delivered.
    pub received: u64,
    /// Packets for which a queue had no room.
    pub missed: u64,
    /// Packets with errors.
    pub errors: u64,
    /// How often there was no buffer for a packet.
    pub no_buffers: u64,
}

/// Whether a device can receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortState {
    /// It can.
    Up,
    /// Its link is down.
    Down,
    /// It was removed.
    Gone,
}

/// A packet in the memory of DPDK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lent<'a> {
    /// The frame's bytes.
    pub bytes: &'a [u8],
    /// Bytes of the frame on the wire.
    pub wire_len: u32,
    /// The hash from the device; 0 if there is no hash.
    pub hash: u32,
    /// The content of the tag that the device has removed from the frame.
    pub tci: Option<u16>,
    /// The time of arrival, in ticks of the device's clock.
    pub stamp: Option<u64>,
}

/// An opened device.
#[derive(Debug)]
pub struct Opened {
    /// The receive queues, in the order of their numbers.
    pub queues: Vec<Queue>,
    /// Sends frames.
    pub sender: Sender,
    /// What the device has.
    pub facts: Facts,
}

/// What the queues and the sender of a device share. The device is closed with the last of them.
struct Port {
    table: &'static Table,
    raw: NonNull<RawPort>,
    /// One thread at a time reads counters, state and clock, and turns interrupts on or off.
    control: Mutex<()>,
}

// SAFETY: DPDK's devices belong to the process. Calls that are not for all threads at once are made
// under `control`, or through `&mut` of a queue or the sender.
unsafe impl Send for Port {}
// SAFETY: as above.
unsafe impl Sync for Port {}

impl Drop for Port {
    fn drop(&mut self) {
        let _devices = devices();
        // SAFETY: the plugin has opened the device, and queues and sender have gone.
        unsafe { (self.table.close)(self.raw.as_ptr()) };
    }
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Port")
    }
}

impl Port {
    fn control(&self) -> MutexGuard<'_, ()> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Eal {
    /// Opens a device and starts it. Packets come from now on.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(self, name: &DeviceName, options: PortOptions) -> Result<Opened, OpenError> {
        let bus = match name.bus() {
            Bus::Pci => c"pci",
            Bus::Vdev => c"vdev",
        };
        // `DeviceName` has no zero bytes.
        let [device, arguments] =
            [name.name(), name.arguments()].map(|it| CString::new(it).unwrap_or_default());
        let (mut raw, mut why) = (null_mut(), [0; WORDS]);
        let mut facts = RawFacts {
            mtu: 0,
            descriptors: 0,
            properties: 0,
            most_queues: 0,
            driver: [0; 36],
        };
        let wanted = RawOptions {
            buffers: options.buffers,
            cache: options.cache,
            mtu: options.mtu,
            queues: options.queues,
            descriptors: options.descriptors,
        };
        let adding = devices();
        // SAFETY: the names are C strings, the plugin reads the options and writes facts, text and
        // the device's address, all of which live through the call.
        let rc = unsafe {
            (self.table().open)(
                bus.as_ptr(),
                device.as_ptr(),
                arguments.as_ptr(),
                &raw const wanted,
                &raw mut raw,
                &raw mut facts,
                why.as_mut_ptr(),
                WORDS,
            )
        };
        drop(adding);
        let words = words_in(&why);
        match (rc, NonNull::new(raw)) {
            (0, Some(raw)) => self.opened(raw, options.queues, &facts),
            (0, None) => Err(OpenError::new(-1, words, facts.most_queues)),
            _ => Err(OpenError::new(rc, words, facts.most_queues)),
        }
    }

    fn opened(
        self,
        raw: NonNull<RawPort>,
        queues: u16,
        facts: &RawFacts,
    ) -> Result<Opened, OpenError> {
        let port = Arc::new(Port {
            table: self.table(),
            raw,
            control: Mutex::new(()),
        });
        let has = |property| facts.properties & property != 0;
        let queues = (0..queues).map(|number| {
            // SAFETY: the device is open.
            let raw = unsafe { (port.table.queue)(port.raw.as_ptr(), number) };
            Some(Queue {
                raw: NonNull::new(raw)?,
                packets: Box::new([NO_PACKET; BURST]),
                has_joined: false,
                has_interrupt: has(INTERRUPTS),
                port: Arc::clone(&port),
            })
        });
        let queues: Option<Vec<Queue>> = queues.collect();
        let driver: Vec<u8> = facts
            .driver
            .iter()
            .flat_map(|it| it.to_ne_bytes())
            .collect();
        let driver = driver.split(|it| *it == 0).next().unwrap_or_default();
        Ok(Opened {
            queues: queues.ok_or_else(|| OpenError::new(-1, String::new(), 0))?,
            sender: Sender { port },
            facts: Facts {
                driver: String::from_utf8_lossy(driver).into_owned(),
                mtu: Some(facts.mtu).filter(|it| *it > 0),
                descriptors: facts.descriptors,
                is_symmetric: has(SYMMETRIC),
                has_interrupts: has(INTERRUPTS),
                has_stamps: has(STAMPS),
                is_promiscuous: has(PROMISCUOUS),
            },
        })
    }
}

const NO_PACKET: RawPacket = RawPacket {
    bytes: null(),
    stamp: 0,
    len: 0,
    wire_len: 0,
    hash: 0,
    tci: 0,
    flags: 0,
};

/// A receive queue. The first thread that takes a burst should be the only one.
#[derive(Debug)]
pub struct Queue {
    raw: NonNull<RawQueue>,
    packets: Box<[RawPacket; BURST]>,
    /// Whether the queue has registered its thread with DPDK.
    has_joined: bool,
    has_interrupt: bool,
    port: Arc<Port>,
}

// SAFETY: any thread may use a queue, one at a time, and all calls that use it take `&mut`, except
// those that only read its descriptor. The packets' pointers are used in `burst` alone.
unsafe impl Send for Queue {}

impl Queue {
    /// Lends packets that have come, at most `most` and [`BURST`], to `take`, in their order. Does
    /// not wait. The packets' memory is the caller's until [`Queue::release`].
    #[inline]
    pub fn burst<'q>(&'q mut self, most: usize, mut take: impl FnMut(Lent<'q>)) {
        if !self.has_joined {
            self.join();
        }
        let most = u16::try_from(most.min(BURST)).unwrap_or_default();
        let packets = self.packets.as_mut_ptr();
        // SAFETY: the queue lives as long as the device, and `packets` has room for `most`. What
        // was lent before is given back now: `&mut self` ended those loans.
        let count = unsafe { (self.port.table.burst)(self.raw.as_ptr(), packets, most) };
        for packet in self.packets.iter().take(count.min(most).into()) {
            let bytes = match packet.bytes.is_null() {
                true => &[][..],
                // SAFETY: the plugin lends `len` bytes until the next burst or release, which take
                // `&mut self` and so come after 'q.
                false => unsafe { slice::from_raw_parts(packet.bytes, packet.len as usize) },
            };
            take(Lent {
                bytes,
                wire_len: packet.wire_len,
                hash: packet.hash,
                tci: (packet.flags & HAS_TAG != 0).then_some(packet.tci),
                stamp: (packet.flags & HAS_STAMP != 0).then_some(packet.stamp),
            });
        }
    }

    /// Gives the last burst's packets back.
    #[inline]
    pub fn release(&mut self) {
        // SAFETY: the queue lives as long as the device, and `&mut self` ended all loans.
        unsafe { (self.port.table.release)(self.raw.as_ptr()) };
    }

    /// Registers the calling thread with DPDK, so that it keeps some buffers for itself. Without
    /// it, each buffer comes from the memory of all threads.
    #[cold]
    fn join(&mut self) {
        // SAFETY: the function has no preconditions.
        let _ = unsafe { (self.port.table.join)() };
        self.has_joined = true;
    }

    /// How many packets wait in the queue; `None` if the driver does not know it.
    pub fn waiting(&self) -> Option<u32> {
        // SAFETY: the queue lives as long as the device. No other thread takes packets of it
        // meanwhile, because a queue is not `Sync`.
        let count = unsafe { (self.port.table.waiting)(self.raw.as_ptr()) };
        u32::try_from(count).ok()
    }

    /// A descriptor that is readable when packets have come after [`Queue::set_interrupt`]. `None`
    /// if the device has no interrupts for its queues.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        if !self.has_interrupt {
            return None;
        }
        // SAFETY: the queue lives as long as the device.
        let fd = unsafe { (self.port.table.descriptor)(self.raw.as_ptr()) };
        // SAFETY: the plugin keeps the descriptor open as long as the device.
        (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// Turns the queue's interrupt on, or off.
    pub fn set_interrupt(&mut self, is_on: bool) {
        if self.has_interrupt {
            // Some drivers change a word that has the bits of several queues.
            let _control = self.port.control();
            // SAFETY: the queue lives as long as the device. If a driver's queue is readable
            // without being asked to, the function fails, which does no harm.
            let _ = unsafe { (self.port.table.interrupt)(self.raw.as_ptr(), is_on.into()) };
        }
    }

    /// The device's counters, of all queues together.
    ///
    /// # Errors
    /// The driver's error.
    pub fn counts(&self) -> io::Result<PortCounts> {
        let mut counts = RawCounts::default();
        let _control = self.port.control();
        // SAFETY: the device is open, and the plugin writes the counters.
        match unsafe { (self.port.table.counts)(self.port.raw.as_ptr(), &raw mut counts) } {
            0 => Ok(PortCounts {
                received: counts.received,
                missed: counts.missed,
                errors: counts.errors,
                no_buffers: counts.no_buffers,
            }),
            rc => Err(error(rc)),
        }
    }

    /// Whether the device can receive.
    pub fn state(&self) -> PortState {
        let _control = self.port.control();
        // SAFETY: the device is open.
        match unsafe { (self.port.table.state)(self.port.raw.as_ptr()) } {
            DOWN => PortState::Down,
            GONE => PortState::Gone,
            _ => PortState::Up,
        }
    }

    /// The device's clock, in ticks.
    ///
    /// # Errors
    /// The driver's error.
    pub fn clock(&self) -> io::Result<u64> {
        let mut ticks = 0;
        let _control = self.port.control();
        // SAFETY: the device is open, and the plugin writes the ticks.
        match unsafe { (self.port.table.clock)(self.port.raw.as_ptr(), &raw mut ticks) } {
            0 => Ok(ticks),
            rc => Err(error(rc)),
        }
    }

    /// For measurements: lets `write` put a frame into each buffer of the queue. The driver
    /// `net_null` leaves buffers as they are, so it delivers these frames.
    ///
    /// # Errors
    /// `Unsupported` for other drivers, which write to the buffers themselves.
    pub fn fill<F: FnMut(&mut [u8])>(&mut self, mut write: F) -> io::Result<()> {
        let write = (&raw mut write).cast();
        // SAFETY: no packet is lent, because of `&mut self`. `fill_one` gets the address of a
        // closure of its type, which lives through the call.
        match unsafe { (self.port.table.fill)(self.raw.as_ptr(), fill_one::<F>, write) } {
            0 => Ok(()),
            rc => Err(error(rc)),
        }
    }
}

unsafe extern "C" fn fill_one<F: FnMut(&mut [u8])>(write: *mut c_void, bytes: *mut u8, room: u32) {
    // SAFETY: `Queue::fill` passes the address of an `F`, of which nobody else has a reference.
    let write = unsafe { &mut *write.cast::<F>() };
    // SAFETY: the plugin passes a buffer of `room` bytes, which were initialized when they were
    // mapped. No packet is lent, and the driver does not write to the buffer.
    write(unsafe { slice::from_raw_parts_mut(bytes, room as usize) });
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.release();
        if self.has_joined {
            // SAFETY: the function removes the calling thread if it is registered.
            unsafe { (self.port.table.leave)() };
        }
    }
}

/// Sends frames on a device.
#[derive(Debug)]
pub struct Sender {
    port: Arc<Port>,
}

impl Sender {
    /// Sends a frame. Returns false if the device has no room for the frame now.
    ///
    /// # Errors
    /// The driver's error; `InvalidInput` and `EMSGSIZE` for a frame that the device can't send.
    pub fn send(&mut self, frame: &[u8]) -> io::Result<bool> {
        let len = u32::try_from(frame.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        if len == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let (raw, bytes) = (self.port.raw.as_ptr(), frame.as_ptr());
        // SAFETY: the device is open, it has `len` bytes to read, and there is one sender.
        match unsafe { (self.port.table.send)(raw, bytes, len) } {
            rc @ ..0 => Err(error(rc)),
            sent => Ok(sent > 0),
        }
    }
}
