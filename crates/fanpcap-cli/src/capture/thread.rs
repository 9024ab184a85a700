//! One thread: reads its handle, counts, writes, and tells the others when asked.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result};
use fanpcap_linux::process::cpu;
use fanpcap_linux::wait::{clock, stop};
use fanpcap_pcap::{Dispatched, Handle};

use super::counter::Counter;
use super::counts::Counts;
use super::savefile::Savefile;
use super::shared::Shared;

/// A thread's own.
pub(super) struct Reader {
    /// Its number.
    pub(super) number: usize,
    /// What it reads.
    pub(super) handle: Handle,
    /// Whether that is a savefile.
    pub(super) offline: bool,
    /// Where it runs.
    pub(super) cpu: Option<usize>,
    /// Where it writes.
    pub(super) savefile: Option<Savefile>,
    /// Packets that the filter may reject after the kernel has let them through.
    pub(super) late_max: u64,
    /// CPU time to spend on each packet.
    pub(super) work_ns: u64,
    /// How long the kernel holds packets back.
    pub(super) timeout: Duration,
}

/// What a thread leaves. Its handle is open, so that it is a member of the group still.
pub(super) struct Done {
    /// What it has read from.
    pub(super) handle: Handle,
    /// Its last counters.
    pub(super) counts: Counts,
    /// What ended it before its time.
    pub(super) failed: Option<Error>,
}

/// Whatever ends a thread ends all.
struct EndsAll;

impl Drop for EndsAll {
    fn drop(&mut self) {
        stop::request();
    }
}

impl Reader {
    /// Reads until somebody asks for the end.
    pub(super) fn run(mut self, shared: &Shared) -> Done {
        let _ends_all = EndsAll;
        let (savefile, end) = (self.savefile.take(), self.handle.breaker());
        let mut counter = Counter::new(savefile, self.late_max, self.work_ns, end);
        let read = self.read(&mut counter, shared);
        if read.is_err() {
            // The counters of a thread that failed are worth knowing, where there are any.
            let _ = counter.ask_kernel(&mut self.handle, self.offline);
        }
        let written = counter.finish();
        self.tell_counts(counter.counts, shared, u64::MAX);
        let failed = read.and(written).err();
        Done {
            counts: counter.counts,
            failed: failed.map(|error| error.context(format!("thread {}", self.number))),
            handle: self.handle,
        }
    }

    fn read(&mut self, counter: &mut Counter, shared: &Shared) -> Result<()> {
        if let Some(cpu) = self.cpu {
            cpu::pin(cpu).with_context(|| format!("CPU {cpu}"))?;
        }
        let mut round = 0;
        while !stop::is_requested() {
            let read = counter.read(&mut self.handle, None, shared)?;
            if self.offline && read == Dispatched::Packets(0) {
                break;
            }
            let asked = shared.round();
            if asked > round {
                round = asked;
                self.tell(counter, shared, round)?;
            }
        }
        self.finish(counter, shared)
    }

    fn tell(&mut self, counter: &mut Counter, shared: &Shared, round: u64) -> Result<()> {
        counter.ask_kernel(&mut self.handle, self.offline)?;
        self.tell_counts(counter.counts, shared, round);
        Ok(())
    }

    fn tell_counts(&self, counts: Counts, shared: &Shared, round: u64) {
        shared.tell(self.number, round, counts);
    }

    /// Reads the kernel's counters for the last time, and what is in the ring by then: as many
    /// packets as these say, so that the counters agree. When the packets were limited the rest
    /// stays where it is.
    fn finish(&mut self, counter: &mut Counter, shared: &Shared) -> Result<()> {
        counter.ask_kernel(&mut self.handle, self.offline)?;
        if !self.offline {
            counter.counts.read_to_end = self.drain(counter, shared)?;
        }
        counter.counts.cpu_ns = clock::thread_cpu_ns();
        Ok(())
    }

    /// Reads what is in the ring; false when that was given up. The kernel hands over a block that
    /// is not full after one to two times the timeout, which may be longer than anybody wants to
    /// wait.
    fn drain(&mut self, counter: &mut Counter, shared: &Shared) -> Result<bool> {
        self.handle.set_nonblock(true)?;
        let handed_over = self.timeout.saturating_mul(3);
        let mut empty: Option<Instant> = None;
        loop {
            let left = counter.counts.left();
            let Some(left @ 1..) = left.and_then(|left| u32::try_from(left).ok()) else {
                return Ok(true);
            };
            if shared.is_used_up() || stop::is_insisted() {
                return Ok(false);
            }
            match counter.read(&mut self.handle, Some(left), shared)? {
                Dispatched::Packets(0) => {
                    let waited = empty.get_or_insert_with(Instant::now).elapsed();
                    if waited >= handed_over {
                        return Ok(true);
                    }
                    if waited >= LONGEST {
                        return Ok(false);
                    }
                    thread::sleep(PAUSE);
                }
                Dispatched::Packets(_) => empty = None,
                Dispatched::Broken => {}
            }
        }
    }
}

/// How long an empty ring is waited for at the end.
const LONGEST: Duration = Duration::from_secs(1);
/// Between two looks at it.
const PAUSE: Duration = Duration::from_millis(10);
