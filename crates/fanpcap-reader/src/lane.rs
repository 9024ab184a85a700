//! One ring, and what stands between its frames and the application: filter, counters, pace.

use crate::accept::Wanted;
use crate::call::{End, Packet};
use crate::filter::View;
use crate::port::ReadError;
use crate::publish::Publisher;
use crate::rest::Pace;
use crate::ring::{Layout, Ring};
use fanpcap_bpf::Classic;
use fanpcap_linux::file::shared::Word;
use fanpcap_ring::Stamp;
use std::time::Duration;

/// One ring of a reader. Only the thread that reads touches it.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) ring: Ring,
    pub(crate) intake: Intake,
}

/// What each frame of a ring passes.
#[derive(Debug)]
pub(crate) struct Intake {
    pub(crate) pace: Pace,
    refilter: Option<Refilter>,
    /// Where others read how many frames were taken from the ring.
    shown: Option<Word>,
    publisher: Option<Box<Publisher>>,
    /// When so many frames have been taken, the publisher looks whether it is time.
    look_at: u64,
}

/// A filter that the packets in the ring may not have passed in the kernel.
#[derive(Debug)]
struct Refilter {
    filter: Vec<Classic>,
    /// The blocks or frames that it is still run on; `None`: all.
    left: Option<usize>,
}

impl Lane {
    pub(crate) fn new(ring: Ring) -> Self {
        let intake = Intake {
            pace: ring.pace(),
            refilter: None,
            shown: None,
            publisher: None,
            look_at: 0,
        };
        Self { ring, intake }
    }

    /// Publishes counters from now on.
    pub(crate) fn set_publisher(&mut self, mut publisher: Box<Publisher>) {
        let taken = self.ring.taken();
        self.intake.shown = Some(publisher.begin(taken));
        self.intake.look_at = taken + 1;
        self.intake.publisher = Some(publisher);
    }

    /// Runs a filter on every packet from the next one on, or, when the kernel runs it too, on
    /// those that may have been in the ring before.
    pub(crate) fn set_filter(&mut self, filter: Vec<Classic>, in_kernel: bool) {
        let left = in_kernel.then(|| self.ring.pending());
        self.intake.refilter = Some(Refilter { filter, left });
    }

    /// Whether the publisher looks at the clock with the next frame.
    pub(crate) fn is_about_to_look(&self) -> bool {
        self.intake.shown.is_some() && self.ring.taken() + 1 >= self.intake.look_at
    }

    /// Reads the next frame that there is. False when the application does not want it.
    #[inline]
    pub(crate) fn next_packet(
        &mut self,
        wanted: &Wanted,
        packet: &mut Packet,
    ) -> Result<bool, End> {
        self.intake.next_packet(&mut self.ring, wanted, packet)
    }

    /// When the next frame arrived that there is; the application may not want it. Gives back to
    /// the kernel what has been read.
    pub(crate) fn head(&mut self) -> Option<Stamp> {
        let Self { ring, intake } = self;
        ring.head(|closed| {
            if let Some(closed) = closed {
                intake.pace.handle_block(closed);
            }
            pass(&mut intake.refilter);
        })
    }
}

impl Intake {
    /// The ring, of which so many frames were `taken`, is empty: publishes when it is time. Returns
    /// after how long it will be, if there is something to publish.
    pub(crate) fn handle_empty(&mut self, taken: u64) -> Option<Duration> {
        self.publisher.as_mut()?.handle_empty(taken)
    }

    /// Whether all that was taken is published, or nothing is to be.
    pub(crate) fn has_published(&self, taken: u64) -> bool {
        let publisher = self.publisher.as_ref();
        publisher.is_none_or(|publisher| publisher.has_published(taken))
    }

    /// The reader is about to wait, with nothing left to publish.
    pub(crate) fn handle_idle(&self, taken: u64) {
        if let Some(publisher) = &self.publisher {
            publisher.handle_idle(taken);
        }
    }

    /// The application begins to wait for packets, or has waited.
    pub(crate) fn note_wait(&self, waits: bool) {
        if let Some(publisher) = &self.publisher {
            publisher.note_wait(waits);
        }
    }

    /// Reads the next frame that there is. False when the application does not want it.
    #[inline]
    pub(crate) fn next_packet(
        &mut self,
        ring: &mut impl Layout,
        wanted: &Wanted,
        packet: &mut Packet,
    ) -> Result<bool, End> {
        // Asked for only where it is shown.
        let taken = self.shown.as_ref().map_or(0, |_| ring.taken() + 1);
        let corrupt = |corrupt| End::from(ReadError::new(corrupt));
        let Some(frame) = ring.next_frame(&mut self.pace).map_err(corrupt)? else {
            return Ok(false);
        };
        // Before the packet is delivered: an application that dies in its callback has had it.
        if let Some(shown) = &self.shown {
            shown.set(taken);
            if taken >= self.look_at {
                self.look_at = look(&mut self.publisher, taken);
            }
        }
        if let Some(Refilter { filter, .. }) = &self.refilter {
            if View::of(&frame).filtered(filter) == 0 {
                return Ok(false);
            }
        }
        wanted.accept(frame, packet).map_err(corrupt)
    }

    /// Gives what has been read back to the kernel.
    #[inline]
    pub(crate) fn release(&mut self, ring: &mut impl Layout) {
        ring.release(&mut self.pace);
        pass(&mut self.refilter);
    }
}

#[cold]
fn look(publisher: &mut Option<Box<Publisher>>, taken: u64) -> u64 {
    match publisher {
        Some(publisher) => publisher.look(taken),
        None => u64::MAX,
    }
}

/// Counts a block or frame that the newest filter has been run on.
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
