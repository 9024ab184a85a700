//! The load of two wires: the requests of each flow go over the first, its replies over the second.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use fanpcap_gen::Pool;
use fanpcap_netns::{DEVICE, FAR_DEVICE};
use fanpcap_testkit::{Injector, Veth, veth};

/// The second wire. At its far end `vc` the replies enter, as from a tap that sends each direction
/// over its own wire.
pub(super) const SECOND: [&str; 2] = ["vc", "vd"];

/// The devices at which members capture.
pub(super) const BOTH: &str = "vb^vd";

/// Number of frames that are sent together, once in each period [`EVERY`].
const BURST: u64 = 64;

const EVERY: Duration = Duration::from_micros(640);

/// The near ends of both wires.
pub(super) struct Wires {
    near: [Injector; 2],
    pool: Pool,
}

/// Makes the second wire.
pub(super) fn add_second() -> Result<()> {
    Veth::new(SECOND[0], SECOND[1], 1)?;
    Ok(())
}

/// A device goes down and up.
pub(super) fn flap(device: &str, down: Duration) -> Result<()> {
    veth::ip(&format!("link set {device} down"))?;
    thread::sleep(down);
    veth::ip(&format!("link set {device} up"))?;
    let far = if device == DEVICE {
        FAR_DEVICE
    } else {
        SECOND[0]
    };
    [far, device].into_iter().try_for_each(veth::await_up)
}

impl Wires {
    pub(super) fn open(pool: Pool) -> Result<Self> {
        let near = [Injector::open(FAR_DEVICE)?, Injector::open(SECOND[0])?];
        Ok(Self { near, pool })
    }

    /// Sends frames until `stop` is set: one frame of each flow over one wire, then over the other.
    /// Returns the number of frames, and how many nanoseconds that took.
    pub(super) fn send(&mut self, stop: &AtomicBool) -> Result<(u64, u64)> {
        let begun = Instant::now();
        let mut sent = 0;
        while !stop.load(Ordering::Relaxed) {
            // All frames of a burst go over one wire.
            let wire = usize::from((sent / self.pool.len() as u64) % 2 == 1);
            let frames = sent..sent + BURST;
            let frames: Vec<Vec<u8>> = frames.map(|it| self.frame(it, wire == 1)).collect();
            self.near[wire].send_all(&frames)?;
            sent += BURST;
            let due = EVERY * u32::try_from(sent / BURST)?;
            thread::sleep(due.saturating_sub(begun.elapsed()));
        }
        Ok((sent, u64::try_from(begun.elapsed().as_nanos())?))
    }

    fn frame(&self, number: u64, is_reply: bool) -> Vec<u8> {
        let mut frame = self.pool.frame(number);
        if is_reply {
            // Exchange the addresses of Ethernet and IPv4, and the ports.
            for (from, to, len) in [(0, 6, 6), (26, 30, 4), (34, 36, 2)] {
                let (ahead, behind) = frame.split_at_mut(to);
                ahead[from..from + len].swap_with_slice(&mut behind[..len]);
            }
        }
        frame
    }
}
