//! Sends numbered packets until the sender is stopped.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use fanpcap_gen::headers::{self, IPV4, Ipv4};
use fanpcap_testkit::Injector;
use fanpcap_testkit::mirror::WIRE;

/// Packets a second.
pub(crate) const RATE: u64 = 4000;

const TICK: Duration = Duration::from_millis(5);

/// A running sender.
pub(crate) struct Traffic {
    stop: Arc<AtomicBool>,
    sender: JoinHandle<Result<u64>>,
}

impl Traffic {
    /// Sends packets on the mirrored wire of the calling thread's namespace, numbered from `first`
    /// on.
    pub(crate) fn start(first: u64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&stop);
        let sender = thread::spawn(move || send(first, &until));
        Self { stop, sender }
    }

    /// Ends the sender, and returns the number of the next packet, which is not sent.
    ///
    /// # Errors
    /// Fails if a packet could not be sent.
    pub(crate) fn stop(self) -> Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.sender.join();
        ended.map_err(|_| anyhow!("the sender panicked"))?
    }
}

fn send(first: u64, stop: &AtomicBool) -> Result<u64> {
    let injector = Injector::open(WIRE)?;
    let begun = Instant::now();
    let mut next = first;
    while !stop.load(Ordering::Relaxed) {
        let due = u64::try_from(begun.elapsed().as_millis())? * RATE / 1000;
        let frames: Vec<_> = (next..first + due).map(frame).collect();
        injector.send_all(&frames)?;
        next = next.max(first + due);
        thread::sleep(TICK);
    }
    Ok(next)
}

/// The datagram with this number. Its flow is one of 256 flows. The number is in the bytes that the
/// selection hashes.
pub(crate) fn frame(number: u64) -> Vec<u8> {
    let [.., flow] = number.to_be_bytes();
    let ends = (
        Ipv4Addr::new(198, 51, 100, flow),
        Ipv4Addr::new(203, 0, 113, 1),
    );
    let mut payload = number.to_be_bytes().to_vec();
    payload.extend(MARK);
    payload.extend(number.to_be_bytes());
    let mut segment = headers::udp((40_000, 443), &payload);
    headers::complete((ends.0.into(), ends.1.into()), headers::UDP, &mut segment);
    let packet = Ipv4 {
        ends,
        protocol: headers::UDP,
        identification: 0,
        fragment: 0,
    };
    headers::ethernet(MACS[0], MACS[1], IPV4, &packet.around(&segment))
}

/// The mark before a packet's number. The demo searches captures for this mark.
const MARK: [u8; 4] = *b"FANP";
const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1]];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_has_its_number() {
        for number in [0, 77, 1 << 40] {
            let found = fanpcap_testkit::traffic::sequence_of(&frame(number));
            assert_eq!(found, Some(number));
        }
    }
}
