//! A mix of flows, each in a bucket that the test chooses, and the members that got the frames.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use anyhow::{Context, Result, ensure};
use fanpcap_gen::Description;
use fanpcap_netns::Wire;
use fanpcap_steer::native::{Decision, Evaluator, Packet};
use fanpcap_steer::{modes, tree};
use fanpcap_testkit::Direction;
use fanpcap_testkit::await_for;
use fanpcap_testkit::await_for::LIMIT;
use fanpcap_wire::Frame;

use crate::membership::recorder::Recorder;
use crate::membership::records;
use crate::membership::table::BUCKETS;

/// Number of flows from which the test takes one flow for each bucket.
const FLOWS: u32 = 60_000;

/// A prime number. No number of flows in these tests is a multiple of this number, so steps of this
/// size visit each flow once.
const STRIDE: usize = 7919;

/// Offset of a frame's number: after the headers of Ethernet, IPv4 and UDP.
const STAMP: usize = 42;

/// Flows, and the frames sent so far. Each pass sends one frame of each flow.
pub(super) struct Mix {
    /// For each bucket, a frame.
    frames: Vec<Vec<u8>>,
    /// For each flow of a pass, its bucket.
    flows: Vec<usize>,
    /// For each frame sent, its bucket.
    sent: Vec<usize>,
}

/// For each frame number, the member that got the frame.
pub(super) struct Seen {
    members: Vec<usize>,
    buckets: Vec<usize>,
}

impl Mix {
    pub(super) fn new() -> Result<Self> {
        let description = Description {
            flows: FLOWS,
            ..Description::default()
        };
        let pool = description.pool()?;
        let program = tree(modes::source("flow").context("no mode flow")?, &|_| {
            Ok(vec![])
        });
        let program = program.map_err(|error| anyhow::anyhow!("{error:?}"))?;
        let mut evaluator = Evaluator::of_group(&program);
        let mut frames = vec![Vec::new(); BUCKETS];
        for number in 0..pool.len() as u64 {
            let bytes = pool.frame(number);
            let frame = Frame {
                bytes: &bytes,
                tag: None,
            };
            if let Decision::Steer(hash) = evaluator.decide(&Packet::of(frame)) {
                frames[hash as usize % BUCKETS] = bytes;
            }
        }
        ensure!(
            frames.iter().all(|frame| !frame.is_empty()),
            "a bucket has no frame"
        );
        Ok(Self {
            frames,
            flows: Vec::new(),
            sent: Vec::new(),
        })
    }

    /// Adds flows, one in each of these buckets.
    pub(super) fn add(&mut self, buckets: impl Iterator<Item = usize>) {
        self.flows.extend(buckets);
    }

    /// Whether a bucket has a flow.
    pub(super) fn has(&self, bucket: usize) -> bool {
        self.flows.contains(&bucket)
    }

    /// The number of frames sent.
    pub(super) fn sent(&self) -> usize {
        self.sent.len()
    }

    /// Sends a frame of each flow.
    pub(super) fn send(&mut self, wire: &Wire) -> Result<()> {
        let mut frames = Vec::new();
        // A balancing round may begin in the middle of a pass. If all flows of one member followed
        // each other, the round would count the packets of this member only.
        let flows = self.flows.len();
        let order = (0..flows).map(|at| self.flows[at * STRIDE % flows]);
        let order: Vec<usize> = order.collect();
        for (&bucket, number) in order.iter().zip(u32::try_from(self.sent.len())?..) {
            let mut frame = self.frames[bucket].clone();
            frame[STAMP..STAMP + 4].copy_from_slice(&number.to_be_bytes());
            frames.push(frame);
        }
        self.sent.extend(order);
        wire.send_bytes(frames.iter().map(|frame| (Direction::Request, &frame[..])))
    }

    /// Waits until each frame was recorded, except frames that the `killed` members were handling.
    /// Checks that no frame was recorded twice.
    pub(super) fn await_all(&self, members: &[Recorder], killed: usize) -> Result<Seen> {
        await_for("all frames", LIMIT, || {
            let counts = members.iter().map(|member| records::count(&member.file));
            let count = counts.sum::<Result<u64>>()?;
            Ok((count + killed as u64 >= self.sent.len() as u64).then_some(()))
        })?;
        let mut seen = vec![usize::MAX; self.sent.len()];
        for (member, recorder) in members.iter().enumerate() {
            for got in records::read(&recorder.file)? {
                let by = seen
                    .get_mut(got.number as usize)
                    .context("an unknown frame")?;
                ensure!(*by == usize::MAX, "frame {} was seen twice", got.number);
                *by = member;
            }
        }
        let lost = seen.iter().filter(|by| **by == usize::MAX).count();
        ensure!(lost <= killed, "{lost} frames were lost");
        Ok(Seen {
            members: seen,
            buckets: self.sent.clone(),
        })
    }
}

impl Seen {
    /// By how many percent the busiest member exceeds the mean of the members that got frames.
    pub(super) fn above(&self, frames: Range<usize>) -> f64 {
        let mut counts = BTreeMap::new();
        let seen = self.members[frames].iter();
        for member in seen.filter(|by| **by != usize::MAX) {
            *counts.entry(member).or_insert(0_u32) += 1;
        }
        let mean = f64::from(counts.values().sum::<u32>()) / counts.len() as f64;
        let most = counts.values().max().copied().unwrap_or(0);
        100.0 * (f64::from(most) / mean - 1.0)
    }

    /// Number of flows that several members have got.
    pub(super) fn flows_apart(&self) -> usize {
        let mut members: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        for (bucket, member) in self.buckets.iter().zip(&self.members) {
            members.entry(*bucket).or_default().insert(*member);
        }
        members.values().filter(|members| members.len() > 1).count()
    }
}
