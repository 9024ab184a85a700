//! Visitors are processes that join the shared group for a short time. Half of the visitors are
//! killed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::stage::{SHARED, Stage};

/// The longest stay of a visitor, and the longest pause before the next visitor.
const STAY_MS: u64 = 400;
const PAUSE_MS: u64 = 100;

const SIGKILL: i32 = 9;

/// Starts visitors and counts them.
pub(crate) struct Visitors {
    seed: u64,
    left: AtomicU64,
    killed: AtomicU64,
}

impl Visitors {
    pub(crate) fn new(seed: u64) -> Self {
        let (left, killed) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { seed, left, killed }
    }

    /// Starts one visitor after another until `stop` is set.
    pub(crate) fn run(&self, stage: &Stage, stop: &AtomicBool) -> Result<()> {
        let mut random = Pcg64Mcg::seed_from_u64(self.seed);
        while !stop.load(Ordering::Acquire) {
            self.one(stage, &mut random).context("a visitor")?;
            thread::sleep(Duration::from_millis(random.random_range(..PAUSE_MS)));
        }
        Ok(())
    }

    fn one(&self, stage: &Stage, random: &mut Pcg64Mcg) -> Result<()> {
        let visitor = stage
            .program("visitor", Some(SHARED))?
            .start(&stage.scratch)?;
        thread::sleep(Duration::from_millis(random.random_range(..STAY_MS)));
        if random.random() {
            visitor.signal("KILL")?;
            let ended = visitor.wait()?;
            ensure!(ended.signal() == Some(SIGKILL), "{}", ended.said);
            self.killed.fetch_add(1, Ordering::Relaxed);
        } else {
            visitor.stop()?;
            self.left.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    pub(crate) fn tell(&self) -> String {
        let (left, killed) = (
            self.left.load(Ordering::Relaxed),
            self.killed.load(Ordering::Relaxed),
        );
        format!("{left} visitors left, {killed} were killed")
    }
}
