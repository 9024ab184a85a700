//! Changes of the shares of a poller's members. The poller makes them.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use fanpcap_poll::message::{Question, Reply};
use fanpcap_poll::{Asking, place};
use fanpcap_snapshot::{OfPoller, POLLER_LIMIT, unreachable};

/// Interval of looks whether a pool has been read.
const LOOK: Duration = Duration::from_millis(20);

/// Asks the poller for another weight of a member; 0 drains it. When this returns, all packets in
/// flight to a drained member are in its pool.
///
/// # Errors
/// The poller does not reply, or why it does not change the weight.
pub(super) fn weigh(at: &OfPoller, member: u64, weight: u16) -> Result<()> {
    let failed = |error| unreachable(&at.socket, &error);
    let question = || Question::Weigh { member, weight };
    let reply = ask(at, |asking| asking.ask(question())).map_err(failed)?;
    if let Reply::NotDone(why) = reply {
        bail!(why);
    }
    ensure!(
        reply == Reply::Done,
        "the poller of {} replies {reply:?}",
        at.socket
    );
    Ok(())
}

/// Waits until a drained member has read its pool, but at most for `limit`. Returns the number of
/// packets that are left in the pool; `None` if it is unknown, because the member has left.
pub(super) fn await_empty(at: &OfPoller, member: u64, limit: Duration) -> Option<u64> {
    let end = Instant::now() + limit;
    loop {
        let groups = ask(at, Asking::groups).ok()?;
        let mut slots = groups.iter().flat_map(|it| &it.slots);
        let slot = slots.find(|it| it.member == member && it.pool_bytes > 0)?;
        let left = slot.counts.unread();
        if left == 0 || Instant::now() > end {
            return Some(left);
        }
        thread::sleep(LOOK);
    }
}

fn ask<T>(at: &OfPoller, ask: impl FnMut(&mut Asking) -> io::Result<T>) -> io::Result<T> {
    let engine = at.socket.split(':').next().unwrap_or_default();
    let found = place::open(engine, &at.device)?;
    Asking::with(&found.directory, &found.name, POLLER_LIMIT, ask)
}
