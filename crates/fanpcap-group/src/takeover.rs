//! The takeover of a ring whose member is dead, or whose application has never read it. A living
//! member reads the ring. If the ring's own member is dead, the living member also writes the dead
//! member's final counters.

use crate::last_counts;
use crate::member_descriptors::MemberDescriptors;
use crate::record::{BEFORE, at};
use crate::shared::Shared;
use crate::slots;
use crate::table::FinalCounters;
use crate::takeover_status;
use fanpcap_buckets::Slot;
use fanpcap_reader::Takeover;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};

/// Members whose rings have been read to the end, by the cookies of their sockets. A dead member
/// comes with its final counters, and its slot must be vacated. A living member comes with `None`,
/// and gets its ring back.
pub(crate) type ReadOut = Vec<(u64, Option<FinalCounters>)>;

/// Takes over the ring of a dead member for the member `own`. No more packets come into this ring.
/// Adds the dead member to `read_out` when the ring has been read to the end. The caller holds the
/// group's lock.
///
/// If packets go to several members, `own` already has its own copies, unless it is the dead
/// member's successor. So `own` skips the copies in the ring.
///
/// # Errors
/// The dead member's final counters, when its ring can't be read.
pub(crate) fn take_over(
    shared: &Arc<Shared>,
    read_out: &Arc<Mutex<ReadOut>>,
    slot: Slot,
    own: u64,
) -> Result<Takeover, FinalCounters> {
    let row = shared.table().row(slot);
    let descriptors = MemberDescriptors::of(shared, row.cookie).ok_or(FinalCounters::UNKNOWN)?;
    takeover_status::begin(&descriptors.words);
    let published = descriptors.published();
    let Some(remains) = descriptors.remains(shared) else {
        return Err(descriptors.final_counters(shared));
    };
    let remains = match slots::succeeds(shared.table(), own, &row) {
        true => remains,
        false => remains.without_copies(),
    };
    let of_group = Arc::clone(shared);
    let final_counters = move || {
        (
            descriptors.cookie,
            Some(descriptors.final_counters(&of_group)),
        )
    };
    Ok(Takeover {
        remains,
        published,
        rejected: None,
        claims: None,
        done: when_read(read_out, final_counters),
    })
}

/// Takes over the ring of a living member whose application has never read it. Reading continues
/// where the former reader stopped. `None` if the application has begun to read the ring. The
/// caller holds the group's lock.
pub(crate) fn borrow(
    shared: &Shared,
    read_out: &Arc<Mutex<ReadOut>>,
    slot: Slot,
) -> Option<Takeover> {
    let descriptors = MemberDescriptors::of(shared, shared.table().row(slot).cookie)?;
    let claims = descriptors.borrow()?;
    // The member that borrows the ring has its own copies of packets for several members.
    let remains = descriptors.remains(shared)?.without_copies();
    let cookie = descriptors.cookie;
    Some(Takeover {
        remains,
        published: descriptors.published(),
        rejected: None,
        claims: Some(claims),
        done: when_read(read_out, move || (cookie, None)),
    })
}

/// Appends the result of `read` to `read_out` when a ring has been read to the end.
fn when_read(
    read_out: &Arc<Mutex<ReadOut>>,
    read: impl FnOnce() -> (u64, Option<FinalCounters>) + Send + 'static,
) -> Box<dyn FnOnce(u64) + Send> {
    let read_out = Arc::clone(read_out);
    Box::new(move |_| {
        let read = read();
        // Only the reading thread locks `read_out`, but a fork may have left it locked.
        if let Ok(mut read_out) = read_out.try_lock() {
            read_out.push(read);
        }
    })
}

/// Gives up the ring of a dead member. Returns the member's final counters.
pub(crate) fn give_up(shared: &Shared, slot: Slot) -> FinalCounters {
    let cookie = shared.table().row(slot).cookie;
    MemberDescriptors::of(shared, cookie).map_or(FinalCounters::UNKNOWN, |descriptors| {
        takeover_status::begin(&descriptors.words);
        descriptors.final_counters(shared)
    })
}

impl MemberDescriptors {
    /// Returns the member's final counters, which include what the kernel has counted since the
    /// member's last read. Writes them to the member's page, and closes the socket.
    pub(crate) fn final_counters(self, shared: &Shared) -> FinalCounters {
        let has_counted = self.count_last(shared);
        takeover_status::end(&self.words);
        let word = |at: usize| self.words[at].get();
        let since = |which: usize| {
            let counted = word(at::BY_LIBRARY[which]).saturating_add(word(at::BY_US[which]));
            counted.saturating_sub(word(BEFORE[which]))
        };
        let (received, dropped) = (since(0), since(1));
        let (taken, inherited) = takeover_status::taken(word);
        // The reader first takes the packets that were in the ring before the member joined. These
        // packets do not count for the member.
        let earlier = word(BEFORE[0]).saturating_sub(word(BEFORE[1]));
        let taken = taken.map(|own| own.saturating_sub(earlier));
        let all = taken.map(|own| own.saturating_add(inherited));
        let unread = all.map(|all| received.saturating_sub(dropped).saturating_sub(all));
        // If a member died while it read the kernel's counters, these counters are lost.
        let has_lost = shared.on_device.is_none() && word(at::READING) != 0;
        let is_known = has_counted && all.is_some() && !has_lost;
        FinalCounters {
            members: 1,
            received,
            dropped,
            taken: taken.unwrap_or(0),
            inherited,
            unread: unread.unwrap_or(0),
            unknown: u64::from(!is_known),
        }
    }

    /// Updates the page with the last counts; returns false if these can't be read. The kernel
    /// clears a socket's counters when they are read, so this function adds them to the page. An
    /// engine's counters are totals, so they replace the counters on the page. On an engine the
    /// member must be dead: a living member would add its own last reading to the totals.
    pub(crate) fn count_last(&self, shared: &Shared) -> bool {
        let table = shared.table();
        if shared.on_device.is_some() {
            let slot = table.slot_of(self.cookie);
            let counted = slot.and_then(|slot| shared.counted(slot));
            for (at, count) in at::BY_US.into_iter().zip(counted.into_iter().flatten()) {
                self.words[at].set(count);
            }
            return counted.is_some();
        }
        last_counts::add_to(&self.words, self.socket.as_fd()).is_ok()
    }
}
