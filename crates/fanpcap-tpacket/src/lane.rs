//! One device of a handle: its socket, its ring, and how far that has been read.

use crate::accept::Wanted;
use crate::call::{End, Packet};
use crate::filter::{Program, View};
use crate::rest::Pace;
use crate::ring::Ring;
use crate::wait::ReadError;
use fanpcap_ring::{Blocks, Stamp};
use std::os::fd::BorrowedFd;
use std::sync::atomic::AtomicBool;

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
        }
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
        match &mut self.ring {
            Ring::V3(blocks) => release_block(blocks, &mut self.pace),
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
        } = self;
        ring.head(|closed| {
            closed
                .into_iter()
                .for_each(|closed| pace.handle_block(closed));
            pass(refilter);
        })
    }
}

fn release_block(blocks: &mut Blocks, pace: &mut Pace) {
    if let Some(closed) = blocks.release() {
        pace.handle_block(closed);
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
