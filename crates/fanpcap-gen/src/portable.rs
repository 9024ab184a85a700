//! The portable way: sendmmsg(2) on a packet socket, bypassing the queueing discipline.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use fanpcap_linux::packet::inject::{BATCH, ENOBUFS, Injector};
use fanpcap_linux::wait::clock::{monotonic_ns, sleep_until};

use crate::pool::Pool;

/// Maximum frames per call.
pub(crate) const MOST: u64 = BATCH as u64;

/// Two times in nanoseconds: the pause after a full queue, and the time after which the sender
/// gives up on a device that accepts no frame.
const PAUSE: u64 = 20_000;
const PATIENCE: u64 = 2_000_000_000;

/// A packet socket, and the frames of the next call.
#[derive(Debug)]
pub(crate) struct Portable {
    socket: Injector,
    frames: Vec<Vec<u8>>,
}

impl Portable {
    pub(crate) fn open(device: &str) -> io::Result<Self> {
        Ok(Self {
            socket: Injector::open_bypass(device)?,
            frames: vec![Vec::new(); BATCH],
        })
    }

    /// Sends frames `first` to `first + count`, at most [`MOST`]. Returns the number of frames
    /// sent, which is `count` unless `stop` is set or the device fails. After a failure, the next
    /// call returns the error.
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
                // The device's queue or the socket's send buffer is full.
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

/// Returns the number of frames sent before the error, or the error if no frame was sent. In the
/// first case, the next call will return the error.
fn told(sent: usize, error: io::Error) -> io::Result<u64> {
    if sent == 0 {
        Err(error)
    } else {
        Ok(sent as u64)
    }
}
