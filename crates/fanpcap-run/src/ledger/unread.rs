//! Reports members that get packets but whose applications do not read them.

use std::time::Duration;

use fanpcap_group::record::Record;
use fanpcap_linux::wait::clock;

use super::Ledger;
use super::member::Member;

/// A member whose ring was not read for this long is reported.
const LONG: Duration = Duration::from_secs(10);

impl Ledger {
    /// Reports members whose rings are not read although packets come.
    pub(super) fn note_unread(&mut self) {
        let now_ns = clock::monotonic_ns();
        let begun = || self.held.iter().filter(|it| it.rejecting().has_begun);
        // While no packet comes, an application that waits in poll(2) does not look for packets, so
        // it must not be reported.
        let is_fresh = |record: &Record| {
            let age = Duration::from_nanos(now_ns.saturating_sub(record.read_ns));
            record.counters.received > 0 && age < LONG
        };
        if !begun().any(|member| is_fresh(&member.record)) {
            return;
        }
        let is_long = |member: &&Member| {
            let unread = member.record.unread_for(now_ns);
            unread.is_some_and(|unread| unread >= LONG)
        };
        let said = begun().filter(is_long).map(|member| {
            let has_share = self.shares.has(self.group, member);
            text(member.copy, &member.record, has_share)
        });
        self.complaints.extend(said);
    }
}

/// The report on a member whose ring is not read. `has_share` is `None` if unknown.
fn text(copy: usize, record: &Record, has_share: Option<bool>) -> String {
    let (pid, program) = (record.pid, &record.program);
    let when = if record.is_never_read() {
        "has never read"
    } else {
        "does not read any more"
    };
    let lost = match has_share {
        Some(true) => "and the packets of the handle's share are lost",
        Some(false) => "but the handle has no share of the group's packets, so no packet is lost",
        None => "and if the handle has a share of the group's packets, they are lost",
    };
    format!("copy {copy}: process {pid} ({program}) has a handle that it {when}, {lost}")
}
