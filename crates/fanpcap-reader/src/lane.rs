//! One device of a handle: its socket, its ring, and how far that has been read.

use crate::accept::Wanted;
use crate::call::{End, Packet};
use crate::filter::View;
use crate::publish::Publisher;
use crate::rest::Pace;
use crate::ring::Ring;
use crate::wait::ReadError;
use fanpcap_bpf::Classic;
use fanpcap_linux::file::shared::Word;
use fanpcap_ring::Stamp;
use std::os::fd::BorrowedFd;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// What any thread may ask of a device.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) socket: BorrowedFd<'static>,
    /// It is down, or gone.
    pub(crate) net_down: AtomicBool,
}

/// What only the thread that reads touches.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) ring: Ring,
    pub(crate) pace: Pace,
    refilter: Option<Refilter>,
    /// Where others read how many frames were taken from the ring.
    shown: Option<Word>,
    publisher: Option<Box<Publisher>>,
    /// When so many have been taken, the publisher looks whether it is time.
    look_at: u64,
}

/// Packets that were let in by another filter than the one that now holds.
#[derive(Debug)]
struct Refilter {
    filter: Vec<Classic>,
    /// For so many blocks or frames; without a number, for ever.
    left: Option<usize>,
}

impl Lane {
    pub(crate) fn new(ring: Ring) -> Self {
        Self {
            pace: ring.pace(),
            ring,
            refilter: None,
            shown: None,
            publisher: None,
            look_at: 0,
        }
    }

    /// Keeps counters for others from now on.
    pub(crate) fn set_publisher(&mut self, mut publisher: Box<Publisher>) {
        let taken = self.ring.taken();
        self.shown = Some(publisher.begin(taken));
        self.look_at = taken + 1;
        self.publisher = Some(publisher);
    }

    /// Whether the publisher looks at the clock with the next frame.
    pub(crate) fn is_about_to_look(&self) -> bool {
        self.shown.is_some() && self.ring.taken() + 1 >= self.look_at
    }

    /// There is nothing to be read: publishes when it is time, and tells when it will be.
    pub(crate) fn handle_empty(&mut self) -> Option<Duration> {
        let taken = self.ring.taken();
        self.publisher.as_mut()?.handle_empty(taken)
    }

    /// Whether all that was taken has been told; where nothing is, there is nothing left.
    pub(crate) fn has_told(&self) -> bool {
        let taken = self.ring.taken();
        let publisher = self.publisher.as_ref();
        publisher.is_none_or(|publisher| publisher.has_told(taken))
    }

    /// The reader is about to wait, with nothing left to tell.
    pub(crate) fn handle_idle(&self) {
        if let Some(publisher) = &self.publisher {
            publisher.handle_idle(self.ring.taken());
        }
    }

    /// The application begins to wait for packets, or has waited.
    pub(crate) fn note_wait(&self, waits: bool) {
        if let Some(publisher) = &self.publisher {
            publisher.note_wait(waits);
        }
    }

    /// Lets a filter hold from the next packet on. What is in the ring has not passed it.
    pub(crate) fn set_filter(&mut self, filter: Vec<Classic>, in_kernel: bool) {
        let left = in_kernel.then(|| self.ring.pending());
        self.refilter = Some(Refilter { filter, left });
    }

    /// Reads the next frame that there is. False when the program does not want it.
    #[inline]
    pub(crate) fn next_packet(
        &mut self,
        wanted: &Wanted,
        packet: &mut Packet,
    ) -> Result<bool, End> {
        // Asked for only where it is shown.
        let taken = self.shown.as_ref().map_or(0, |_| self.ring.taken() + 1);
        let frame = match &mut self.ring {
            Ring::V3(blocks) => blocks.next_frame(),
            Ring::V2(frames) => {
                let frame = frames.next_frame();
                if let Ok(Some(frame)) = &frame {
                    self.pace.handle_frame(frame.stamp());
                }
                frame
            }
        };
        let corrupt = |corrupt| End::from(ReadError::Corrupt(corrupt));
        let Some(frame) = frame.map_err(corrupt)? else {
            return Ok(false);
        };
        // Before the packet is delivered: should the program die in its callback, it had it.
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
    pub(crate) fn release(&mut self) {
        match &mut self.ring {
            Ring::V3(blocks) => {
                if let Some(closed) = blocks.release() {
                    self.pace.handle_block(closed);
                }
            }
            // It was noted when it was handed out.
            Ring::V2(frames) => frames.release(),
        }
        pass(&mut self.refilter);
    }

    /// When the next frame arrived that there is; the program may not want it. What has been read goes back
    /// to the kernel by the way.
    pub(crate) fn head(&mut self) -> Option<Stamp> {
        let Self {
            ring,
            pace,
            refilter,
            ..
        } = self;
        ring.head(|closed| {
            if let Some(closed) = closed {
                pace.handle_block(closed);
            }
            pass(refilter);
        })
    }
}

#[cold]
fn look(publisher: &mut Option<Box<Publisher>>, taken: u64) -> u64 {
    match publisher {
        Some(publisher) => publisher.look(taken),
        None => u64::MAX,
    }
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
