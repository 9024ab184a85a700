//! The cost per packet: measured if BPF programs may be loaded, otherwise estimated.

use std::fmt;
use std::hint::black_box;
use std::io;
use std::time::Instant;

use fanpcap_bpf::Object;
use fanpcap_linux::bpf::Loaded;
use fanpcap_steer::ir::Tree;
use fanpcap_steer::native::{Evaluator, Packet};
use fanpcap_wire::Frame;

use super::frames::Frames;

/// Number of runs in a trial of a short steering program: as a BPF program in the kernel, and by
/// the evaluator in user space. The result is the median of the trials.
const RUNS: u32 = 20_000;
const NATIVE_RUNS: u32 = 2_000;
const TRIALS: usize = 5;
/// Number of runs that measure how long one run takes, and the maximum length of a trial in
/// nanoseconds.
const FIRST_RUNS: u32 = 20;
const TRIAL_NS: u32 = 5_000_000;

/// Measured costs of BPF programs in nanoseconds: the cost of a run that ends early, and the cost
/// of each instruction in a run that executes all instructions. Most runs execute only a part of
/// the instructions.
const LEAST_NS: f64 = 30.0;
const INSTRUCTION_NS: f64 = 0.07;

/// The cost of one BPF program.
pub(super) enum Cost {
    /// Nanoseconds for each frame, by the frame's name.
    Measured {
        times: Vec<(&'static str, u32)>,
        verified: Option<u32>,
    },
    /// Nanoseconds estimated from the size, and why no measurement was possible.
    Estimated { most: f64, why: String },
}

/// Loads the BPF program, measures it, and unloads it.
pub(super) fn of(object: &Object, frames: &Frames) -> Cost {
    let measured = Loaded::load_apart(object, "explain")
        .map_err(|error| error.to_string())
        .and_then(|loaded| {
            let times = times(&loaded, frames).map_err(|error| error.to_string())?;
            Ok((
                times,
                loaded.verified().ok().filter(|verified| *verified > 0),
            ))
        });
    match measured {
        Ok((times, verified)) => Cost::Measured { times, verified },
        Err(why) => Cost::Estimated {
            most: LEAST_NS + object.instructions.len() as f64 * INSTRUCTION_NS,
            why,
        },
    }
}

fn times(loaded: &Loaded, frames: &Frames) -> io::Result<Vec<(&'static str, u32)>> {
    let time = |(name, frame): &(&'static str, Vec<u8>)| {
        let runs = runs(loaded.time(frame, FIRST_RUNS)?.1, RUNS);
        let trials = (0..TRIALS).map(|_| Ok(loaded.time(frame, runs)?.1));
        Ok((*name, median(trials.collect::<io::Result<_>>()?)))
    };
    frames.iter().map(time).collect()
}

/// Number of runs for a trial, given the nanoseconds of one run.
fn runs(nanoseconds: u32, most: u32) -> u32 {
    (TRIAL_NS / nanoseconds.max(1)).clamp(1, most)
}

fn median(mut times: Vec<u32>) -> u32 {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or(0)
}

/// The cost of the evaluator, which runs the steering program in user space.
pub(super) fn native(program: &Tree, frames: &Frames) -> Cost {
    let mut evaluator = Evaluator::of_group(program);
    let mut time = |(name, bytes): &(&'static str, Vec<u8>)| {
        let packet = Packet::of(Frame { bytes, tag: None });
        let mut trial = |runs: u32| {
            let begin = Instant::now();
            for _ in 0..runs {
                black_box(evaluator.evaluate(black_box(&packet)));
            }
            let nanoseconds = begin.elapsed().as_nanos() / u128::from(runs);
            u32::try_from(nanoseconds).unwrap_or(u32::MAX)
        };
        let runs = runs(trial(FIRST_RUNS), NATIVE_RUNS);
        (*name, median((0..TRIALS).map(|_| trial(runs)).collect()))
    };
    Cost::Measured {
        times: frames.iter().map(&mut time).collect(),
        verified: None,
    }
}

impl Cost {
    /// The number of instructions that the verifier processed, as the end of a sentence.
    pub(super) fn verified(&self) -> String {
        match self {
            Self::Measured {
                verified: Some(verified),
                ..
            } => format!(", {verified} verified"),
            Self::Measured { verified: None, .. } | Self::Estimated { .. } => String::new(),
        }
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Measured { times, .. } => {
                let times = times
                    .iter()
                    .map(|(name, time)| format!("{time} ns for {name}"));
                write!(f, "{}, measured", times.collect::<Vec<_>>().join(", "))
            }
            Self::Estimated { most, why } => {
                write!(
                    f,
                    "some {LEAST_NS:.0} to {most:.0} ns a packet, estimated: {why}"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_long_is_run_less_often() {
        assert_eq!(runs(30, RUNS), RUNS);
        assert_eq!(runs(0, RUNS), RUNS);
        for nanoseconds in [300, 10_000, 200_000, TRIAL_NS] {
            assert!(runs(nanoseconds, RUNS) * nanoseconds <= TRIAL_NS);
        }
        assert_eq!(runs(u32::MAX, RUNS), 1);
    }
}
