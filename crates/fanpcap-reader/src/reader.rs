//! Reading, packet by packet, with the counts and returns of pcap_dispatch(3PCAP) as the system's
//! libpcap has them on Linux (pcap-linux.c, `pcap_read_linux_mmap_v3` and `_v2`).

use crate::accept::{Direction, Wanted};
use crate::call::{Call, End, Options, Packet, Pause, Wait};
use crate::lane::{Device, Lane};
use crate::merge::Merge;
use crate::publish::{Kept, Publisher};
use crate::ring::Ring;
use fanpcap_bpf::Classic;
use fanpcap_linux::interface;
use fanpcap_linux::wait::{AnyOf, Wake, clock};
use fanpcap_ring::{Handover, OneReader};
use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Reads the packets of one or several sockets' rings. One thread reads at a time; all else may be called
/// by any.
#[derive(Debug)]
pub struct Reader {
    /// One or more.
    pub(crate) devices: Vec<Device>,
    pub(crate) wake: Wake,
    broken: AtomicBool,
    nonblocking: AtomicBool,
    /// How late a packet may be delivered; without, however late (pcap_set_timeout(3PCAP)).
    pub(crate) timeout: Option<Duration>,
    pub(crate) wanted: Wanted,
    /// The application's newest filter, until the thread that reads takes it.
    filter: Handover<NewFilter>,
    /// What is to publish each device's counters from now on, likewise.
    publishers: Vec<Handover<Publisher>>,
    /// Something was handed over since the reader looked.
    has_news: AtomicBool,
    /// What to wait on for several devices.
    pub(crate) selectable: Option<AnyOf>,
    /// The program does so.
    pub(crate) is_selected: AtomicBool,
    state: OneReader<State>,
}

/// A filter that the application has set.
#[derive(Debug)]
struct NewFilter {
    filter: Vec<Classic>,
    /// Whether the kernel runs it too.
    in_kernel: bool,
}

/// Devices of one handle.
const MOST: usize = u64::BITS as usize;

const E2BIG: i32 = 7;

/// What only the thread that reads touches.
#[derive(Debug)]
enum State {
    One(Lane),
    Several(Merge),
}

impl State {
    /// The application begins to wait for packets, or has waited.
    fn note_wait(&self, waits: bool) {
        match self {
            Self::One(lane) => lane.note_wait(waits),
            Self::Several(merge) => merge.note_wait(waits),
        }
    }
}

impl Reader {
    /// A reader of the ring that `socket` has and of which nothing has been read. The socket must stay
    /// open as long as the reader lives.
    ///
    /// # Errors
    /// When the ring can't be found or mapped; the socket is as it was.
    pub fn new(socket: BorrowedFd<'static>, options: &Options) -> io::Result<Self> {
        let (ring, timeout) = Ring::of(socket)?;
        let state = State::One(Lane::new(ring));
        Self::with(&[socket], timeout, None, state, options)
    }

    /// A reader of several such rings, in the order of time: see [`Merge`].
    ///
    /// # Errors
    /// As [`Reader::new`]; `E2BIG` for more than 64 sockets.
    pub fn of_several(sockets: &[BorrowedFd<'static>], options: &Options) -> io::Result<Self> {
        if sockets.len() > MOST {
            return Err(io::Error::from_raw_os_error(E2BIG));
        }
        let rings = sockets.iter().map(|socket| Ring::of(*socket));
        let (rings, timeouts): (Vec<_>, Vec<_>) =
            rings.collect::<io::Result<Vec<_>>>()?.into_iter().unzip();
        let longest = timeouts.into_iter().flatten().max();
        let lanes = rings.into_iter().map(Lane::new).collect();
        let state = State::Several(Merge::new(lanes, longest));
        let selectable = AnyOf::new(sockets)?;
        Self::with(sockets, longest, Some(selectable), state, options)
    }

    fn with(
        sockets: &[BorrowedFd<'static>],
        timeout: Option<Duration>,
        selectable: Option<AnyOf>,
        state: State,
        options: &Options,
    ) -> io::Result<Self> {
        let device = |socket: &BorrowedFd<'static>| Device {
            socket: *socket,
            net_down: AtomicBool::new(false),
        };
        Ok(Self {
            devices: sockets.iter().map(device).collect(),
            wake: Wake::new()?,
            broken: AtomicBool::new(false),
            nonblocking: AtomicBool::new(options.nonblocking),
            timeout,
            wanted: Wanted::new(options, interface::index("lo")),
            filter: Handover::new(),
            publishers: sockets.iter().map(|_| Handover::new()).collect(),
            has_news: AtomicBool::new(false),
            selectable,
            is_selected: AtomicBool::new(false),
            state: OneReader::new(state),
        })
    }

    /// Reads the next packet of a read into `packet`.
    ///
    /// # Errors
    /// How the read ends, when there is none.
    ///
    /// # Safety
    /// No other thread is in here meanwhile. One that has left by longjmp(3) is not.
    #[inline]
    #[expect(
        unsafe_code,
        reason = "a lock could be left locked, by longjmp and by fork"
    )]
    pub unsafe fn next(&self, call: &mut Call, packet: &mut Packet) -> Result<(), End> {
        loop {
            // SAFETY: the caller vouches for it, and nothing is kept while waiting.
            let state = unsafe { self.state.get() };
            let wait = match self.attempt(state, call, packet) {
                Ok(()) => {
                    call.delivered += 1;
                    return Ok(());
                }
                Err(Pause::End(end)) => return Err(end),
                Err(Pause::Wait(wait)) => wait,
            };
            state.note_wait(true);
            let waited = self.wait(wait, call);
            // SAFETY: as above.
            let state = unsafe { self.state.get() };
            state.note_wait(false);
            if let Err(end) = waited {
                self.give_up(state, end)?;
            }
        }
    }

    /// Reads the next packet, if it is there.
    #[inline]
    fn attempt(
        &self,
        state: &mut State,
        call: &mut Call,
        packet: &mut Packet,
    ) -> Result<(), Pause> {
        if self.has_news.load(Ordering::Relaxed) {
            self.take_news(state);
        }
        match state {
            State::One(lane) if lane.ring.is_v3() => self.next_of_blocks(lane, call, packet),
            State::One(lane) => self.next_of_frames(lane, call, packet),
            State::Several(merge) => self.next_of_several(merge, call, packet),
        }
    }

    #[inline]
    fn next_of_blocks(
        &self,
        lane: &mut Lane,
        call: &mut Call,
        packet: &mut Packet,
    ) -> Result<(), Pause> {
        loop {
            let Ring::V3(blocks) = &mut lane.ring else {
                return Err(End::Delivered(call.delivered).into());
            };
            if !blocks.open() {
                return Err(self.starve(lane, call, !self.waits_for_ever()));
            }
            call.begun = true;
            let is_spent = blocks.is_spent();
            let goes_on = !call.is_done() && !self.broken.load(Ordering::Relaxed);
            if goes_on && !is_spent {
                if lane.next_packet(&self.wanted, packet)? {
                    return Ok(());
                }
                continue;
            }
            // At the end of a block, or of the read.
            if is_spent {
                lane.release();
            }
            self.check_end(call)?;
        }
    }

    fn next_of_frames(
        &self,
        lane: &mut Lane,
        call: &mut Call,
        packet: &mut Packet,
    ) -> Result<(), Pause> {
        loop {
            let Ring::V2(frames) = &lane.ring else {
                return Err(End::Delivered(call.delivered).into());
            };
            let (is_held, is_ready) = (frames.is_held(), frames.is_ready());
            if is_held {
                lane.release();
                self.check_end(call)?;
            } else if is_ready {
                call.begun = true;
                if lane.next_packet(&self.wanted, packet)? {
                    return Ok(());
                }
            } else {
                return Err(self.starve(lane, call, true));
            }
        }
    }

    /// Ends a read that was broken, or has delivered all that it may.
    #[inline]
    pub(crate) fn check_end(&self, call: &Call) -> Result<(), End> {
        if self.take_break() {
            return Err(End::Broken);
        }
        if call.is_done() {
            return Err(End::Delivered(call.delivered));
        }
        Ok(())
    }

    /// The ring is empty. A read that has begun ends when it has delivered something, or when it `may_be_empty`;
    /// else it waits.
    #[cold]
    fn starve(&self, lane: &mut Lane, call: &Call, may_be_empty: bool) -> Pause {
        let next = lane.handle_empty();
        if call.begun && (call.delivered > 0 || may_be_empty) {
            return End::Delivered(call.delivered).into();
        }
        let timeout = self.timeout.filter(|timeout| !timeout.is_zero());
        let may_rest = !self.is_nonblocking() && !self.is_net_down();
        let rest = lane.pace.rest(timeout).filter(|_| may_rest);
        if rest.is_none() && lane.has_told() && !self.is_nonblocking() {
            lane.handle_idle();
        }
        Pause::Wait(rest.map_or(Wait::Packets(next), Wait::Rest))
    }

    /// A wait has ended the read, unless there are packets that only wait for others.
    #[cold]
    fn give_up(&self, state: &mut State, end: End) -> Result<(), End> {
        if let (State::Several(merge), End::Failed(_)) = (state, &end) {
            if merge.hurry() {
                return Ok(());
            }
        }
        Err(end)
    }

    #[cold]
    fn take_news(&self, state: &mut State) {
        // First: what is handed over from here on is told once more.
        self.has_news.swap(false, Ordering::Acquire);
        if let Some(filter) = self.filter.take() {
            let NewFilter { filter, in_kernel } = *filter;
            match state {
                State::One(lane) => lane.set_filter(filter, in_kernel),
                State::Several(merge) => merge.set_filter(&filter, in_kernel),
            }
        }
        for (device, publisher) in self.publishers.iter().enumerate() {
            let lane = match state {
                State::One(lane) => Some(lane),
                State::Several(merge) => merge.lane(device),
            };
            if let (Some(lane), Some(publisher)) = (lane, publisher.take()) {
                lane.set_publisher(publisher);
            }
        }
    }

    /// Replaces the filter; `in_kernel` tells whether the sockets run it by now.
    pub fn set_filter(&self, filter: Vec<Classic>, in_kernel: bool) {
        self.filter.give(Box::new(NewFilter { filter, in_kernel }));
        self.has_news.store(true, Ordering::Release);
    }

    /// Keeps counters for others from the next read on, of the member that the socket of this index has just
    /// become. Its kernel counters are then read by the reader too: see [`Kept`].
    pub fn keep(&self, device: usize, kept: Kept) {
        let devices = self.devices.iter().zip(&self.publishers);
        if let Some((Device { socket, .. }, handover)) = devices.into_iter().nth(device) {
            let publisher = Publisher::new(kept, *socket, clock::monotonic_ns());
            handover.give(Box::new(publisher));
            self.has_news.store(true, Ordering::Release);
        }
    }

    /// Ends the read that is under way, or the next one. Async-signal-safe.
    pub fn break_loop(&self) {
        self.broken.store(true, Ordering::Relaxed);
        self.wake.signal();
    }

    /// Has a reader that waits look again what there is to tell, and for how long to wait.
    pub fn nudge(&self) {
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

    /// Whether a device is down or gone, and a program that selects must look itself (see
    /// pcap_get_required_select_timeout(3PCAP)).
    pub fn is_net_down(&self) -> bool {
        self.devices.iter().any(Device::is_down)
    }

    /// What to wait on, where that is not the one socket. From the first time that it is asked for, it is
    /// readable only when a read would give something.
    pub fn selectable(&self) -> Option<RawFd> {
        let selectable = self.selectable.as_ref()?;
        self.is_selected.store(true, Ordering::Relaxed);
        Some(selectable.fd())
    }

    fn waits_for_ever(&self) -> bool {
        self.timeout.is_none() && !self.is_nonblocking()
    }
}
