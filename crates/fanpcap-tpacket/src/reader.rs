//! Reading, packet by packet, with the counts and returns of pcap_dispatch(3PCAP) as the system's
//! libpcap has them on Linux (pcap-linux.c, `pcap_read_linux_mmap_v3` and `_v2`).

use crate::accept::{Direction, Wanted};
use crate::filter::{Program, View};
use crate::rest::Pace;
use crate::ring::Ring;
use crate::wait::ReadError;
use fanpcap_linux::interface;
use fanpcap_linux::wait::Wake;
use fanpcap_ring::{Blocks, Frame, Frames};
use std::cell::RefCell;
use std::ffi::c_int;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// What the handle was told before it was activated.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Bytes of a packet that the program gets at most.
    pub snaplen: u32,
    /// Stamps in nanoseconds, else in microseconds.
    pub nanoseconds: bool,
    /// A read does not wait.
    pub nonblocking: bool,
    /// Which packets are wanted.
    pub direction: Direction,
    /// Where a VLAN tag goes back in, in bytes from the packet's begin.
    pub tag_at: Option<u8>,
}

/// A packet as the program gets it.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    /// Seconds since 1970.
    pub seconds: u32,
    /// Micro- or nanoseconds of the second.
    pub fraction: u32,
    /// Bytes at `data`.
    pub caplen: u32,
    /// Bytes on the wire.
    pub len: u32,
    /// The packet, in the ring: there until the next packet is asked for.
    pub data: *const u8,
}

/// How a read ends.
#[derive(Debug)]
pub enum End {
    /// With so many packets delivered.
    Delivered(c_int),
    /// The program broke the loop.
    Broken,
    /// It can't go on.
    Failed(ReadError),
}

impl From<ReadError> for End {
    fn from(error: ReadError) -> Self {
        Self::Failed(error)
    }
}

/// One read: pcap_dispatch() and its like.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    max: c_int,
    delivered: c_int,
    /// It has had something to read, or has waited for it.
    begun: bool,
}

impl Call {
    /// One that delivers at most `max` packets; 0 and less mean as many as there are.
    pub fn new(max: c_int) -> Self {
        Self {
            max: if max <= 0 { c_int::MAX } else { max },
            delivered: 0,
            begun: false,
        }
    }

    fn is_done(&self) -> bool {
        self.delivered >= self.max
    }
}

/// Packets that were let in by another filter than the one that now holds.
#[derive(Debug)]
struct Refilter {
    program: Program,
    /// For so many blocks or frames; without a number, for ever.
    left: Option<usize>,
}

/// What only the thread that reads touches.
#[derive(Debug)]
struct State {
    ring: Ring,
    pace: Pace,
    refilter: Option<Refilter>,
}

/// Reads the packets of a socket's ring. One thread reads at a time; all else may be called by any.
#[derive(Debug)]
pub struct Reader {
    pub(crate) socket: BorrowedFd<'static>,
    pub(crate) wake: Wake,
    pub(crate) net_down: AtomicBool,
    broken: AtomicBool,
    nonblocking: AtomicBool,
    /// How late a packet may be delivered; without, however late (pcap_set_timeout(3PCAP)).
    pub(crate) timeout: Option<Duration>,
    wanted: Wanted,
    /// The program's newest filter, and whether the kernel runs it too.
    filter: Mutex<Option<(Program, bool)>>,
    has_filter: AtomicBool,
    state: RefCell<State>,
}

impl Reader {
    /// A reader of the ring that `socket` has and of which nothing has been read. The socket must stay
    /// open as long as the reader lives.
    ///
    /// # Errors
    /// When the ring can't be found or mapped; the socket is as it was.
    pub fn new(socket: BorrowedFd<'static>, options: &Options) -> io::Result<Self> {
        let (ring, timeout) = Ring::of(socket)?;
        let pace = ring.pace();
        Ok(Self {
            socket,
            wake: Wake::new()?,
            net_down: AtomicBool::new(false),
            broken: AtomicBool::new(false),
            nonblocking: AtomicBool::new(options.nonblocking),
            timeout,
            wanted: Wanted::new(options, interface::index("lo")),
            filter: Mutex::new(None),
            has_filter: AtomicBool::new(false),
            state: RefCell::new(State {
                ring,
                pace,
                refilter: None,
            }),
        })
    }

    /// The next packet of a read.
    ///
    /// # Errors
    /// How the read ends, when there is none.
    #[inline]
    pub fn next(&self, call: &mut Call) -> Result<Packet, End> {
        let Ok(mut state) = self.state.try_borrow_mut() else {
            return Err(ReadError::Busy.into());
        };
        let state = &mut *state;
        if self.has_filter.load(Ordering::Relaxed) {
            self.take_filter(state);
        }
        let is_v3 = matches!(state.ring, Ring::V3(_));
        let packet = if is_v3 {
            self.next_of_blocks(state, call)
        } else {
            self.next_of_frames(state, call)
        }?;
        call.delivered += 1;
        Ok(packet)
    }

    #[inline]
    fn next_of_blocks(&self, state: &mut State, call: &mut Call) -> Result<Packet, End> {
        loop {
            let Ring::V3(blocks) = &mut state.ring else {
                return Err(End::Delivered(call.delivered));
            };
            if blocks.is_open() {
                call.begun = true;
                let goes_on = !call.is_done() && !self.broken.load(Ordering::Relaxed);
                if goes_on && !blocks.is_spent() {
                    let refilter = state.refilter.as_ref();
                    match self.accepted(blocks.next_frame(), refilter)? {
                        Some(packet) => return Ok(packet),
                        None => continue,
                    }
                }
                self.leave_block(state, call)?;
            } else if !blocks.open() {
                self.starve(state, call, !self.waits_for_ever())?;
            }
        }
    }

    /// At the end of a block, or of the read.
    #[inline]
    fn leave_block(&self, state: &mut State, call: &Call) -> Result<(), End> {
        if let Ring::V3(blocks) = &mut state.ring {
            if blocks.is_spent() {
                release_block(blocks, &mut state.pace);
                pass(&mut state.refilter);
            }
        }
        if self.take_break() {
            return Err(End::Broken);
        }
        if call.is_done() {
            return Err(End::Delivered(call.delivered));
        }
        Ok(())
    }

    fn next_of_frames(&self, state: &mut State, call: &mut Call) -> Result<Packet, End> {
        loop {
            let Ring::V2(frames) = &mut state.ring else {
                return Err(End::Delivered(call.delivered));
            };
            if frames.is_held() {
                frames.release();
                pass(&mut state.refilter);
                if self.take_break() {
                    return Err(End::Broken);
                }
                if call.is_done() {
                    return Err(End::Delivered(call.delivered));
                }
            }
            if !frames.is_ready() {
                self.starve(state, call, true)?;
                continue;
            }
            call.begun = true;
            let refilter = state.refilter.as_ref();
            let frame = next_frame(frames, &mut state.pace);
            if let Some(packet) = self.accepted(frame, refilter)? {
                return Ok(packet);
            }
        }
    }

    /// What of a frame the program gets.
    #[inline]
    fn accepted(
        &self,
        frame: Result<Option<Frame<'_>>, fanpcap_ring::Corrupt>,
        refilter: Option<&Refilter>,
    ) -> Result<Option<Packet>, End> {
        let corrupt = |corrupt| End::from(ReadError::Corrupt(corrupt));
        let Some(frame) = frame.map_err(corrupt)? else {
            return Ok(None);
        };
        if let Some(Refilter { program, .. }) = refilter {
            if program.run(&View::of(&frame)) == 0 {
                return Ok(None);
            }
        }
        self.wanted.packet(frame).map_err(corrupt)
    }

    /// The ring is empty: ends a read that has begun, waits for one that has not. One that
    /// `may_end` without a packet does.
    #[cold]
    fn starve(&self, state: &mut State, call: &mut Call, may_end: bool) -> Result<(), End> {
        let ends = |call: &Call| call.begun && (call.delivered > 0 || may_end);
        if ends(call) {
            return Err(End::Delivered(call.delivered));
        }
        self.wait(&state.ring, &mut state.pace)?;
        call.begun = true;
        if ends(call) && !state.ring.is_ready() {
            return Err(End::Delivered(call.delivered));
        }
        Ok(())
    }

    /// Lets a filter hold from the next packet on. What is in the ring has not passed it.
    #[cold]
    fn take_filter(&self, state: &mut State) {
        let mut filter = self.filter.lock().unwrap_or_else(PoisonError::into_inner);
        self.has_filter.store(false, Ordering::Relaxed);
        if let Some((program, in_kernel)) = filter.take() {
            let left = in_kernel.then(|| state.ring.pending());
            state.refilter = Some(Refilter { program, left });
        }
    }

    /// Replaces the filter; `in_kernel` tells whether the socket runs it by now.
    pub fn set_filter(&self, program: Program, in_kernel: bool) {
        let mut filter = self.filter.lock().unwrap_or_else(PoisonError::into_inner);
        *filter = Some((program, in_kernel));
        self.has_filter.store(true, Ordering::Relaxed);
    }

    /// Ends the read that is under way, or the next one. Async-signal-safe.
    pub fn break_loop(&self) {
        self.broken.store(true, Ordering::Relaxed);
        self.wake.signal();
    }

    /// Whether the loop was broken; once.
    #[inline]
    pub(crate) fn take_break(&self) -> bool {
        self.broken.load(Ordering::Relaxed) && self.broken.swap(false, Ordering::Relaxed)
    }

    /// Switches between reads that wait and such that do not.
    pub fn set_nonblocking(&self, nonblocking: bool) {
        self.nonblocking.store(nonblocking, Ordering::Relaxed);
    }

    pub(crate) fn is_nonblocking(&self) -> bool {
        self.nonblocking.load(Ordering::Relaxed)
    }

    /// Chooses packets by where they go.
    pub fn set_direction(&self, direction: Direction) {
        self.wanted.set_direction(direction);
    }

    /// Says where VLAN tags go back in, if they do.
    pub fn set_tag_at(&self, at: Option<u8>) {
        self.wanted.set_tag_at(at);
    }

    /// Whether the device is down or gone, and a program that selects must look itself (see
    /// pcap_get_required_select_timeout(3PCAP)).
    pub fn is_net_down(&self) -> bool {
        self.net_down.load(Ordering::Relaxed)
    }

    fn waits_for_ever(&self) -> bool {
        self.timeout.is_none() && !self.is_nonblocking()
    }
}

fn release_block(blocks: &mut Blocks, pace: &mut Pace) {
    if let Some(closed) = blocks.release() {
        pace.handle_block(closed);
    }
}

fn next_frame<'a>(
    frames: &'a mut Frames,
    pace: &mut Pace,
) -> Result<Option<Frame<'a>>, fanpcap_ring::Corrupt> {
    let frame = frames.next_frame();
    if let Ok(Some(frame)) = &frame {
        pace.handle_frame(frame.stamp());
    }
    frame
}

/// A block or frame less that the newest filter has not seen.
#[inline]
fn pass(refilter: &mut Option<Refilter>) {
    if let Some(Refilter {
        left: Some(left), ..
    }) = refilter
    {
        *left = left.saturating_sub(1);
        if *left == 0 {
            *refilter = None;
        }
    }
}
