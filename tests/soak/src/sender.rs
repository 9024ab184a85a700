//! Sends frames all the time. Each frame has one of a few colours, and the frames of each colour
//! are numbered.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use fanpcap_gen::headers;
use fanpcap_testkit::Injector;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// These values are those of c/soak.h.
const COLORS: u8 = 4;
const ETHERTYPE: u16 = 0x88b5;
const FRAME_LEN: u64 = 60;
const FRAME_LEN_MAX: u64 = 1000;

/// The number of frames in one system call, and the longest pause after each call. With these
/// values, about 20000 frames are sent in a second.
const BATCH: usize = 64;
const PAUSE_US: u64 = 6000;

/// Sends from one device.
pub(crate) struct Sender {
    injector: Injector,
    seed: u64,
    sent: AtomicU64,
}

impl Sender {
    pub(crate) fn new(injector: Injector, seed: u64) -> Self {
        let sent = AtomicU64::new(0);
        Self {
            injector,
            seed,
            sent,
        }
    }

    /// Sends until `stop` is set.
    pub(crate) fn run(&self, stop: &AtomicBool) -> Result<()> {
        let mut random = Pcg64Mcg::seed_from_u64(self.seed);
        let mut numbers = [0_u64; COLORS as usize];
        while !stop.load(Ordering::Acquire) {
            let frames: Vec<Vec<u8>> = (0..BATCH)
                .map(|_| frame(&mut random, &mut numbers))
                .collect();
            self.injector.send_all(&frames)?;
            self.sent.fetch_add(BATCH as u64, Ordering::Relaxed);
            thread::sleep(Duration::from_micros(random.random_range(..PAUSE_US)));
        }
        Ok(())
    }

    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

/// A broadcast frame of random colour and length, with the next number of its colour.
fn frame(random: &mut Pcg64Mcg, numbers: &mut [u64; COLORS as usize]) -> Vec<u8> {
    let color = random.random_range(..COLORS);
    let number = &mut numbers[usize::from(color)];
    *number += 1;
    let payload = [&[color][..], &number.to_be_bytes()].concat();
    let mut bytes = headers::ethernet([0xff; 6], [2, 0, 0, 0, 0, 1], ETHERTYPE, &payload);
    let len = random.random_range(FRAME_LEN..FRAME_LEN_MAX);
    bytes.resize(usize::try_from(len).unwrap_or(0), 0);
    bytes
}
