//! A group of a poller. The program `fanpcap poller` runs as users run it. Its table is not seen
//! from outside, so the members' records show the owner of each flow.

use anyhow::{Context, Result, bail, ensure};
use fanpcap_netns::Wire;
use fanpcap_netns::poller::{Poller, Summary};

use super::super::load::print;
use super::super::recorder::Recorder;
use super::super::watch::Watch;
use super::engine::{Group, Shares};

pub(super) struct PolledGroup {
    poller: Poller,
    watch: Watch,
}

impl PolledGroup {
    pub(super) fn new(source: &str, wire: &Wire) -> Result<Self> {
        Ok(Self {
            poller: Poller::start(source, &wire.scratch)?,
            watch: Watch::new(),
        })
    }
}

impl Group for PolledGroup {
    fn add(&mut self, member: &Recorder) -> Result<()> {
        self.watch.add(member);
        Ok(())
    }

    fn begin(&mut self) {
        self.watch.begin();
    }

    fn settled(&mut self, weights: &[Option<u16>]) -> Result<Option<Shares>> {
        let is_there: Vec<bool> = weights.iter().map(Option::is_some).collect();
        let Some(owners) = self.watch.settled(&is_there)? else {
            return Ok(None);
        };
        // A poller names no slots. The numbers of members stand for them here.
        let slot = |(number, is_there): (usize, &bool)| {
            let slot = u8::try_from(number);
            is_there.then_some(slot).transpose()
        };
        let slots = is_there.iter().enumerate().map(slot);
        Ok(Some(Shares {
            owners,
            slots: slots.collect::<Result<_, _>>()?,
        }))
    }

    fn seen(&self) -> String {
        self.watch.seen()
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
            before_members: 0,
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
