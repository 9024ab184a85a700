//! The ring of a member that is gone, for the member that inherits it: where its owner stood, and
//! its last counters.

use crate::epitaph;
use crate::estate::Estate;
use crate::record::{BEFORE, at};
use crate::shared::Shared;
use crate::slots;
use crate::table::Gone;
use fanpcap_buckets::Slot;
use fanpcap_linux::packet;
use fanpcap_reader::Inheritance;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};

/// Members whose rings are read out, by the cookies of their sockets. The slots of those that are
/// gone are to be vacated; of others nothing is known.
pub(crate) type ReadOut = Vec<(u64, Option<Gone>)>;

/// Inherits the ring of a gone member, to which nothing comes any more. Notes in `read_out` when it
/// is read to the end. The caller holds the group's lock. `own`: the heir, which has its own copies
/// of packets that go to several members, unless it is the successor of the one that is gone.
///
/// # Errors
/// What is known of the member, where its ring can't be read.
pub(crate) fn inherit(
    shared: &Arc<Shared>,
    read_out: &Arc<Mutex<ReadOut>>,
    slot: Slot,
    own: u64,
) -> Result<Inheritance, Gone> {
    let row = shared.table().row(slot);
    let estate = Estate::of(shared, row.cookie).ok_or(Gone::UNKNOWN)?;
    epitaph::begin(&estate.words);
    let published = estate.published();
    let Some(remains) = estate.remains(shared) else {
        return Err(estate.epitaph(shared));
    };
    let remains = match slots::succeeds(shared.table(), own, &row) {
        true => remains,
        false => remains.without_copies(),
    };
    let of_group = Arc::clone(shared);
    let epitaph = move || (estate.cookie, Some(estate.epitaph(&of_group)));
    Ok(Inheritance {
        remains,
        published,
        claims: None,
        done: when_read(read_out, epitaph),
    })
}

/// Reads the ring of a member that lives and has never been read, from where the one before
/// stopped. `None` where its application reads it by now. The caller holds the group's lock.
pub(crate) fn borrow(
    shared: &Shared,
    read_out: &Arc<Mutex<ReadOut>>,
    slot: Slot,
) -> Option<Inheritance> {
    let estate = Estate::of(shared, shared.table().row(slot).cookie)?;
    let claims = estate.borrow()?;
    // Who reads it has copies of its own.
    let remains = estate.remains(shared)?.without_copies();
    let cookie = estate.cookie;
    Some(Inheritance {
        remains,
        published: estate.published(),
        claims: Some(claims),
        done: when_read(read_out, move || (cookie, None)),
    })
}

/// Notes in `read_out` what `read` says when a ring is read to its end.
fn when_read(
    read_out: &Arc<Mutex<ReadOut>>,
    read: impl FnOnce() -> (u64, Option<Gone>) + Send + 'static,
) -> Box<dyn FnOnce(u64) + Send> {
    let read_out = Arc::clone(read_out);
    Box::new(move |_| {
        let read = read();
        // The reading thread alone comes here; a fork may have left it locked.
        if let Ok(mut read_out) = read_out.try_lock() {
            read_out.push(read);
        }
    })
}

/// What is known of a gone member whose ring nobody is to read.
pub(crate) fn give_up(shared: &Shared, slot: Slot) -> Gone {
    let cookie = shared.table().row(slot).cookie;
    Estate::of(shared, cookie).map_or(Gone::UNKNOWN, |estate| {
        epitaph::begin(&estate.words);
        estate.epitaph(shared)
    })
}

impl Estate {
    /// The member's last counters, which include what the kernel has counted since the member asked
    /// last. Writes them on the member's page too, and lets go of its socket.
    pub(crate) fn epitaph(self, shared: &Shared) -> Gone {
        let has_counted = self.count_last(shared);
        epitaph::end(&self.words);
        let word = |at: usize| self.words[at].get();
        let since = |which: usize| {
            let counted = word(at::BY_LIBRARY[which]).saturating_add(word(at::BY_US[which]));
            counted.saturating_sub(word(BEFORE[which]))
        };
        let (received, dropped) = (since(0), since(1));
        let (taken, inherited) = epitaph::taken(word);
        // The reader first takes what was in the ring before the member joined.
        let earlier = word(BEFORE[0]).saturating_sub(word(BEFORE[1]));
        let taken = taken.map(|own| own.saturating_sub(earlier));
        let all = taken.map(|own| own.saturating_add(inherited));
        let unread = all.map(|all| received.saturating_sub(dropped).saturating_sub(all));
        // A member that died while it read the kernel's counters has lost that reading.
        let has_lost = shared.on_xdp.is_none() && word(at::READING) != 0;
        let is_known = has_counted && all.is_some() && !has_lost;
        Gone {
            members: 1,
            received,
            dropped,
            taken: taken.unwrap_or(0),
            inherited,
            unread: unread.unwrap_or(0),
            unknown: u64::from(!is_known),
        }
    }

    /// Adds what the kernel has counted last to the page. The kernel clears a socket's counters
    /// when they are read. Those of the XDP engine go on, so that they replace what the page says:
    /// the member must be gone, as it would add to the page what it has not told yet.
    pub(crate) fn count_last(&self, shared: &Shared) -> bool {
        let table = shared.table();
        if let Some(on_xdp) = &shared.on_xdp {
            let slot = table.slot_of(self.cookie);
            let counted = slot.map(|slot| on_xdp.counted(table, slot));
            for (at, count) in at::BY_US.into_iter().zip(counted.into_iter().flatten()) {
                self.words[at].set(count);
            }
            return counted.is_some();
        }
        self.words[at::READING].during(|| {
            let last = packet::take_statistics(self.socket.as_fd());
            let counted = last.as_ref().map(|last| [last.packets, last.drops]);
            for (at, more) in at::BY_US.into_iter().zip(counted.unwrap_or_default()) {
                self.words[at].add(more.into());
            }
            last.is_ok()
        })
    }
}
