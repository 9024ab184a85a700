//! The reader of one handle: functions for the reading thread, and functions for any thread.

use crate::accept::{Direction, Options};
use crate::call::{Call, End, Packet, Pause};
use crate::control::Control;
use crate::lane::Lane;
use crate::merge::Merge;
use crate::port::Port;
use crate::publish::{PublishedCounters, Publisher};
use crate::ring::Ring;
use crate::single;
use fanpcap_bpf::Classic;
use fanpcap_linux::wait::clock;
use fanpcap_ring::{Handover, OneReader};
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A ring with its engine.
#[derive(Debug)]
pub struct Input {
    /// The ring, of which nothing has been read.
    pub ring: Ring,
    /// The ring's engine.
    pub port: Arc<dyn Port>,
    /// The longest time until the engine hands over a packet; `None`: no limit.
    pub timeout: Option<Duration>,
}

/// Reads the packets of one or several rings. One thread reads at a time. Any thread may call the
/// other functions.
#[derive(Debug)]
pub struct Reader {
    control: Control,
    /// The application's newest filter, until the reading thread takes it.
    filter: Handover<NewFilter>,
    /// The newest publisher of each device's counters, until the reading thread takes it.
    publishers: Vec<Handover<Publisher>>,
    /// A filter or publisher was handed over since the reading thread looked.
    has_news: AtomicBool,
    state: OneReader<State>,
}

/// A filter that the application has set.
#[derive(Debug)]
struct NewFilter {
    filter: Vec<Classic>,
    /// Whether the kernel runs the filter too.
    in_kernel: bool,
}

/// The most devices of one handle.
const MOST: usize = u64::BITS as usize;

const E2BIG: i32 = 7;

/// State that only the reading thread uses.
#[derive(Debug)]
enum State {
    One(Lane),
    Several(Merge),
}

impl State {
    /// Notes that the application begins to wait for packets (`waits`), or has waited.
    fn note_wait(&self, waits: bool) {
        match self {
            Self::One(lane) => lane.intake.note_wait(waits),
            Self::Several(merge) => merge.note_wait(waits),
        }
    }
}

impl Reader {
    /// A reader of one ring.
    ///
    /// # Errors
    /// `EMFILE` and the like.
    pub fn new(input: Input, options: &Options) -> io::Result<Self> {
        let control = Control::new(vec![input.port], input.timeout, options)?;
        Ok(Self::with(control, State::One(Lane::new(input.ring))))
    }

    /// A reader of several rings, which delivers their packets in the order of time.
    ///
    /// # Errors
    /// `E2BIG` for more than 64 rings; else as [`Reader::new`].
    pub fn of_several(inputs: Vec<Input>, options: &Options) -> io::Result<Self> {
        if inputs.len() > MOST {
            return Err(io::Error::from_raw_os_error(E2BIG));
        }
        let longest = inputs.iter().filter_map(|input| input.timeout).max();
        let parts = inputs.into_iter().map(|it| (Lane::new(it.ring), it.port));
        let (lanes, ports) = parts.unzip();
        let mut control = Control::new(ports, longest, options)?;
        control.make_selectable()?;
        Ok(Self::with(
            control,
            State::Several(Merge::new(lanes, longest)),
        ))
    }

    fn with(control: Control, state: State) -> Self {
        let devices = control.devices.iter();
        Self {
            filter: Handover::new(),
            publishers: devices.map(|_| Handover::new()).collect(),
            has_news: AtomicBool::new(false),
            state: OneReader::new(state),
            control,
        }
    }

    /// Reads the next packet of a read into `packet`.
    ///
    /// # Errors
    /// Why the read ends without a packet.
    ///
    /// # Safety
    /// No other thread is in this function meanwhile. A thread that has left it by longjmp(3) does
    /// not count.
    #[inline]
    #[expect(
        unsafe_code,
        reason = "a lock could be left locked, by longjmp and by fork"
    )]
    pub unsafe fn next(&self, call: &mut Call, packet: &mut Packet) -> Result<(), End> {
        loop {
            // SAFETY: the caller is the only thread in here, and `state` is not used during the
            // wait.
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
            let waited = self.control.wait(wait, call);
            // SAFETY: the caller is the only thread in here, and the first `state` is not used any
            // more.
            let state = unsafe { self.state.get() };
            state.note_wait(false);
            if let Err(end) = waited {
                give_up(state, end)?;
            }
        }
    }

    /// Reads the next packet, if there is one.
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
            State::One(lane) => single::next(lane, &self.control, call, packet),
            State::Several(merge) => merge.next(&self.control, call, packet),
        }
    }

    #[cold]
    fn take_news(&self, state: &mut State) {
        // Reset the flag first: a later hand-over sets it again.
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

    /// Replaces the filter. `in_kernel`: the engines run it already.
    pub fn set_filter(&self, filter: Vec<Classic>, in_kernel: bool) {
        self.filter.give(Box::new(NewFilter { filter, in_kernel }));
        self.has_news.store(true, Ordering::Release);
    }

    /// Publishes the counters of the member that this device has just become, from the next read
    /// on. From then on the reader reads the kernel's counters; see [`PublishedCounters`].
    pub fn keep(&self, device: usize, kept: PublishedCounters) {
        let mut devices = self.control.devices.iter().zip(&self.publishers);
        if let Some((device, handover)) = devices.nth(device) {
            let port = Arc::clone(&device.port);
            let publisher = Publisher::new(kept, port, clock::monotonic_ns());
            handover.give(Box::new(publisher));
            self.has_news.store(true, Ordering::Release);
        }
    }

    /// Ends the current read, or the next one. Async-signal-safe.
    pub fn break_loop(&self) {
        self.control.break_loop();
    }

    /// Wakes a waiting reader, so that it computes anew what to publish and how long to wait.
    pub fn nudge(&self) {
        self.control.wake.signal();
    }

    /// Chooses whether reads wait.
    pub fn set_nonblocking(&self, nonblocking: bool) {
        self.control.set_nonblocking(nonblocking);
    }

    /// Chooses packets by their direction.
    pub fn set_direction(&self, direction: Direction) {
        self.control.wanted.set_direction(direction);
    }

    /// Sets where VLAN tags are inserted again, if they are.
    pub fn set_tag_at(&self, at: Option<u8>) {
        self.control.wanted.set_tag_at(at);
    }

    /// Whether a device is down or gone. An application that calls select(2) must then read at
    /// intervals (pcap_get_required_select_timeout(3PCAP)).
    pub fn is_net_down(&self) -> bool {
        self.control.is_net_down()
    }

    /// The descriptor to wait on, if it is not that of the only port. From the first call on it is
    /// readable only when a read would deliver packets.
    pub fn selectable(&self) -> Option<RawFd> {
        self.control.selectable()
    }
}

/// Ends a read whose wait ended with `end`, unless the merge holds packets back: then it delivers
/// those first.
#[cold]
fn give_up(state: &mut State, end: End) -> Result<(), End> {
    if let (State::Several(merge), End::Failed(_)) = (state, &end) {
        if merge.hurry() {
            return Ok(());
        }
    }
    Err(end)
}
