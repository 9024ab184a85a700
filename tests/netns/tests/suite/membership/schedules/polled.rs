//! A group of a poller. The program `fanpcap poller` runs as users run it. Its table is not seen
//! from outside, so the members' records show the owner of each flow.

use std::mem;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use fanpcap_netns::Wire;
use fanpcap_netns::poller::{Poller, Summary};

use super::super::load::{FLOWS, print};
use super::super::recorder::Recorder;
use super::super::records::{self, now_us};
use super::engine::{Group, Shares};

pub(super) struct PolledGroup {
    poller: Poller,
    /// The file of each member, and the number of its records that have been looked at.
    files: Vec<(PathBuf, u64)>,
    window: Window,
    /// The owners in the window before.
    before: Option<Vec<usize>>,
}

/// A time in which the test looks for the owner of each flow.
struct Window {
    /// The beginning, in microseconds since 1970.
    since_us: u64,
    owners: Vec<Option<usize>>,
    /// Whether a flow had two owners.
    is_split: bool,
}

impl Window {
    fn now() -> Self {
        Self {
            since_us: now_us(),
            owners: vec![None; FLOWS as usize],
            is_split: false,
        }
    }

    fn note(&mut self, member: usize, number: u32) {
        let owner = &mut self.owners[(number % FLOWS) as usize];
        self.is_split |= owner.is_some_and(|it| it != member);
        *owner = Some(member);
    }
}

impl PolledGroup {
    pub(super) fn new(source: &str, wire: &Wire) -> Result<Self> {
        Ok(Self {
            poller: Poller::start(source, &wire.scratch)?,
            files: Vec::new(),
            window: Window::now(),
            before: None,
        })
    }

    /// Adds the new records to the window.
    fn read(&mut self) -> Result<()> {
        for (member, (file, from)) in self.files.iter_mut().enumerate() {
            let new = records::read_from(file, *from)?;
            *from += new.len() as u64;
            let since_us = self.window.since_us;
            let new = new.iter().filter(|got| got.arrived_us >= since_us);
            new.for_each(|got| self.window.note(member, got.number));
        }
        Ok(())
    }
}

/// Whether each member that is there has its share of the flows, and no other member has any.
/// Members have equal parts of the buckets, and flows are spread over buckets by chance.
fn is_even(owners: &[usize], weights: &[Option<u16>]) -> bool {
    let part = 1.0 / weights.iter().flatten().count() as f64;
    let flows = f64::from(FLOWS);
    let range = 5.0 * (flows * part * (1.0 - part)).sqrt();
    let is_even = |(member, weight): (usize, &Option<u16>)| {
        let has = owners.iter().filter(|owner| **owner == member).count() as f64;
        match weight {
            Some(_) => (has - flows * part).abs() <= range,
            None => has == 0.0,
        }
    };
    weights.iter().enumerate().all(is_even)
}

impl Group for PolledGroup {
    fn add(&mut self, member: &Recorder) -> Result<()> {
        self.files.push((member.file.clone(), 0));
        Ok(())
    }

    fn begin(&mut self) {
        self.window = Window::now();
        self.before = None;
    }

    /// The group is settled if each flow had one owner in two windows, the same in both, and these
    /// are even.
    fn settled(&mut self, weights: &[Option<u16>]) -> Result<Option<Shares>> {
        self.read()?;
        let window = &self.window;
        if !window.is_split && window.owners.contains(&None) {
            return Ok(None);
        }
        let window = mem::replace(&mut self.window, Window::now());
        if window.is_split {
            self.before = None;
            return Ok(None);
        }
        let owners: Vec<usize> = window.owners.into_iter().flatten().collect();
        let before = self.before.replace(owners.clone());
        if before.as_ref() != Some(&owners) || !is_even(&owners, weights) {
            return Ok(None);
        }
        // A poller names no slots. The numbers of members stand for them here.
        let slot = |(number, weight): (usize, &Option<u16>)| {
            let slot = u8::try_from(number);
            weight.is_some().then_some(slot).transpose()
        };
        let slots = weights.iter().enumerate().map(slot);
        Ok(Some(Shares {
            owners,
            slots: slots.collect::<Result<_, _>>()?,
        }))
    }

    fn seen(&self) -> String {
        let unseen = self.window.owners.iter().filter(|it| it.is_none()).count();
        let number = |owner: usize| {
            let owners = self.window.owners.iter();
            owners.filter(|it| **it == Some(owner)).count()
        };
        let all: Vec<usize> = (0..self.files.len()).map(number).collect();
        format!("flows {all:?}, {unseen} without a packet")
    }

    fn weigh(&mut self, _: usize, _: u16) -> Result<()> {
        bail!("a poller's members keep their weights")
    }

    fn check(&mut self) -> Result<()> {
        Ok(())
    }

    /// The poller's account must be that of the generator. The source may lose packets if the
    /// poller does not get the CPU in time. The kernel counts these packets, and they are the only
    /// ones that may be missing.
    fn finish(self: Box<Self>, sent: u64) -> Result<u64> {
        let summary = self.poller.end().context("the poller's end")?;
        let expected = Summary {
            received: sent,
            offered: sent - summary.dropped,
            produced: sent - summary.dropped,
            without_room: 0,
            ..summary
        };
        ensure!(summary == expected, "{summary:?} of {sent} frames");
        if summary.dropped > 0 {
            print(&format!(
                "  {} frames dropped at the source",
                summary.dropped
            ));
        }
        Ok(summary.dropped)
    }
}
