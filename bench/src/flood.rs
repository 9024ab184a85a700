//! A flood: as many frames as the generator can send, into one reader.

use std::thread;
use std::time::Duration;

use anyhow::Result;
use fanpcap_testkit::Member;

use crate::bench::{Arrived, Bench};
use crate::cores::Cores;
use crate::figure::{Figure, Sample};
use crate::generator::{Load, Sent};
use crate::reader::{self, Settings, Side, Told, Work};
use crate::refusal::{Counters, Refusal, generator_share};

/// Between the reader's being ready and the first frame.
const SETTLE: Duration = Duration::from_millis(150);
/// Between the last frame and the reader's end: more than twice the reader's timeout, after which
/// the kernel hands over a block that is not full.
const GRACE: Duration = Duration::from_millis(250);

/// One run on one side, or why it does not count.
pub(crate) fn run(
    bench: &Bench,
    len: usize,
    settings: Settings,
    side: Side,
) -> Result<Result<Sample, Refusal>> {
    let before = bench.arrived()?;
    let member = bench.read(side, settings, Work::Count)?;
    thread::sleep(SETTLE);
    let cores = Cores::watch(bench, &member)?;
    let sent = bench.generate(Load::Flood(len, bench.way, bench.time))?;
    let undisturbed = cores.undisturbed(&sent, &member, settings.immediate)?;
    let (told, counters) = finish(bench, member, side, before, &sent)?;

    let share = sent.cpu_ns as f64 / sent.nanoseconds as f64;
    let accepted = counters.agree().and(undisturbed).and_then(|()| {
        if bench.shared {
            Ok(())
        } else {
            generator_share(share)
        }
    });
    Ok(accepted.map(|()| sample(&sent, &told, &counters)))
}

/// Gives the reader time to drain its ring, ends it, and collects what everybody counted.
pub(crate) fn finish(
    bench: &Bench,
    member: Member,
    side: Side,
    before: Arrived,
    sent: &Sent,
) -> Result<(Told, Counters)> {
    bench.stray()?;
    thread::sleep(GRACE);
    let after = bench.arrived()?;
    member.signal("TERM")?;
    let told = reader::told(&member.wait()?, side)?;
    let counters = Counters {
        sent: sent.frames,
        arrived: after.received - before.received,
        lost: after.dropped - before.dropped,
        received: told.received,
        dropped: told.dropped,
        delivered: told.delivered,
    };
    Ok((told, counters))
}

fn sample(sent: &Sent, told: &Told, counters: &Counters) -> Sample {
    let delivered = counters.delivered as f64;
    let seconds = sent.nanoseconds as f64 / 1e9;
    Sample::from([
        (Figure::Sent, counters.sent as f64),
        (Figure::LinkReceived, counters.arrived as f64),
        (Figure::InterfaceDropped, counters.lost as f64),
        (Figure::ApplicationReceived, delivered),
        (Figure::ApplicationDropped, counters.dropped as f64),
        (Figure::CapturedPps, delivered / seconds),
        (Figure::ReaderNs, told.cpu_ns as f64 / delivered),
        (
            Figure::GeneratorNs,
            sent.cpu_ns as f64 / counters.sent as f64,
        ),
    ])
}
