//! Floods into BPF programs of the bench, without readers.

use std::time::Duration;

use anyhow::Result;

use crate::bench::Bench;
use crate::figure::{Figure, Sample};
use crate::generator::frame::SHORTEST;
use crate::generator::{Load, Way};
use crate::refusal::{Refusal, generator_share, into_nothing};
use crate::verdict::Verdict;

/// Why a column that needs live frames can't be measured; `None` if it can.
pub(super) fn no_live_frames(bench: &Bench) -> Option<String> {
    let frames = bench.way == Way::LiveFrames;
    (!frames).then(|| "live frames don't work here".to_owned())
}

/// Floods the far device. Without a BPF program the device refuses live frames, so the run measures
/// the generator alone.
pub(super) fn flood(
    bench: &Bench,
    verdict: Option<Verdict>,
    time: Duration,
) -> Result<Result<Sample, Refusal>> {
    match verdict {
        Some(verdict) => bench.wire.take_frames(verdict)?,
        None => bench.wire.take_no_frames(),
    }
    let run = run(bench, verdict.is_some(), time);
    bench.restore()?;
    run
}

fn run(bench: &Bench, takes: bool, time: Duration) -> Result<Result<Sample, Refusal>> {
    let before = bench.arrived()?;
    let sent = bench.generate(Load::flood(SHORTEST, Way::LiveFrames, time))?;
    bench.stray()?;
    let arrived = bench.arrived()?.received - before.received;
    let expected = if takes { sent.frames } else { 0 };
    let accepted = into_nothing(sent.frames, expected, arrived);
    let accepted = accepted.and(bench.alone(generator_share(sent.share())));
    Ok(accepted.map(|()| {
        Sample::from([
            (Figure::Sent, sent.frames as f64),
            (Figure::LinkReceived, arrived as f64),
            (Figure::CapturedPps, arrived as f64 / sent.seconds()),
            (Figure::SentPps, sent.pps()),
            (Figure::GeneratorNs, sent.cpu_ns as f64 / sent.frames as f64),
        ])
    }))
}
