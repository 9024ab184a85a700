//! A socket's ring in whichever layout it has.

use crate::rest::Pace;
use fanpcap_linux::packet::ring::{self, Mapping, Version};
use fanpcap_ring::{Blocks, Closed, Frames, Stamp};
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// The layouts.
#[derive(Debug)]
pub(crate) enum Ring {
    V2(Frames),
    V3(Blocks),
}

impl Ring {
    /// Maps the ring that `socket` has, and tells how late it hands over a packet; none for however late,
    /// which the system's libpcap sets for a time-out of 0.
    pub(crate) fn of(socket: BorrowedFd<'_>) -> io::Result<(Self, Option<Duration>)> {
        let (version, geometry) = ring::of(socket)?;
        let mapping = Mapping::of(socket, &geometry)?;
        let block = geometry.block_size as usize;
        let ring = match version {
            Version::V3 => Blocks::new(mapping, block, geometry.block_count as usize).map(Self::V3),
            Version::V2 => {
                let (frame, count) = (geometry.frame_size, geometry.frame_count);
                Frames::new(mapping, block, frame as usize, count as usize).map(Self::V2)
            }
        };
        let retire = Some(geometry.retire).filter(|&retire| retire < FOR_EVER);
        let retire = retire.map(|retire| Duration::from_millis(retire.into()));
        let ring = ring.ok_or_else(|| io::Error::from_raw_os_error(EINVAL))?;
        Ok((ring, retire))
    }

    /// Whether it is of blocks.
    #[inline]
    pub(crate) fn is_v3(&self) -> bool {
        matches!(self, Self::V3(_))
    }

    /// How many blocks or frames may hold packets that passed a filter that has just been replaced.
    pub(crate) fn pending(&self) -> usize {
        match self {
            Self::V2(frames) => frames.pending(),
            Self::V3(blocks) => blocks.pending(),
        }
    }

    /// Frames that were taken from it.
    #[inline]
    pub(crate) fn taken(&self) -> u64 {
        match self {
            Self::V2(frames) => frames.taken(),
            Self::V3(blocks) => blocks.taken(),
        }
    }

    /// When the next packet arrived that there is. What has been read goes back to the kernel by the way.
    pub(crate) fn head(&mut self, mut released: impl FnMut(Option<Closed>)) -> Option<Stamp> {
        match self {
            Self::V2(frames) => {
                if frames.is_held() {
                    frames.release();
                    released(None);
                }
                frames.peek()
            }
            Self::V3(blocks) => loop {
                if blocks.is_spent() {
                    released(blocks.release());
                }
                if !blocks.open() {
                    return None;
                }
                if let Some(stamp) = blocks.peek() {
                    return Some(stamp);
                }
            },
        }
    }

    /// Whether a quarter of it waits to be read.
    pub(crate) fn is_filling(&self) -> bool {
        match self {
            Self::V2(frames) => frames.is_ready_ahead(frames.count() / 4),
            Self::V3(blocks) => blocks.is_ready_ahead(blocks.count() / 4),
        }
    }

    /// How its reader may rest.
    pub(crate) fn pace(&self) -> Pace {
        match self {
            Self::V2(frames) => Pace::frames(frames.count()),
            Self::V3(blocks) => Pace::blocks(blocks.count()),
        }
    }
}

/// `UINT_MAX`, of which kernels before 6.18 keep 16 bits.
const FOR_EVER: u32 = 65_535;

const EINVAL: i32 = 22;
