//! A measure of a poller that always finds packets. DPDK's device `net_null0` takes buffers from
//! its pool and delivers them as they are. The poller has written a frame into each of them before.
//! So no generator takes CPU time: the poller's thread has one core, and all readers the other.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fanpcap_linux::wait::clock;
use fanpcap_poll::message::{Question, Reply, SeenGroup};
use fanpcap_poll::{Asking, place};
use fanpcap_testbed::Member;
use serde::Deserialize;

use crate::bench::Bench;
use crate::column::Column;
use crate::cores::{Cores, Occupant};
use crate::cpu;
use crate::figure::{Figure, Sample};
use crate::libraries::{Side, Source};
use crate::pause::pause;
use crate::poller::Poller;
use crate::reader::{self, ReaderReport, Seat, Settings, Work};
use crate::refusal::{Counters, Refusal};
use crate::trial::{GRACE, SETTLE};
use crate::wire::Arrived;

/// The device, as its poller opens it and as members name it.
const ENGINE: &str = "dpdk";
const DEVICE: &str = "net_null0";

const SIDE: Side = Side::Poller(Source::Dpdk);

/// How long the poller may take for a reply. The thread that replies shares its CPU with the thread
/// that polls.
const LIMIT: Duration = Duration::from_secs(5);

/// A poller with frames of this length.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Filled {
    len: u16,
}

/// What becomes of the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// The group is stopped: the poller takes packets from the device, and leaves them out.
    Source,
    /// The reader is stopped, so its ring is full: packets are steered, and not copied.
    Steered,
    /// Packets go to all readers.
    Whole,
}

impl Filled {
    pub(super) fn run(&self, bench: &Bench, column: &Column) -> Result<Result<Sample, Refusal>> {
        let part = match column.key {
            "source" => Part::Source,
            "steered" => Part::Steered,
            _ => Part::Whole,
        };
        let poller = Poller::of_buffers(bench, DEVICE, self.len)?;
        let mut running = Running::start(bench, &column.seats)?;
        running.prepare(part)?;
        pause(SETTLE)?;
        let mut occupants = running.occupants(bench);
        occupants.extend(poller.occupant());
        let cores = Cores::watch(bench, &occupants)?;
        let before = running.look(&poller)?;
        pause(bench.time)?;
        let during = running.look(&poller)?.since(before);
        let undisturbed = cores.undisturbed_by(&[], false)?;
        let accepted = running.end(bench, part, poller)?;
        Ok(accepted.and(undisturbed).map(|()| during.sample(part)))
    }
}

/// The readers, and a connection to their poller.
struct Running {
    readers: Vec<(Member, Seat)>,
    asking: Asking,
}

impl Running {
    /// Starts a reader on each seat, one after the other.
    fn start(bench: &Bench, seats: &[Seat]) -> Result<Self> {
        // The socket is that of the namespace.
        let asking = bench.wire.at_far(|| {
            let found = place::open(ENGINE, DEVICE)?;
            Ok(Asking::connect(&found.directory, &found.name, LIMIT)?)
        });
        let device = format!("{ENGINE}:{DEVICE}");
        let start = |seat: &Seat| {
            let program = bench.reader_at(&device, SIDE, Settings::default(), Work::Count);
            let (group, mode) = seat.fanout.context("a seat without a group")?;
            let program = program.group(group, mode);
            Ok((bench.wire.at_far(|| program.start(&bench.scratch))?, *seat))
        };
        Ok(Self {
            readers: seats.iter().map(start).collect::<Result<_>>()?,
            asking: asking.context("the poller's socket")?,
        })
    }

    /// Stops what a part of the poller's work does without.
    fn prepare(&mut self, part: Part) -> Result<()> {
        match part {
            Part::Source => self.stop_groups(),
            Part::Steered => self.signal("STOP"),
            Part::Whole => Ok(()),
        }
    }

    fn signal(&self, signal: &str) -> Result<()> {
        self.readers
            .iter()
            .try_for_each(|(it, _)| it.signal(signal))
    }

    /// Gives the groups no more packets, as long as the connection to the poller is open.
    fn stop_groups(&mut self) -> Result<()> {
        let mut groups: Vec<u16> = self.readers.iter().filter_map(|it| it.1.group()).collect();
        groups.dedup();
        for group in groups {
            let reply = self.asking.ask(Question::Stop(group))?;
            ensure!(reply == Reply::Done, "group {group}: {reply:?}");
        }
        Ok(())
    }

    fn occupants(&self, bench: &Bench) -> Vec<Occupant> {
        let occupant = |(reader, seat): &(Member, Seat)| Occupant {
            pid: reader.pid(),
            cpu: bench.cpu(seat.place),
        };
        self.readers.iter().map(occupant).collect()
    }

    /// What poller and readers have done so far.
    fn look(&mut self, poller: &Poller) -> Result<Look> {
        let groups = self.asking.groups().context("the poller's groups")?;
        let readers = self.readers.iter();
        let readers = readers.map(|(it, _)| cpu::of_all_threads(it.pid()));
        Ok(Look {
            at: Duration::from_nanos(clock::monotonic_ns()),
            poller: poller.used()?,
            readers: readers.sum::<Result<_>>()?,
            counts: Counts::of(&groups),
        })
    }

    /// Ends the readers after they have read their rings to the end, and the poller after them.
    /// Refuses the run if the readers' counts and the poller's differ.
    fn end(mut self, bench: &Bench, part: Part, poller: Poller) -> Result<Result<(), Refusal>> {
        self.stop_groups()?;
        if part == Part::Steered {
            self.signal("CONT")?;
        }
        pause(GRACE)?;
        let counts = Counts::of(&self.asking.groups().context("the poller's groups")?);
        self.signal("TERM")?;
        let told = self.readers.into_iter();
        let told = told.map(|(it, _)| reader::told(&it.wait()?, SIDE, bench.libraries()));
        let told = told.collect::<Result<Vec<_>>>()?;
        poller.end()?;
        let sent = counts.produced + counts.dropped;
        let arrived = Arrived {
            received: sent,
            dropped: 0,
        };
        let tally = told.iter().map(ReaderReport::tally).sum();
        Ok(Counters::new(sent, arrived, tally).agree())
    }
}

/// Counts of a poller. Those of groups are sums.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    /// Packets that came from the device.
    source: u64,
    /// Packets put into rings.
    produced: u64,
    /// Packets for which a ring had no room.
    dropped: u64,
}

impl Counts {
    fn of(groups: &[SeenGroup]) -> Self {
        Self {
            source: groups.first().map_or(0, |it| it.source[0]),
            produced: groups.iter().map(|it| it.ledger.produced).sum(),
            dropped: groups.iter().map(|it| it.ledger.dropped).sum(),
        }
    }
}

/// What poller and readers have done until a time, or between two times.
#[derive(Clone, Copy, Debug)]
struct Look {
    at: Duration,
    /// CPU time.
    poller: Duration,
    /// CPU time of all readers.
    readers: Duration,
    counts: Counts,
}

impl Look {
    fn since(self, before: Self) -> Self {
        Self {
            at: self.at - before.at,
            poller: self.poller.saturating_sub(before.poller),
            readers: self.readers.saturating_sub(before.readers),
            counts: Counts {
                source: self.counts.source - before.counts.source,
                produced: self.counts.produced - before.counts.produced,
                dropped: self.counts.dropped - before.counts.dropped,
            },
        }
    }

    fn sample(self, part: Part) -> Sample {
        let Counts {
            source,
            produced,
            dropped,
        } = self.counts;
        let per_second = |packets: u64| packets as f64 / self.at.as_secs_f64();
        let each = |time: Duration, packets: u64| time.as_nanos() as f64 / packets as f64;
        let mut sample = Sample::from([
            (Figure::SentPps, per_second(source)),
            (Figure::PollerNs, each(self.poller, source)),
        ]);
        if part == Part::Whole {
            let offered = (produced + dropped) as f64;
            sample.extend([
                (Figure::CapturedPps, per_second(produced)),
                (Figure::CapturedShare, 100.0 * produced as f64 / offered),
                (Figure::ApplicationDropped, dropped as f64),
                (Figure::ReaderNs, each(self.readers, produced)),
            ]);
        }
        sample
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_of_the_time_between_two_looks() {
        let look = |at, cpu, source, produced| Look {
            at: Duration::from_millis(at),
            poller: Duration::from_millis(cpu),
            readers: Duration::from_millis(cpu / 2),
            counts: Counts {
                source,
                produced,
                dropped: source / 10,
            },
        };
        let during = look(3000, 2000, 3000, 5400).since(look(1000, 0, 1000, 1800));
        let sample = during.sample(Part::Whole);
        assert_eq!(sample[&Figure::SentPps], 1000.0);
        assert_eq!(sample[&Figure::CapturedPps], 1800.0);
        assert_eq!(sample[&Figure::PollerNs], 1e6);
        assert_eq!(sample[&Figure::ApplicationDropped], 200.0);
        assert_eq!(sample[&Figure::CapturedShare], 100.0 * 3600.0 / 3800.0);
        assert_eq!(during.sample(Part::Source).len(), 2);
    }
}
