//! The portable way: sendmmsg(2) on a packet socket, past the queueing discipline.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use fanpcap_linux::packet::inject::{BATCH, ENOBUFS, Injector};
use fanpcap_linux::wait::clock::{monotonic_ns, sleep_until};

use crate::pool::Pool;

/// Most frames to one call.
pub(crate) const MOST: u64 = BATCH as u64;

/// A full device is asked again after so many nanoseconds, and given up after so many without a
/// frame.
const PAUSE: u64 = 20_000;
const PATIENCE: u64 = 2_000_000_000;

/// A packet socket, and frames as they are sent.
#[derive(Debug)]
pub(crate) struct Portable {
    socket: Injector,
    frames: Vec<Vec<u8>>,
}

impl Portable {
    /// Opens a device.
    pub(crate) fn open(device: &str) -> io::Result<Self> {
        Ok(Self {
            socket: Injector::open_bypass(device)?,
            frames: vec![Vec::new(); BATCH],
        })
    }

    /// Sends frames `first` to `first + count`, as many as [`MOST`]. Says how many went: all,
    /// unless it is told to stop or the device takes no more, which the next call finds again.
    pub(crate) fn send(
        &mut self,
        pool: &Pool,
        first: u64,
        count: u64,
        stop: &AtomicBool,
    ) -> io::Result<u64> {
        let mut filled = 0;
        for (number, frame) in (first..first + count).zip(&mut self.frames) {
            pool.write_frame(number, frame);
            filled += 1;
        }
        let mut rest = &self.frames[..filled];
        let mut moved = monotonic_ns();
        while !rest.is_empty() {
            match self.socket.send_some(rest) {
                Ok(sent) => {
                    rest = &rest[sent..];
                    moved = monotonic_ns();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The device's queue is full, or so is what the socket may have on its way.
                Err(error) if error.raw_os_error() == Some(ENOBUFS) => {
                    let now = monotonic_ns();
                    if now > moved + PATIENCE {
                        return told(filled - rest.len(), error);
                    }
                    sleep_until(now + PAUSE);
                }
                Err(error) => return told(filled - rest.len(), error),
            }
            if stop.load(Ordering::Relaxed) {
                break;
            }
        }
        Ok((filled - rest.len()) as u64)
    }
}

/// Frames that went are counted before the error is told.
fn told(sent: usize, error: io::Error) -> io::Result<u64> {
    if sent == 0 {
        Err(error)
    } else {
        Ok(sent as u64)
    }
}
