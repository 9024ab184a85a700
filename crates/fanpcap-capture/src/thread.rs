//! One thread: reads its handle, counts, writes, and answers requests for its counters.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result};
use fanpcap_linux::process::cpu;
use fanpcap_linux::wait::{clock, stop};
use fanpcap_pcap::{Dispatched, Handle};

use crate::counter::Counter;
use crate::counts::Counts;
use crate::shared::{BEGIN, Shared};

/// State of one thread.
pub struct Reader {
    /// The thread's number.
    pub number: usize,
    /// The handle that the thread reads.
    pub handle: Handle,
    /// Whether the handle reads a savefile.
    pub offline: bool,
    /// The CPU on which the thread runs; `None` if the kernel chooses the CPU.
    pub cpu: Option<usize>,
    /// Counts the packets that the thread reads.
    pub(crate) counter: Counter,
    /// Longest time that the kernel holds packets back.
    pub timeout: Duration,
}

/// A thread's result. Its handle is still open, so it is still a member of the group.
pub struct Done {
    /// The handle that the thread has read.
    pub handle: Handle,
    /// The thread's last counters.
    pub counts: Counts,
    /// The error that ended the thread early.
    pub failed: Option<Error>,
}

/// Ends all threads when dropped: the end of one thread ends the capture.
struct EndsAll;

impl Drop for EndsAll {
    fn drop(&mut self) {
        stop::request();
    }
}

impl Reader {
    /// Reads until the capture ends.
    pub(crate) fn run(mut self, shared: &Shared) -> Done {
        let _ends_all = EndsAll;
        let read = self.read(shared);
        if read.is_err() {
            // Report the counters of a failed thread too, if the kernel still returns them.
            let _ = self.counter.ask_kernel(&mut self.handle, self.offline);
        }
        let written = self.counter.finish();
        shared.tell(self.number, u64::MAX, self.counter.counts);
        let failed = read.and(written).err();
        Done {
            counts: self.counter.counts,
            failed: failed.map(|error| error.context(format!("thread {}", self.number))),
            handle: self.handle,
        }
    }

    fn read(&mut self, shared: &Shared) -> Result<()> {
        if let Some(cpu) = self.cpu {
            cpu::pin(cpu).with_context(|| format!("CPU {cpu}"))?;
        }
        self.begin(shared)?;
        let mut round = BEGIN;
        while !stop::is_requested() {
            let read = self.counter.read(&mut self.handle, None, shared)?;
            if self.offline && read == Dispatched::Packets(0) {
                break;
            }
            let asked = shared.round();
            if asked > round {
                round = asked;
                self.counter.ask_kernel(&mut self.handle, self.offline)?;
                shared.tell(self.number, round, self.counter.counts);
            }
        }
        self.finish(shared)
    }

    /// Reads without a wait. With this read, the thread gets its share of the group's packets.
    fn begin(&mut self, shared: &Shared) -> Result<()> {
        if !self.offline {
            self.handle.set_nonblock(true)?;
            self.counter.read(&mut self.handle, None, shared)?;
            self.handle.set_nonblock(false)?;
        }
        shared.tell(self.number, BEGIN, self.counter.counts);
        Ok(())
    }

    /// Reads the kernel's counters for the last time. Then reads as many packets from the ring as
    /// these counters say, so that the counters add up. If the limit on packets is reached, the
    /// remaining packets stay in the ring.
    fn finish(&mut self, shared: &Shared) -> Result<()> {
        self.counter.ask_kernel(&mut self.handle, self.offline)?;
        if !self.offline {
            self.counter.counts.read_to_end = self.drain(shared)?;
        }
        self.counter.counts.cpu_ns = clock::thread_cpu_ns();
        Ok(())
    }

    /// Reads the ring to its end. Returns false if the thread gives up, so that packets may be left
    /// in the ring. The kernel passes on a block that is not full only after one or two timeouts,
    /// and a timeout may be very long.
    fn drain(&mut self, shared: &Shared) -> Result<bool> {
        self.handle.set_nonblock(true)?;
        let handed_over = self.timeout.saturating_mul(3);
        let mut empty: Option<Instant> = None;
        loop {
            let left = self.counter.counts.left();
            let Some(left @ 1..) = left.and_then(|left| u32::try_from(left).ok()) else {
                return Ok(true);
            };
            if shared.is_used_up() || stop::is_insisted() {
                return Ok(false);
            }
            match self.counter.read(&mut self.handle, Some(left), shared)? {
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

/// How long an ending thread waits at most for more packets in an empty ring.
const LONGEST: Duration = Duration::from_secs(1);
/// Pause between two reads of the ring.
const PAUSE: Duration = Duration::from_millis(10);
