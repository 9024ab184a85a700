//! The measure of a poller whose device gets no packets, with a member that waits for packets.

use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::bench::Bench;
use crate::figure::{Figure, Sample};
use crate::libraries::Side;
use crate::pause::pause;
use crate::poller::Poller;
use crate::reader::{self, Settings, Work};
use crate::trial::SETTLE;

/// Measures the poller's CPU time while its member waits.
pub(super) fn run(bench: &Bench, side: Side) -> Result<Sample> {
    let source = side.source().context("the column has no poller")?;
    bench.arranged(side, bench.way, || {
        let mut poller = Poller::start(bench, source)?;
        let member = bench.read(side, Settings::default(), Work::Count)?;
        pause(SETTLE)?;
        poller.begin()?;
        let begin = Instant::now();
        pause(bench.time)?;
        let (waited, used) = (begin.elapsed(), poller.used()?);
        member.signal("TERM")?;
        reader::told(&member.wait()?, side, bench.libraries())?;
        let received = poller.end()?.received;
        ensure!(received == 0, "an idle poller received {received} packets");
        let share = used.as_secs_f64() / waited.as_secs_f64();
        Ok(Sample::from([(Figure::IdleShare, 100.0 * share)]))
    })
}
