//! Changes the weight of a member of a steered group, from outside of the group. Weight 0 drains
//! the member.

use crate::found;
use crate::guard::GroupLock;
use crate::identity::Identity;
use crate::kernel::Kernel;
use crate::member_descriptors::MemberDescriptors;
use crate::page::MemberId;
use crate::record::{Record, WORDS};
use crate::shared::{Shared, group_of};
use crate::slots::{KernelOps, Slots, Weighed};
use crate::steered::SteerError;
use crate::table::at;
use fanpcap_linux::file::shared::Word;
use std::sync::Arc;
use std::{fmt, io};

/// Why a member's weight can't be changed.
#[derive(Debug)]
pub enum WeighError {
    /// The group's lock can't be taken.
    Lock(SteerError),
    /// The objects that the members share can't be obtained. The text says why.
    Unreachable(String),
    /// The group has no steering program, or the member is not in the group.
    Gone,
    /// No other member of the group has a share of its packets.
    Last,
    /// The group is on several devices, and this device is not the first.
    Follows,
    /// A system call failed.
    Failed(io::Error),
}

impl fmt::Display for WeighError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lock(error) => write!(f, "can't take the group's lock: {error}"),
            Self::Unreachable(reasons) => f.write_str(reasons),
            Self::Gone => f.write_str("it has left the group"),
            Self::Last => f.write_str("no other member would take its packets"),
            Self::Follows => {
                f.write_str("the group on the handles' first device decides the shares")
            }
            Self::Failed(error) => write!(f, "the group's descriptor store: {error}"),
        }
    }
}

impl std::error::Error for WeighError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Lock(error) => Some(error),
            Self::Failed(error) => Some(error),
            Self::Unreachable(_) | Self::Gone | Self::Last | Self::Follows => None,
        }
    }
}

impl From<SteerError> for WeighError {
    fn from(error: SteerError) -> Self {
        Self::Lock(error)
    }
}

impl From<io::Error> for WeighError {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

/// A member that was drained: its ring gets no more packets.
#[derive(Debug)]
pub struct Drained {
    /// The words of the member's page; `None` if it has no page.
    words: Option<[Word; WORDS]>,
    /// How many packets came into the member's ring; `None` if the page shows this number.
    given: Option<u64>,
}

impl Drained {
    /// How many packets that nobody has taken are in the member's ring; `None` if unknown, for
    /// example when the system's library reads the member.
    pub fn unread(&self) -> Option<u64> {
        let words = self.words.as_ref()?;
        let page = Record::decode(&std::array::from_fn(|at| words[at].get()))?;
        let told = page.counters.received.saturating_sub(page.counters.dropped);
        Some(self.given.unwrap_or(told).saturating_sub(page.taken?))
    }
}

/// Gives a member of a group a weight other than 0, and the number of buckets for that weight.
///
/// # Errors
/// [`WeighError`].
pub fn weigh(ifindex: u32, group: u16, member: MemberId, weight: u16) -> Result<(), WeighError> {
    change(ifindex, group, |shared| {
        move_buckets(shared, member, weight).map(drop)
    })
}

/// Gives a member's buckets to other members. The member stays in its group, without a share. When
/// this returns, all packets in flight to the member are in its ring.
///
/// # Errors
/// [`WeighError`]. Nothing has changed in this case.
pub fn drain(ifindex: u32, group: u16, member: MemberId) -> Result<Drained, WeighError> {
    change(ifindex, group, |shared| {
        let cookie = move_buckets(shared, member, 0)?;
        Kernel::of(shared).settle()?;
        let given = given_by_engine(shared, cookie);
        let mut descriptors = MemberDescriptors::of(shared, cookie);
        if given.is_none() {
            // From now on no packets come, so the member will not read the kernel's counters. Read
            // them here.
            descriptors = descriptors.filter(|it| it.count_last(shared));
        }
        let words = descriptors.map(|it| it.words);
        Ok(Drained { words, given })
    })
}

/// How many packets an engine has put into a member's rings since the member joined. Does not
/// change the page: the living member itself adds its unpublished counts to the page.
fn given_by_engine(shared: &Shared, cookie: u64) -> Option<u64> {
    let slot = shared.table().slot_of(cookie)?;
    let [received, dropped] = shared.counted(slot)?;
    Some(received.saturating_sub(dropped))
}

/// Runs `work` on the objects that the members share, under the group's lock.
fn change<T>(
    ifindex: u32,
    group: u16,
    work: impl FnOnce(&Shared) -> Result<T, WeighError>,
) -> Result<T, WeighError> {
    let shared = on_device(ifindex, group, |shared| {
        match shared.table().get(at::FOLLOWS) {
            0 => work(shared).map(|done| (done, Arc::clone(shared))),
            _ => Err(WeighError::Follows),
        }
    });
    let (done, lead) = shared?;
    for (ifindex, group) in lead.table().device_groups().into_iter().map(group_of) {
        // Best effort: if this fails, the members follow the lead when they next look after their
        // group.
        let _ = on_device(ifindex, group, |shared| {
            let mut kernel = Kernel::of(shared);
            let slots = Slots::new(shared.table(), &mut kernel);
            Ok(slots.behind(Some(lead.table())).follow()?)
        });
    }
    Ok(done)
}

fn on_device<T>(
    ifindex: u32,
    group: u16,
    work: impl FnOnce(&Arc<Shared>) -> Result<T, WeighError>,
) -> Result<T, WeighError> {
    let outside = Identity::outside(group, ifindex);
    let lock = GroupLock::open(&outside)?;
    let (_guard, found) = found::take_and_find(&lock, &outside, ifindex)?;
    let shared = found.map_err(|error| WeighError::Unreachable(error.to_string()))?;
    work(&shared.ok_or(WeighError::Gone)?)
}

/// Moves buckets for a member's new weight. Returns the cookie of the member's socket.
fn move_buckets(shared: &Shared, member: MemberId, weight: u16) -> Result<u64, WeighError> {
    let table = shared.table();
    let mut kernel = Kernel::of(shared);
    let mut slots = Slots::new(table, &mut kernel);
    slots.repair()?;
    let mut rows = table.rows();
    let row = rows.find(|(_, row)| row.member == member.socket());
    let (_, row) = row.ok_or(WeighError::Gone)?;
    match slots.weigh(row.cookie, weight)? {
        Weighed::Done => Ok(row.cookie),
        Weighed::Gone => Err(WeighError::Gone),
        Weighed::Last => Err(WeighError::Last),
    }
}
