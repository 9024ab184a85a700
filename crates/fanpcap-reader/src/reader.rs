//! The reader of one handle: functions for the reading thread, and functions for any thread.

use crate::accept::Options;
use crate::call::{Call, End, Packet, Pause};
use crate::control::Control;
use crate::group_tasks::{Takeover, TaskTimer};
use crate::inherited::Inherited;
use crate::lane::Lane;
use crate::merge::Merge;
use crate::port::Port;
use crate::publish::{PublishedCounters, Publisher};
use crate::single::{next_of_blocks, next_of_calls, next_of_frames, next_of_pool};
use fanpcap_bpf::Classic;
use fanpcap_linux::process::signal::Blocked;
use fanpcap_linux::wait::clock;
use fanpcap_ring::{Handover, OneReader, Ring};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::{io, mem, slice};

/// A ring with its engine.
pub struct Input {
    /// The ring. Nothing has been read from it.
    pub ring: Ring,
    /// The ring's engine.
    pub port: Arc<dyn Port>,
    /// The longest time until the engine hands over a packet; `None`: no limit.
    pub timeout: Option<Duration>,
}

/// Reads the packets of one or several rings. One thread at a time calls [`Reader::next`]. Any
/// thread may call the other functions, and those of [`Reader::control`].
pub struct Reader {
    control: Control,
    /// The application's newest filter, until the reading thread takes it.
    filter: Handover<NewFilter>,
    state: OneReader<State>,
}

/// A filter that the application has set, and its number if the kernel runs it too.
type NewFilter = (Vec<Classic>, Option<u32>);

const MOST: usize = u64::BITS as usize;

const E2BIG: i32 = 7;

/// State that only the reading thread uses.
struct State {
    lanes: Lanes,
    /// The application's filter; `None` if it has set no filter. Rings that the reader takes over
    /// need the filter.
    filter: Option<Vec<Classic>>,
}

// The variants are not boxed, because each packet passes them.
#[expect(clippy::large_enum_variant, reason = "there is one per handle")]
enum Lanes {
    One(Lane),
    Several(Merge),
}

impl State {
    /// The lanes of the reader's own rings, in the order of the devices.
    fn own(&mut self) -> &mut [Lane] {
        match &mut self.lanes {
            Lanes::One(lane) => slice::from_mut(lane),
            Lanes::Several(merge) => &mut merge.lanes,
        }
    }

    /// Notes that the application begins to wait for packets (`waits`), or has waited.
    fn note_wait(&mut self, waits: bool) {
        let lanes = self.own().iter();
        let publishers = lanes.filter_map(|lane| lane.intake.publisher.as_ref());
        publishers.for_each(|publisher| publisher.note_wait(waits));
    }

    fn set_filter(&mut self, (filter, in_kernel): NewFilter, is_counted: bool) {
        for lane in self.own() {
            lane.set_filter(filter.clone(), in_kernel, is_counted);
        }
        if let Lanes::Several(merge) = &mut self.lanes {
            for inherited in &mut merge.inherited {
                inherited.intake.set_filter(filter.clone());
            }
        }
        self.filter = Some(filter);
    }

    /// Adds rings taken over from other members to the rings that are read. From now on, all
    /// packets are held back if `holds`. `timeout` is the time-out of the device.
    #[cold]
    #[inline(never)]
    fn take_over(&mut self, inherited: Vec<Takeover>, holds: bool, timeout: Option<Duration>) {
        if inherited.is_empty() && !holds {
            if let Lanes::Several(merge) = &mut self.lanes {
                merge.holds = false;
            }
            return;
        }
        let mut merge = match self.take_lanes() {
            Lanes::One(lane) => Merge::new(vec![lane], timeout),
            Lanes::Several(merge) => merge,
        };
        let filter = self.filter.as_ref();
        let inherited = inherited.into_iter();
        let inherited = inherited.map(|it| Inherited::new(it, filter));
        merge.inherited.extend(inherited);
        merge.holds = holds;
        self.lanes = Lanes::Several(merge);
    }

    /// Takes the lanes out and leaves an empty merge.
    #[cold]
    #[inline(never)]
    fn take_lanes(&mut self) -> Lanes {
        let nothing = Lanes::Several(Merge::new(Vec::new(), None));
        mem::replace(&mut self.lanes, nothing)
    }
}

impl Reader {
    /// A reader of one ring.
    ///
    /// # Errors
    /// `EMFILE`, or another error of the calls that create descriptors.
    pub fn new(input: Input, options: &Options) -> io::Result<Self> {
        Self::of_several(vec![input], options)
    }

    /// A reader of several rings, which delivers packets in the order of their time.
    ///
    /// # Errors
    /// `E2BIG` for more than 64 rings; otherwise as [`Reader::new`].
    pub fn of_several(inputs: Vec<Input>, options: &Options) -> io::Result<Self> {
        if inputs.len() > MOST {
            return Err(io::Error::from_raw_os_error(E2BIG));
        }
        let longest = inputs.iter().filter_map(|input| input.timeout).max();
        let parts = inputs.into_iter();
        let parts = parts.map(|it| (Lane::new(it.ring, it.timeout), it.port));
        let (lanes, ports): (Vec<_>, _) = parts.unzip();
        let control = Control::new(ports, longest, options)?;
        if lanes.len() != 1 || !control.is_socket() {
            control.be_selectable()?;
        }
        let lanes = match <[Lane; 1]>::try_from(lanes) {
            Ok([lane]) => Lanes::One(lane),
            Err(lanes) => Lanes::Several(Merge::new(lanes, longest)),
        };
        let filter = None;
        Ok(Self {
            filter: Handover::default(),
            state: OneReader::new(State { lanes, filter }),
            control,
        })
    }

    /// Reads the next packet into `packet`.
    ///
    /// # Errors
    /// The reason why the read ends without a packet.
    ///
    /// # Safety
    /// No other thread is in this function at the same time. A thread that has left the function by
    /// longjmp(3) does not count.
    #[inline]
    #[expect(unsafe_code, reason = "longjmp and fork could leave a lock locked")]
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
                Err(Pause::Alone) => {
                    self.settle(state);
                    continue;
                }
            };
            state.note_wait(true);
            let waited = self.control.wait(wait, call);
            // SAFETY: the caller is the only thread in here, and the first `state` is not used any
            // more.
            let state = unsafe { self.state.get() };
            state.note_wait(false);
            match waited {
                Ok(false) => {}
                Ok(true) => {
                    self.attend(state);
                }
                Err(end) => self.give_up(state, end)?,
            }
        }
    }

    /// The functions that any thread may call.
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// Replaces the lanes by `lane`, or by none. Returns the application's filter, which the reader
    /// runs on all packets of the new lane.
    ///
    /// # Safety
    /// As [`Reader::next`].
    #[expect(unsafe_code, reason = "as `Reader::next`")]
    pub(crate) unsafe fn set_lanes(&self, lane: Option<Lane>) -> Option<Vec<Classic>> {
        // SAFETY: the caller's promise.
        let state = unsafe { self.state.get() };
        if let Some(new) = self.filter.take() {
            state.set_filter(*new, false);
        }
        let filter = state.filter.clone();
        drop(state.take_lanes());
        if let Some(lane) = lane {
            state.lanes = Lanes::One(lane);
        }
        if let Some(filter) = &filter {
            state.set_filter((filter.clone(), None), !self.control.is_socket());
        }
        filter
    }

    #[inline]
    fn attempt(
        &self,
        state: &mut State,
        call: &mut Call,
        packet: &mut Packet,
    ) -> Result<(), Pause> {
        let control = &self.control;
        if control.has_news.load(Ordering::Relaxed) {
            self.take_news(state, call);
        }
        match &mut state.lanes {
            Lanes::One(Lane { ring, intake }) => match ring {
                Ring::V3(blocks) => next_of_blocks(blocks, intake, control, call, packet),
                Ring::V2(frames) => next_of_frames(frames, intake, control, call, packet),
                Ring::Pool(pool) => next_of_pool(pool, intake, control, call, packet),
                Ring::Calls(calls) => next_of_calls(calls, intake, control, call, packet),
            },
            Lanes::Several(merge) => merge.next(control, call, packet),
        }
    }

    #[cold]
    #[inline(never)]
    fn take_news(&self, state: &mut State, call: &mut Call) {
        // Reset the flag first: a handover after this point sets the flag again, so it is not
        // missed.
        self.control.has_news.swap(false, Ordering::Acquire);
        if let Some(filter) = self.filter.take() {
            state.set_filter(*filter, !self.control.is_socket());
        }
        for (index, device) in self.control.devices.iter().enumerate() {
            let publisher = device.publisher.take();
            if let (Some(lane), Some(publisher)) = (state.own().get_mut(index), publisher) {
                lane.set_publisher(publisher);
            }
        }
        // An application that waits in poll(2) may have been woken for group tasks. Such an
        // application does not expect the read to wait, so the read may now end without a packet.
        let was_woken = self.control.has_group_tasks() && self.control.was_woken(call);
        call.begun |= self.attend(state) && was_woken;
    }

    /// Runs group tasks. Returns false when no group has tasks. Runs the tasks of all devices, in
    /// the order of the devices: the first device's tasks may concern the other devices.
    #[cold]
    #[inline(never)]
    fn attend(&self, state: &mut State) -> bool {
        if !self.control.timers().any(TaskTimer::is_wanted) {
            return false;
        }
        let mut holds = false;
        for (index, device) in self.control.devices.iter().enumerate() {
            let Some(timer) = device.timer.get() else {
                continue;
            };
            // A signal handler that leaves the read by siglongjmp(3), or a cancelled thread, must
            // not leave a group's lock locked or a ring without a reader.
            let _signals = Blocked::new();
            let attention = timer.attend();
            if let (Some(frames), Some(lane)) = (attention.skipped, state.own().get_mut(index)) {
                lane.skip(frames);
            }
            holds |= attention.holds;
            state.take_over(attention.inherited, holds, self.control.timeout);
            if attention.is_lost {
                device.note_lost();
            }
        }
        self.control.announce(u64::MAX, None);
        true
    }

    /// Ends a read with `end`. If a device is gone, the read first delivers the packets that are
    /// left in the device's ring; if the merge holds packets back, it delivers those.
    #[cold]
    #[inline(never)]
    fn give_up(&self, state: &mut State, end: End) -> Result<(), End> {
        if !matches!(end, End::Failed(_)) {
            return Err(end);
        }
        let mut has_more = false;
        for (index, device) in self.control.devices.iter().enumerate() {
            let lane = state.own().get_mut(index).filter(|_| device.is_gone());
            has_more |= lane.is_some_and(|lane| lane.ring.open_last());
        }
        if let Lanes::Several(merge) = &mut state.lanes {
            // The process for which the reader holds packets back may have ended.
            merge.holds = false;
            has_more |= merge.hurry();
        }
        if has_more { Ok(()) } else { Err(end) }
    }

    /// Stops merging: only the lane of one device is left.
    #[cold]
    #[inline(never)]
    fn settle(&self, state: &mut State) {
        if let Lanes::Several(Merge { mut lanes, .. }) = state.take_lanes() {
            if let Some(mut lane) = lanes.pop() {
                // Forgets the rate from before the merge, which does not measure.
                lane.intake.pace.rest(None);
                state.lanes = Lanes::One(lane);
            }
        }
        self.control.announce(u64::MAX, None);
    }

    /// Replaces the filter. If the engines already run this filter, `in_kernel` is the filter's
    /// number, which is never 0. A record has the number of the filter that was run on its packet.
    /// If `in_kernel` is `None`, the reader runs the filter on each packet.
    pub fn set_filter(&self, filter: Vec<Classic>, in_kernel: Option<u32>) {
        self.filter.give(Box::new((filter, in_kernel)));
        self.control.give_news();
    }

    /// Publishes counters from the next read on, because the handle has just become a member on
    /// this device. From then on the reader reads the kernel's counters; see [`PublishedCounters`].
    pub fn keep(&self, device: usize, kept: PublishedCounters) {
        if let Some(device) = self.control.devices.get(device) {
            let port = Arc::clone(device.port());
            let publisher = Publisher::new(kept, port, clock::monotonic_ns());
            device.publisher.give(Box::new(publisher));
            self.control.give_news();
        }
    }
}
