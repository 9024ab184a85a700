//! The engines on which schedules run, and what a schedule needs of a group on any of them.

use anyhow::Result;
use fanpcap_group::page::MemberId;
use fanpcap_group::view::{Place, State};
use fanpcap_netns::Wire;

use super::super::recorder::Recorder;
use super::super::scene::ON_XDP;
use super::super::table::BUCKETS;
use super::polled::PolledGroup;
use super::tables::TableGroup;

/// Where a group's packets come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Engine {
    /// Packet sockets, which the kernel steers.
    Tpacket,
    /// An XDP program.
    Xdp,
    /// A poller with the source of this name.
    Polled(&'static str),
}

/// A poller of a device of DPDK.
pub(super) const DPDK: Engine = Engine::Polled("dpdk");

/// The owners of packets, and the members' slots, at a time when all members have their shares.
pub(super) struct Shares {
    /// The member that owns each bucket, or each flow where buckets can't be seen.
    pub(super) owners: Vec<usize>,
    /// The slot of each member that gets packets.
    pub(super) slots: Vec<Option<u8>>,
}

/// A group on which a schedule runs.
pub(super) trait Group {
    /// A member has started.
    fn add(&mut self, member: &Recorder) -> Result<()>;

    /// Begins a wait for [`Group::settled`].
    fn begin(&mut self) {}

    /// Looks at the group's table. Returns whether each member has its share and no change is under
    /// way. `weights` are those of all members; `None` if a member has ended or hangs.
    fn has_shares(&mut self, weights: &[Option<u16>]) -> Result<bool>;

    /// Looks at the group. Returns the shares if [`Group::has_shares`] and their owners are known.
    fn settled(&mut self, weights: &[Option<u16>]) -> Result<Option<Shares>>;

    /// What was last seen of the group, for messages.
    fn seen(&self) -> String;

    /// Gives a member another weight.
    fn weigh(&mut self, member: usize, weight: u16) -> Result<()>;

    /// Checks that no packets are lost by members that have ended.
    fn check(&mut self) -> Result<()>;

    /// Checks the engine's own account, after all members have ended. Returns how many of the
    /// `sent` frames the engine never got.
    fn finish(self: Box<Self>, sent: u64) -> Result<u64>;
}

/// Whether each member has its share, and the rings of all ended members are read.
pub(super) fn have_shares(places: &[Place], ids: &[MemberId], weights: &[Option<u16>]) -> bool {
    let sum: usize = weights.iter().flatten().map(|it| usize::from(*it)).sum();
    let there = weights.iter().flatten().count();
    let live = places.iter().filter(|it| it.state == State::Live);
    let is_even = |(id, weight): (&MemberId, &Option<u16>)| {
        let Some(weight) = weight else {
            return true;
        };
        let quota = BUCKETS * usize::from(*weight);
        let due = quota / sum..=quota.div_ceil(sum);
        let mut its = places.iter().filter(|it| it.member == *id);
        its.any(|it| it.state == State::Live && it.weight == *weight && due.contains(&it.buckets))
    };
    // A member that hangs is a newcomer. On XDP, a slot between those of members may be free.
    let is_rest = |state| matches!(state, State::Vacant | State::Free | State::Newcomer);
    let rests = places.iter().filter(|it| is_rest(it.state));
    live.count() == there
        && rests.count() + there == places.len()
        && ids.iter().zip(weights).all(is_even)
}

/// The slot of each member that has a share.
pub(super) fn slots(
    places: &[Place],
    ids: &[MemberId],
    weights: &[Option<u16>],
) -> Vec<Option<u8>> {
    let slot = |(id, weight): (&MemberId, &Option<u16>)| {
        weight.filter(|weight| *weight > 0)?;
        let mut its = places.iter().filter(|it| it.member == *id);
        its.next().map(|it| it.slot)
    };
    ids.iter().zip(weights).map(slot).collect()
}

impl Engine {
    /// The arguments of a recorder.
    pub(super) fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Tpacket => &[],
            Self::Xdp => &[ON_XDP],
            Self::Polled("afxdp") => &["driver=afxdp"],
            Self::Polled("dpdk") => &["driver=dpdk"],
            Self::Polled(_) => &["driver=packet"],
        }
    }

    /// A rate with which seven members keep up on a machine with two CPUs. A source of a poller has
    /// room for the packets of less time than a member's ring: 4096 packets, or those of 128 ms.
    pub(super) fn rate(self) -> &'static str {
        if self.is_polled() {
            "20kpps"
        } else {
            "100kpps"
        }
    }

    /// A group on the wire, before its first member starts.
    pub(super) fn group(self, wire: &Wire) -> Result<Box<dyn Group>> {
        Ok(match self {
            Self::Polled(source) => Box::new(PolledGroup::new(source, wire)?),
            Self::Tpacket | Self::Xdp => Box::new(TableGroup::default()),
        })
    }

    /// Whether packets that come while a filter is changed are lost, because the kernel filters
    /// them by the old filter. A poller's members filter packets when they read them.
    pub(super) fn filters_in_kernel(self) -> bool {
        !self.is_polled()
    }

    /// Whether shares are only seen while packets come. The table of a poller's group is in the
    /// poller's own memory, so the test sees who gets the packets of each flow.
    pub(super) fn is_polled(self) -> bool {
        matches!(self, Self::Polled(_))
    }
}
