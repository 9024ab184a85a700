//! Counts the packets that a thread reads, and writes them to its savefile.

use std::hint;

use anyhow::Result;
use fanpcap_linux::wait::{clock, stop};
use fanpcap_pcap::{Break, Dispatched, Handle, Header, Stats};

use crate::Each;
use crate::counts::{Counts, Kernel};
use crate::savefile::Savefile;
use crate::shared::Shared;

/// Counts one thread's packets.
pub(crate) struct Counter {
    /// Counters so far.
    pub(crate) counts: Counts,
    last: Stats,
    savefile: Option<Savefile>,
    each: Option<Each>,
    work_ns: u64,
    end: Break,
}

impl Counter {
    /// `each` is another command's callback for each packet. `late_max` is the number of packets in
    /// the ring that the filter may still reject in user space.
    pub(crate) fn new(
        savefile: Option<Savefile>,
        each: Option<Each>,
        (late_max, work_ns): (u64, u64),
        end: Break,
    ) -> Self {
        let counts = Counts {
            written: savefile.as_ref().map(|it| it.written),
            late_max,
            ..Counts::default()
        };
        Self {
            counts,
            last: Stats::default(),
            savefile,
            each,
            work_ns,
            end,
        }
    }

    /// Calls pcap_dispatch(3PCAP) once.
    pub(crate) fn read(
        &mut self,
        handle: &mut Handle,
        limit: Option<u32>,
        shared: &Shared,
    ) -> Result<Dispatched> {
        let mut failed = None;
        let read = handle.dispatch(limit, |header, bytes| {
            if failed.is_some() || stop::is_insisted() || !shared.take() {
                self.end.now();
            } else if let Err(error) = self.count(header, bytes) {
                failed = Some(error);
                self.end.now();
            }
        });
        failed.map_or(Ok(read?), Err)
    }

    fn count(&mut self, header: &Header, bytes: &[u8]) -> Result<()> {
        self.counts.captured += 1;
        self.counts.bytes += u64::from(header.len);
        if let Some(savefile) = &mut self.savefile {
            savefile.write(header, bytes)?;
        }
        if let Some(each) = &mut self.each {
            each(header, bytes);
        }
        if self.work_ns > 0 {
            work(self.work_ns);
        }
        Ok(())
    }

    /// Flushes the savefile and sets the final number of written packets.
    pub(crate) fn finish(&mut self) -> Result<()> {
        let Some(savefile) = &mut self.savefile else {
            return Ok(());
        };
        let written = savefile.flush();
        self.counts.written = Some(savefile.written);
        written
    }

    /// Reads the kernel's counters and the thread's CPU time.
    pub(crate) fn ask_kernel(&mut self, handle: &mut Handle, offline: bool) -> Result<()> {
        self.counts.cpu_ns = clock::thread_cpu_ns();
        if offline {
            return Ok(());
        }
        let now = handle.stats()?;
        let kernel = self.counts.kernel.get_or_insert_with(Kernel::default);
        kernel.advance(self.last, now);
        self.last = now;
        Ok(())
    }
}

/// Uses `nanoseconds` of CPU time. On a busy machine, the call takes longer, as real work would.
fn work(nanoseconds: u64) {
    let end = clock::thread_cpu_ns() + nanoseconds;
    while clock::thread_cpu_ns() < end {
        hint::spin_loop();
    }
}
