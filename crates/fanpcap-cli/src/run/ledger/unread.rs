//! Members that get packets and that no application reads.

use std::time::Duration;

use fanpcap_group::record::Record;
use fanpcap_linux::wait::clock;

use super::Ledger;

/// A member that was not read for this long is reported.
const LONG: Duration = Duration::from_secs(10);

impl Ledger {
    /// Reports members that are not read although packets come.
    pub(super) fn note_unread(&mut self) {
        let now_ns = clock::monotonic_ns();
        let records: Vec<(usize, &Record)> = self
            .held
            .iter()
            .filter(|member| member.rejecting().has_begun)
            .map(|member| (member.copy(), member.record()))
            .collect();
        // An application that waits by poll(2) does not look while no packet comes.
        let is_fresh = |record: &Record| {
            let age = Duration::from_nanos(now_ns.saturating_sub(record.read_ns));
            record.counters.received > 0 && age < LONG
        };
        if !records.iter().any(|(_, record)| is_fresh(record)) {
            return;
        }
        let said = records.into_iter().filter_map(|(copy, record)| {
            let unread = record.unread_for(now_ns)?;
            (unread >= LONG).then(|| text(copy, record))
        });
        let said: Vec<String> = said.collect();
        self.complaints.extend(said);
    }
}

fn text(copy: usize, record: &Record) -> String {
    let (pid, program) = (record.pid, &record.program);
    let when = if record.is_never_read() {
        "has never read"
    } else {
        "does not read any more"
    };
    format!(
        "copy {copy}: process {pid} ({program}) has a handle that it {when}, and the handle takes its share of the group's packets: they are lost"
    )
}
