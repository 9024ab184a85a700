//! One device of a handle: its socket, its ring, and how far that has been read.

use crate::accept::Wanted;
use crate::call::{End, Packet};
use crate::filter::{Program, View};
use crate::publish::{self, Publisher};
use crate::rest::Pace;
use crate::ring::Ring;
use crate::wait::ReadError;
use fanpcap_linux::shared::Word;
use fanpcap_ring::{Closed, Stamp};
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
    /// Frames taken from the ring.
    taken: u64,
    /// Where others read that.
    shown: Option<Word>,
    publisher: Option<Box<Publisher>>,
}

/// Packets that were let in by another filter than the one that now holds.
#[derive(Debug)]
struct Refilter {
    program: Program,
    /// For so many blocks or frames; without a number, for ever.
    left: Option<usize>,
}

impl Lane {
    pub(crate) fn new(ring: Ring) -> Self {
        Self {
            pace: ring.pace(),
            ring,
            refilter: None,
            taken: 0,
            shown: None,
            publisher: None,
        }
    }

    /// Keeps counters for others from now on.
    pub(crate) fn set_publisher(&mut self, mut publisher: Box<Publisher>) {
        let most = match self.ring {
            Ring::V3(_) => publish::BLOCKS,
            Ring::V2(_) => publish::FRAMES,
        };
        self.shown = Some(publisher.begin(self.taken, most));
        self.publisher = Some(publisher);
    }

    /// The ring is empty: publishes when it is time, and tells when it will be.
    pub(crate) fn handle_empty(&mut self) -> Option<Duration> {
        self.publisher.as_mut()?.handle_empty(self.taken)
    }

    /// Lets a filter hold from the next packet on. What is in the ring has not passed it.
    pub(crate) fn set_filter(&mut self, program: Program, in_kernel: bool) {
        let left = in_kernel.then(|| self.ring.pending());
        self.refilter = Some(Refilter { program, left });
    }

    /// Reads the next frame that there is. False when the program does not want it.
    #[inline]
    pub(crate) fn next_packet(
        &mut self,
        wanted: &Wanted,
        packet: &mut Packet,
    ) -> Result<bool, End> {
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
        self.taken += 1;
        if let Some(shown) = &self.shown {
            shown.set(self.taken);
        }
        if let Some(Refilter { program, .. }) = &self.refilter {
            if program.run(&View::of(&frame)) == 0 {
                return Ok(false);
            }
        }
        wanted.accept(frame, packet).map_err(corrupt)
    }

    /// Gives what has been read back to the kernel.
    #[inline]
    pub(crate) fn release(&mut self) {
        let closed = match &mut self.ring {
            Ring::V3(blocks) => blocks.release(),
            Ring::V2(frames) => {
                frames.release();
                None
            }
        };
        handle_end(closed, &mut self.pace, &mut self.publisher, self.taken);
        pass(&mut self.refilter);
    }

    /// When the next frame arrived that there is; the program may not want it. What has been read goes back
    /// to the kernel by the way.
    pub(crate) fn head(&mut self) -> Option<Stamp> {
        let Self {
            ring,
            pace,
            refilter,
            taken,
            publisher,
            ..
        } = self;
        ring.head(|closed| {
            handle_end(closed, pace, publisher, *taken);
            pass(refilter);
        })
    }
}

/// A block has been read and given back, or a frame.
#[inline]
fn handle_end(
    closed: Option<Closed>,
    pace: &mut Pace,
    publisher: &mut Option<Box<Publisher>>,
    taken: u64,
) {
    if let Some(closed) = closed {
        pace.handle_block(closed);
    }
    if let Some(publisher) = publisher {
        // That of a frame was noted when it was handed out.
        publisher.pass(pace.last(), taken);
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
