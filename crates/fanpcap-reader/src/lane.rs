//! One ring, with the filter, counters and pace that apply to its frames.

use crate::accept::OUTGOING;
use crate::call::{End, Packet};
use crate::control::Control;
use crate::filter::View;
use crate::group_tasks::PublishedPosition;
use crate::port::ReadError;
use crate::publish::Publisher;
use crate::rest::Pace;
use fanpcap_bpf::Classic;
use fanpcap_linux::file::shared::Word;
use fanpcap_ring::{Frame, Layout, Ring, Stamp};
use std::mem;
use std::sync::atomic::{Ordering, compiler_fence};
use std::time::Duration;

/// One ring of a reader. Only the reading thread uses it.
pub(crate) struct Lane {
    pub(crate) ring: Ring,
    pub(crate) intake: Intake,
}

/// The reader's state for the frames of one ring: pace, filter and published position.
#[derive(Default)]
pub(crate) struct Intake {
    pub(crate) pace: Pace,
    refilter: Option<Refilter>,
    /// The words in which the reader publishes its position; `None`: it publishes none.
    shown: Option<PublishedPosition>,
    pub(crate) publisher: Option<Box<Publisher>>,
    /// The word in which the reader publishes how many packets its filter has rejected. `None`: it
    /// does not publish this number.
    pub(crate) rejected: Option<Word>,
    /// The number of taken frames at which the publisher reads the clock.
    look_at: u64,
    /// The number of frames at the start of the ring that other members have read.
    skipped: u64,
}

/// A filter that the reader runs, because the kernel has perhaps not run it on all packets in the
/// ring.
#[derive(Default)]
struct Refilter {
    filter: Vec<Classic>,
    /// The number of further blocks or frames on whose packets the reader runs the filter; `None`:
    /// all.
    left: Option<usize>,
    /// The number by which records identify this filter. If a packet's record has this number, the
    /// packet has passed the filter in the kernel already, and the reader does not run the filter
    /// on it again. 0: no record has the number 0, so the reader runs the filter on each packet.
    number: u32,
    counted: Counted,
}

/// Who has counted a ring's packets as received, even those that a filter rejects.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Counted {
    /// Nobody: the kernel counts packets that a filter has passed.
    #[default]
    Nobody,
    /// An engine, for this reader's member.
    ForThis,
    /// An engine that runs no filters, for the member from which the reader has taken the ring
    /// over.
    ForOther,
}

impl Refilter {
    /// How many bytes of the packet the application gets; 0 if the filter rejects the packet. Out
    /// of line, so that a reader without a filter keeps the frame in registers.
    #[inline(never)]
    fn kept(&self, frame: Frame<'_>) -> u32 {
        let has_passed = self.number != 0 && frame.filter() == self.number;
        if has_passed {
            return u32::MAX;
        }
        // Where no kernel runs the filter, the reader cuts packets as the kernel does.
        let is_alone = self.is_counted() && self.number == 0 && self.left.is_none();
        match View::of(&frame).filtered(&self.filter) {
            0 => 0,
            kept if is_alone => kept,
            _ => u32::MAX,
        }
    }

    /// Whether a rejected packet must be subtracted from the number of received packets. This is so
    /// if the kernel does not run the filter, or if the kernel has run no filter on an outgoing
    /// packet: on some kernels, it filters only received packets. Any other rejected packet came
    /// before the filter was set, and stays counted.
    #[inline(never)]
    fn takes_back(&self, frame: Frame<'_>) -> bool {
        let is_unfiltered = frame.filter() == 0 && frame.link().pkttype == OUTGOING;
        self.is_counted() && (self.number == 0 || is_unfiltered)
    }

    fn is_counted(&self) -> bool {
        self.counted != Counted::Nobody
    }

    /// Counts a rejected packet, also in the word in which the reader publishes the count. Only the
    /// reading thread adds to the counts, so it needs no atomic addition.
    #[inline(never)]
    fn note_rejected(&self, frame: Frame<'_>, control: &Control, published: Option<&Word>) {
        if !self.takes_back(frame) {
            return;
        }
        if self.counted == Counted::ForThis {
            let count = control.rejected.load(Ordering::Relaxed);
            control.rejected.store(count + 1, Ordering::Relaxed);
        }
        if let Some(published) = published {
            published.set(published.get().wrapping_add(1));
        }
    }
}

impl Lane {
    /// The lane of an engine that hands over packets within `timeout`.
    pub(crate) fn new(ring: Ring, timeout: Option<Duration>) -> Self {
        let intake = Intake::new(Pace::of(&ring, timeout));
        Self { ring, intake }
    }

    pub(crate) fn set_publisher(&mut self, publisher: Box<Publisher>) {
        let Self { ring, intake } = self;
        intake.show(publisher.kept.position.clone(), ring);
        intake.look_at = ring.taken().wrapping_add(1);
        intake.rejected = publisher.kept.rejected.clone();
        intake.publisher = Some(publisher);
    }

    /// Makes the reader run `filter` from the next packet on. If `in_kernel` is `None`, the reader
    /// runs it on every packet. Otherwise the kernel runs the filter too, and `in_kernel` is the
    /// filter's number in the kernel. The reader then runs it only on packets that may have come
    /// into the ring before the kernel had the filter. `is_counted`: an engine counts the ring's
    /// packets as received, even those that the filter rejects.
    pub(crate) fn set_filter(
        &mut self,
        filter: Vec<Classic>,
        in_kernel: Option<u32>,
        is_counted: bool,
    ) {
        let (left, number) = match (in_kernel, self.ring.pending()) {
            (Some(_), Some(pending)) => (Some(pending), 0),
            (number, _) => (None, number.unwrap_or(0)),
        };
        self.intake.refilter = Some(Refilter {
            filter,
            left,
            number,
            counted: match is_counted {
                true => Counted::ForThis,
                false => Counted::Nobody,
            },
        });
    }

    /// Whether the publisher reads the clock at the next frame.
    pub(crate) fn is_about_to_look(&self) -> bool {
        self.intake.shown.is_some() && self.ring.taken().wrapping_add(1) >= self.intake.look_at
    }

    /// Skips the first `frames` frames of the ring, which other members have read.
    #[cold]
    #[inline(never)]
    pub(crate) fn skip(&mut self, frames: u64) {
        if let Ring::Pool(pool) = &mut self.ring {
            // A pool itself has the positions up to which it was read, so only the count must be
            // set.
            pool.skip(frames);
        } else if frames > self.ring.taken() {
            self.intake.skipped = frames;
            self.intake.look_at = 0;
        }
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn look(&mut self, control: &Control) {
        let taken = self.ring.taken();
        if taken >= self.intake.skipped {
            self.intake.look_at = look(&mut self.intake.publisher, taken, control);
        }
    }

    /// Returns the arrival time of the next frame, even if the application does not want the frame.
    /// Releases to the kernel the frames that have been read.
    pub(crate) fn head(&mut self) -> Option<Stamp> {
        let Self { ring, intake } = self;
        let mut is_released = false;
        let head = ring.head(|| {
            pass(&mut intake.refilter);
            is_released = true;
        });
        if is_released {
            intake.show_mark(ring);
        }
        head
    }
}

impl Intake {
    pub(crate) fn new(pace: Pace) -> Self {
        Self {
            pace,
            look_at: u64::MAX,
            ..Self::default()
        }
    }

    /// From now on publishes how far the reader of `ring` has come.
    pub(crate) fn show(&mut self, words: PublishedPosition, ring: &impl Layout) {
        // Other members may have read the ring before its owner does, and published a later
        // position, which must stay.
        let shown = words.taken.get();
        let words = self.shown.insert(words).clone();
        if shown <= ring.taken() || shown == u64::MAX {
            self.show_mark(ring);
            words.taken.set(ring.taken());
        }
    }

    /// Makes the reader of an inherited ring run `filter` from the next packet on.
    pub(crate) fn set_filter(&mut self, filter: Vec<Classic>) {
        let counted = match self.rejected {
            Some(_) => Counted::ForOther,
            None => Counted::Nobody,
        };
        self.refilter = Some(Refilter {
            filter,
            counted,
            ..Refilter::default()
        });
    }

    /// Publishes which block comes next, before a frame of the block is taken.
    #[inline]
    pub(crate) fn show_mark(&self, ring: &impl Layout) {
        if let (Some(mark), Some(shown)) = (ring.mark(), &self.shown) {
            if ring.taken() < self.skipped {
                // Another member has read these frames, and has published a later block.
                return;
            }
            shown.mark.set(mark.word());
            // The fence keeps the order of the stores. So if the thread is killed, a published
            // count never belongs to a block whose mark is not yet published.
            compiler_fence(Ordering::Release);
        }
    }

    /// Handles an empty ring, from which `taken` frames were taken: publishes the counters if the
    /// time has come. Returns the time until the next publication; `None` if nothing is left to
    /// publish.
    pub(crate) fn handle_empty(&mut self, taken: u64) -> Option<Duration> {
        self.publisher.as_mut()?.handle_empty(taken)
    }

    /// Notes that the reader is about to wait at the empty ring, if everything is published.
    pub(crate) fn handle_idle(&self, taken: u64) {
        if let Some(publisher) = &self.publisher {
            publisher.handle_idle(taken);
        }
    }

    /// Reads the next frame, which must exist. Returns false when the application does not want the
    /// frame.
    #[inline]
    pub(crate) fn next_packet<R: Layout>(
        &mut self,
        ring: &mut R,
        control: &Control,
        packet: &mut Packet,
    ) -> Result<bool, End> {
        // Compute the count only if it is published. The addition may wrap, because a dead reader
        // may have left any number.
        let next = || ring.taken().wrapping_add(1);
        let taken = self.shown.as_ref().map_or(0, |_| next());
        let corrupt = |corrupt| End::from(ReadError::new(corrupt));
        let Some(mut frame) = ring.next_frame().map_err(corrupt)? else {
            return Ok(false);
        };
        if R::IS_OF_FRAMES {
            self.pace.handle_frame(frame.stamp());
        }
        // Publish before delivery: an application that dies in its callback has already received
        // the packet.
        if let Some(shown) = &self.shown {
            if taken < self.look_at {
                shown.taken.set(taken);
            } else if taken <= self.skipped {
                return Ok(false);
            } else {
                shown.taken.set(taken);
                self.look_at = look(&mut self.publisher, taken, control);
            }
        }
        if let Some(refilter) = &self.refilter {
            let kept = refilter.kept(frame.again());
            if kept == 0 {
                refilter.note_rejected(frame, control, self.rejected.as_ref());
                return Ok(false);
            }
            if kept < frame.captured() {
                frame = frame.cut(kept);
            }
        }
        let accepted = control.wanted.accept(frame, packet);
        accepted.map_err(corrupt)
    }

    /// Notes that the frame, block or snapshot that was read has been released.
    #[inline]
    pub(crate) fn advance(&mut self, ring: &impl Layout) {
        self.show_mark(ring);
        pass(&mut self.refilter);
    }
}

#[cold]
#[inline(never)]
fn look(publisher: &mut Option<Box<Publisher>>, taken: u64, control: &Control) -> u64 {
    let Some(publisher) = publisher else {
        return u64::MAX;
    };
    let next = publisher.look(taken);
    if mem::take(&mut publisher.has_told) && control.has_group_tasks() {
        // A busy reader does not wait on the group's descriptor, so it checks for group tasks after
        // each publication.
        control.give_news();
    }
    next
}

/// Counts a block or frame on which the reader has run the newest filter. Removes the filter after
/// the last block or frame that came before the kernel had the filter.
#[inline]
fn pass(refilter: &mut Option<Refilter>) {
    if let Some(left) = refilter.as_mut().and_then(|it| it.left.as_mut()) {
        *left = left.saturating_sub(1);
        if *left == 0 {
            *refilter = None;
        }
    }
}
