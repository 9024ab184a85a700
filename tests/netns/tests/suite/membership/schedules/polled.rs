//! A group of a poller. The program `fanpcap poller` runs as users run it. It shows the members'
//! shares. Its table is not seen from outside, so the members' records show the owner of each flow.

use anyhow::{Context, Result, ensure};
use fanpcap_group::page::MemberId;
use fanpcap_group::view::{Place, State};
use fanpcap_netns::Wire;
use fanpcap_netns::poller::{Poller, Summary};

use super::super::load::print;
use super::super::recorder::Recorder;
use super::super::watch::Watch;
use super::GROUP;
use super::engine::{self, Group, Shares};

pub(super) struct PolledGroup {
    poller: Poller,
    watch: Watch,
    ids: Vec<MemberId>,
    seen: Vec<Place>,
}

impl PolledGroup {
    pub(super) fn new(source: &str, wire: &Wire) -> Result<Self> {
        Ok(Self {
            poller: Poller::start(source, &wire.scratch)?,
            watch: Watch::new(),
            ids: Vec::new(),
            seen: Vec::new(),
        })
    }

    fn look(&mut self) -> Result<()> {
        self.seen = self.poller.look(GROUP)?.places;
        Ok(())
    }
}

impl Group for PolledGroup {
    fn add(&mut self, member: &Recorder) -> Result<()> {
        self.watch.add(member);
        self.look()?;
        let pid = member.pid()?;
        let is_it =
            |it: &&Place| it.pid == pid && matches!(it.state, State::Newcomer | State::Live);
        let place = self.seen.iter().find(is_it);
        self.ids
            .push(place.context("no member of this process")?.member);
        Ok(())
    }

    fn begin(&mut self) {
        self.watch.begin();
    }

    fn has_shares(&mut self, weights: &[Option<u16>]) -> Result<bool> {
        self.look()?;
        Ok(engine::have_shares(&self.seen, &self.ids, weights))
    }

    fn settled(&mut self, weights: &[Option<u16>]) -> Result<Option<Shares>> {
        if !self.has_shares(weights)? {
            self.watch.begin();
            return Ok(None);
        }
        let Some(owners) = self.watch.owners()? else {
            return Ok(None);
        };
        // A newcomer of a sticky group has a share, but no flow.
        let mut slots = engine::slots(&self.seen, &self.ids, weights);
        for (member, slot) in slots.iter_mut().enumerate() {
            slot.take_if(|_| !owners.contains(&member));
        }
        Ok(Some(Shares { owners, slots }))
    }

    fn seen(&self) -> String {
        format!("{}, {:?}", self.watch.seen(), self.seen)
    }

    fn weigh(&mut self, member: usize, weight: u16) -> Result<()> {
        self.poller.weigh(self.ids[member].socket(), weight)
    }

    fn check(&mut self) -> Result<()> {
        let gone = self.poller.look(GROUP)?.gone;
        ensure!(
            (gone.dropped, gone.unread) == (0, 0),
            "members that have ended have lost packets: {gone:?}"
        );
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
