//! Decides when, and for how long, the reader of a busy ring rests. After a rest, the kernel wakes
//! the reader once for many blocks.
//!
//! A wake-up costs the reader as much as some hundred packets. In immediate mode the kernel wakes
//! the reader for each packet, which costs the kernel as much as the delivery. The reader learns
//! the ring's fill rate from the kernel's time stamps, without reading a clock.
//!
//! Without rests, a reader of records would follow the BPF program from record to record, and both
//! would wait for each other's cache lines.

use fanpcap_ring::{Closed, Drained, Ring, Stamp};
use std::mem;
use std::time::Duration;

/// At most 1/`SHARE` of a ring may fill during a rest. So a burst at `SHARE` times the usual rate
/// still fits into the ring.
const SHARE: u64 = 8;

/// [`SHARE`] for a ring of [`LARGE`] blocks (8 MiB) or more. A larger part of such a ring may fill
/// during a rest, because the other three quarters are still three times as large as the whole ring
/// of the system's libpcap.
const SHARE_OF_LARGE: u64 = 4;
const LARGE: usize = 32;

/// The longest rest of a reader of blocks. The application's time-out may shorten it.
const LONGEST: Duration = Duration::from_millis(20);

/// The longest rest in immediate mode. So a packet is delivered less than a millisecond late, and
/// only when packets come fast.
const LONGEST_IMMEDIATE: Duration = Duration::from_micros(500);

/// The longest rest in immediate mode for a reader of records, for which frequent wake-ups are
/// cheap. The kernel adds some 50 microseconds (`PR_SET_TIMERSLACK`), so a packet is late by less
/// than 100 microseconds.
const LONGEST_FOR_RECORD: Duration = Duration::from_micros(30);

/// The longest time for which an application in poll(2) waits for several records.
pub(crate) const WINDOW: Duration = Duration::from_millis(1);

/// The reader rests only if at least this many frames or records will come during the rest.
const LEAST: u64 = 16;

/// An application in poll(2) waits for several records only if at least this many will come during
/// the wait.
const LEAST_TOLD: u64 = 4;

/// A ring of records is large if it has at least this many bytes.
const LARGE_LEN: usize = 8 << 20;

/// The most bytes of records that may come during a rest. The records, and the memory into which
/// the next records go, should stay in the CPU's caches.
const WARM: u64 = 1 << 20;

/// The rate at which a ring fills, in blocks, frames or records.
#[derive(Default)]
pub(crate) struct Pace {
    /// The most blocks or frames, or bytes of records, that may fill during a rest.
    most: u64,
    /// The reader rests only if at least this many blocks, frames or records will come during the
    /// rest.
    least: u64,
    longest: Duration,
    /// The number to subtract from the number of frames or blocks to get the number of gaps. It is
    /// 1 for frames, because n frames have n stamps and n - 1 gaps, and 0 for blocks, which have
    /// two stamps each.
    without_gap: u64,
    /// The number of blocks, frames or records from `first` to `last`. For records, this time
    /// includes the time between snapshots, so the rate is known even if each snapshot has few
    /// records.
    passed: u64,
    /// The bytes of these records; 0 for blocks and frames.
    bytes: u64,
    first: Stamp,
    last: Stamp,
    /// Whether packets come fast: the last block was closed because it was full, or the ring has no
    /// blocks.
    busy: bool,
    /// The newest wait of an application in poll(2): its time, and the number of bytes expected in
    /// that time.
    told: Option<(Duration, u64)>,
}

impl Pace {
    /// The pace of the rests at this ring, if the engine hands over packets within `timeout`; 0 is
    /// immediate mode.
    pub(crate) fn of(ring: &Ring, timeout: Option<Duration>) -> Self {
        match ring {
            Ring::V2(frames) => Self::frames(frames.count()),
            Ring::V3(blocks) => Self::new(share(blocks.count(), LARGE), 2, LONGEST, 0),
            Ring::Pool(pool) => Self::records(pool.bytes(), timeout),
            // The reader never rests, because it does not know how much of the engine's memory is
            // filled.
            Ring::Calls(_) => Self::default(),
        }
    }

    /// The pace of a ring of frames with one packet each.
    pub(crate) fn frames(count: usize) -> Self {
        Self::new(count as u64 / SHARE, LEAST, LONGEST_IMMEDIATE, 1)
    }

    /// The pace of a ring of `len` bytes with a record for each packet.
    fn records(len: usize, timeout: Option<Duration>) -> Self {
        let longest = match timeout {
            Some(Duration::ZERO) => LONGEST_FOR_RECORD,
            _ => LONGEST,
        };
        Self::new(share(len, LARGE_LEN).min(WARM), LEAST, longest, 0)
    }

    fn new(most: u64, least: u64, longest: Duration, without_gap: u64) -> Self {
        Self {
            most,
            least,
            longest,
            without_gap,
            ..Self::default()
        }
    }

    pub(crate) fn handle_block(&mut self, closed: Closed) {
        self.pass(closed.first, closed.last);
        self.busy = closed.full;
    }

    #[inline]
    pub(crate) fn handle_frame(&mut self, stamp: Stamp) {
        self.pass(stamp, stamp);
        self.busy = true;
    }

    #[inline]
    fn pass(&mut self, first: Stamp, last: Stamp) {
        if self.passed == 0 {
            self.first = first;
        }
        self.last = last;
        self.passed += 1;
    }

    /// Counts a snapshot of records that has been read.
    pub(crate) fn handle_snapshot(&mut self, drained: Drained) {
        if drained.records == 0 {
            return;
        }
        if self.last == Stamp::default() {
            self.first = drained.last;
        } else {
            self.passed += drained.records;
            self.bytes += drained.bytes;
        }
        self.last = drained.last;
        self.busy = true;
    }

    /// Returns the time that an application may wait in poll(2), at most `longest`, and the bytes
    /// of the records that will come in that time. `None`: the application waits for the next
    /// record.
    #[cold]
    #[inline(never)]
    pub(crate) fn expect(&mut self, longest: Duration) -> Option<(Duration, u64)> {
        let (bytes, span) = (self.bytes, self.last.since(self.first));
        let is_immediate = self.longest < longest;
        let rest = self.rest_for(Some(longest), LEAST_TOLD);
        let rest = rest.filter(|_| !is_immediate);
        let rest_ns = rest.and_then(|rest| u64::try_from(rest.as_nanos()).ok());
        let coming = rest_ns.and_then(|it| it.saturating_mul(bytes).checked_div(span));
        self.told = rest.zip(coming);
        self.told
    }

    /// Returns how long the reader rests if the application reads before half of the expected bytes
    /// have come. Such an application does not wait in poll(2) after all.
    #[cold]
    #[inline(never)]
    pub(crate) fn rest_early(&mut self, unread: u64) -> Option<Duration> {
        let (rest, bytes) = self.told.take()?;
        (unread < bytes / 2).then_some(rest)
    }

    /// Returns how long the reader of the empty ring may rest, at most `limit`; `None` if the
    /// reader must not rest.
    pub(crate) fn rest(&mut self, limit: Option<Duration>) -> Option<Duration> {
        self.rest_for(limit, self.least)
    }

    /// Returns how long the reader may rest, at most `limit`. `None`: the reader must not rest,
    /// because fewer than `least` blocks, frames or records would come in that time.
    fn rest_for(&mut self, limit: Option<Duration>, least: u64) -> Option<Duration> {
        let gaps = mem::take(&mut self.passed).saturating_sub(self.without_gap);
        let bytes = mem::take(&mut self.bytes);
        let span = self.last.since(mem::replace(&mut self.first, self.last));
        if !mem::take(&mut self.busy) {
            return None;
        }
        let filled = if bytes > 0 { bytes } else { gaps };
        let rest = span.saturating_mul(self.most).checked_div(filled)?;
        let longest = limit.map_or(self.longest, |limit| limit.min(self.longest));
        let rest = Duration::from_nanos(rest).min(longest);
        let least = span.saturating_mul(least).checked_div(gaps)?;
        (rest >= Duration::from_nanos(least) && !rest.is_zero()).then_some(rest)
    }
}

/// The part of a ring of this size that may fill during a rest.
fn share(size: usize, large: usize) -> u64 {
    size as u64 / if size >= large { SHARE_OF_LARGE } else { SHARE }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(microseconds: u32) -> Stamp {
        Stamp {
            seconds: 7,
            nanoseconds: microseconds * 1000,
        }
    }

    fn after_blocks(count: usize, blocks: u32, microseconds_each: u32, full: bool) -> Pace {
        let mut pace = Pace::new(share(count, LARGE), 2, LONGEST, 0);
        for block in 0..blocks {
            pace.handle_block(Closed {
                first: at(block * microseconds_each),
                last: at((block + 1) * microseconds_each),
                full,
            });
        }
        pace
    }

    #[test]
    fn a_busy_reader_rests_while_a_part_of_its_ring_fills() {
        let mut pace = after_blocks(32, 3, 500, true);
        assert_eq!(pace.rest(None), Some(Duration::from_micros(8 * 500)));
        assert_eq!(pace.rest(None), None, "no block since the last rest");
        let rest = |count| after_blocks(count, 3, 500, true).rest(None);
        assert_eq!(
            rest(31),
            Some(Duration::from_micros(3 * 500)),
            "a small ring"
        );
        assert_eq!(rest(1000), Some(LONGEST));
        let mut pace = after_blocks(64, 3, 1400, true);
        let limit = Some(Duration::from_millis(5));
        assert_eq!(pace.rest(limit), limit);
    }

    #[test]
    fn no_rest_where_it_gains_nothing_or_risks_loss() {
        assert_eq!(after_blocks(64, 3, 1400, false).rest(None), None, "slow");
        assert_eq!(
            after_blocks(8, 3, 1400, true).rest(None),
            None,
            "small ring"
        );
        let limit = Some(Duration::from_millis(1));
        assert_eq!(
            after_blocks(64, 3, 1400, true).rest(limit),
            None,
            "time-out"
        );
        assert_eq!(
            after_blocks(64, 1, 15_000, true).rest(None),
            None,
            "one block in 15 ms"
        );
    }

    /// The pace after snapshots of `records` records each, one every `microseconds`.
    fn after_snapshots(timeout: Option<Duration>, records: u64, microseconds: u32) -> Pace {
        let mut pace = Pace::records(LARGE_LEN, timeout);
        for snapshot in 1..=3 {
            pace.handle_snapshot(Drained {
                last: at(snapshot * microseconds),
                records,
                bytes: records * 1024,
            });
        }
        pace
    }

    #[test]
    fn a_reader_of_records_rests_while_a_part_of_its_ring_fills() {
        let rest =
            |limit, records, microseconds| after_snapshots(None, records, microseconds).rest(limit);
        // [`WARM`] is room for 1024 of these records, which come within 1000 microseconds.
        assert_eq!(rest(None, 512, 500), Some(Duration::from_micros(1000)));
        assert_eq!(rest(None, 1, 1000), Some(LONGEST), "snapshots of one");
        let limit = Some(Duration::from_micros(900));
        assert_eq!(rest(limit, 512, 500), limit);
        assert_eq!(rest(limit, 1, 1000), None, "fewer than 16 would come");
        assert_eq!(rest(None, 1, 2000), None, "fewer than 16 would come");
        assert_eq!(rest(None, 5, 0), None, "all have the same stamp");
        let mut pace = after_snapshots(None, 512, 500);
        assert!(pace.rest(None).is_some());
        assert_eq!(pace.rest(None), None, "no record since the last rest");
        let mut pace = after_snapshots(Some(Duration::ZERO), 512, 500);
        assert_eq!(pace.rest(None), Some(LONGEST_FOR_RECORD));
        let mut first = Pace::records(LARGE_LEN, None);
        first.handle_snapshot(Drained {
            last: at(1),
            records: 100,
            bytes: 9600,
        });
        assert_eq!(first.rest(None), None, "no earlier stamp");
    }

    #[test]
    fn who_waits_by_itself_is_told_how_many_to_wait_for() {
        let expected = |timeout, records, microseconds| {
            after_snapshots(timeout, records, microseconds).expect(WINDOW)
        };
        assert_eq!(expected(None, 512, 500), Some((WINDOW, 1024 * 1024)));
        let filled = Duration::from_micros(103);
        let (rest, bytes) = expected(None, 5120, 512).unwrap();
        assert!(rest < filled && bytes <= WARM, "{rest:?} {bytes}");
        assert_eq!(expected(None, 1, 250), Some((WINDOW, 4 * 1024)));
        assert_eq!(expected(None, 1, 251), None, "slow");
        assert_eq!(expected(Some(Duration::ZERO), 512, 500), None);
    }

    #[test]
    fn who_was_told_to_wait_and_reads_at_once_rests() {
        let told = || {
            let mut pace = after_snapshots(None, 512, 500);
            pace.expect(WINDOW).unwrap();
            pace
        };
        let half = 512 * 1024;
        assert_eq!(told().rest_early(half), None, "the application has waited");
        assert_eq!(told().rest_early(half - 1), Some(WINDOW));
        let mut pace = told();
        assert!(pace.rest_early(0).is_some());
        assert_eq!(pace.rest_early(0), None, "once");
        let mut pace = told();
        assert_eq!(pace.expect(WINDOW), None, "no record has come");
        assert_eq!(pace.rest_early(0), None);
    }

    #[test]
    fn immediate_mode_rests_only_when_packets_come_fast() {
        let after = |packets: u32, microseconds: u32| {
            let mut pace = Pace::frames(4096);
            (0..packets).for_each(|packet| pace.handle_frame(at(packet * microseconds)));
            pace.rest(None)
        };
        assert_eq!(after(1, 1), None);
        assert_eq!(after(2, 50), None);
        assert_eq!(after(100, 1), Some(Duration::from_micros(500)));
    }
}
