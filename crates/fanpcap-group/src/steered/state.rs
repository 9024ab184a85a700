//! A member's loaded parts of its group's steering program, and their counters.

use super::error::SteerError;
use super::filters::Filters;
use super::{Filtering, Whole, loading};
use crate::record::{UNCHANGING, at, title_words};
use fanpcap_config::steering::{Counts, Steering};
use fanpcap_linux::bpf::{self, Loaded};
use fanpcap_linux::file::shared::Word;
use fanpcap_linux::packet::Filter;
use fanpcap_linux::wait::clock;
use fanpcap_steer::ir::COUNTERS;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// The state of a [`super::Steered`]. A thread that changes it holds its lock.
#[derive(Debug)]
pub(super) struct State {
    pub(super) steering: Arc<Steering>,
    /// The steering part, if this member has attached it to the group.
    pub(super) fanout: Option<Loaded>,
    pub(super) filters: Filters,
    /// The handle's own filter, as the kernel returned it.
    pub(super) own: Option<Filter>,
    /// Number of changes of the steering program or of the handle's own filter.
    pub(super) generation: u64,
    /// Counters of the member's former BPF programs, which have been replaced.
    pub(super) past: Counts,
    pub(super) past_late: u64,
    /// Whether this member was the last to attach the steering part.
    pub(super) has_set: bool,
    /// The counters of the group's BPF program, if an engine runs it; this BPF program steers,
    /// filters and counts.
    pub(super) whole: Option<Box<dyn Whole>>,
    /// The words of the page from [`at::DIGEST`] on.
    pub(super) words: Vec<Word>,
}

/// A member's loaded filters for the next steering program.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// `None` if the current filters fit the next steering program too.
    pub(super) filters: Option<Filters>,
    /// The member's generation when the filters were loaded.
    pub(super) generation: u64,
}

impl State {
    /// See [`Unchanging::refilter`].
    pub(super) fn refilter(
        &mut self,
        socket: BorrowedFd<'_>,
        own: Option<Filter>,
    ) -> Result<Filtering, SteerError> {
        self.generation += 1;
        if !self.steering.has_filter() {
            self.own = own;
            return Ok(Filtering::Kernel);
        }
        let both = own.as_ref().zip(self.filters.bare.as_ref());
        let load = |(own, bare)| loading::load_filter_with(&self.steering, own, bare);
        let combined = both.and_then(load);
        let before = std::mem::replace(&mut self.filters.combined, combined);
        self.own = own;
        let mut attached = self.filters.attach(socket);
        if attached.is_err() && self.filters.combined.take().is_some() {
            // Packets that the steering program drops must not reach the reader, wherever the
            // handle's filter runs.
            attached = self.filters.attach(socket);
        }
        if self.steering.counts() {
            self.retire(&[before]);
        }
        attached.map(|()| match self.filters.combined {
            Some(_) => Filtering::Kernel,
            None => Filtering::Reader,
        })
    }

    /// See [`Steered::prepare`].
    pub(super) fn prepare(
        &self,
        steering: &Steering,
        table: BorrowedFd<'_>,
    ) -> Result<Prepared, SteerError> {
        let generation = self.generation;
        if self.steering.filters_as(steering) {
            let filters = None;
            return Ok(Prepared {
                filters,
                generation,
            });
        }
        let filters = Filters::load(steering, self.own.as_ref(), table)?;
        // If the reader runs the handle's filter already, it may continue to do so. But the filter
        // must not move from the kernel to the reader.
        let is_in_kernel = self.own.is_some() && !self.filters.lack_own();
        if is_in_kernel && filters.lack_own() {
            return Err(SteerError::Beside);
        }
        Ok(Prepared {
            filters: Some(filters),
            generation,
        })
    }

    /// Adds to `past` the counters of filters that are no longer attached.
    pub(super) fn retire(&mut self, before: &[Option<Loaded>]) {
        bpf::wait_for_programs();
        for before in before.iter().flatten() {
            _ = loading::add_counters(before, &mut self.past);
        }
    }

    pub(super) fn counted(&self) -> io::Result<(Counts, u64)> {
        if let Some(whole) = &self.whole {
            return Ok(whole.counted().unwrap_or(([0; COUNTERS], 0)));
        }
        let mut counts = self.past;
        if self.steering.counts() {
            let both = [&self.filters.bare, &self.filters.combined];
            for filter in both.into_iter().flatten() {
                loading::add_counters(filter, &mut counts)?;
            }
        }
        let late = self.fanout.as_ref().map_or(Ok(0), loading::late)?;
        Ok((counts, self.past_late.saturating_add(late)))
    }

    /// Whether this member has counters that may change.
    pub(super) fn changes(&self) -> bool {
        if let Some(whole) = &self.whole {
            return whole.changes();
        }
        self.steering.counts() || self.fanout.as_ref().is_some_and(loading::counts_late)
    }

    pub(super) fn publish(&self) {
        let now = if self.changes() {
            clock::monotonic_ns()
        } else {
            UNCHANGING
        };
        if let Some(whole) = &self.whole {
            whole.tell();
            self.show(at::HAS_SET, whole.counted().is_some().into());
        }
        if let Ok((counts, late)) = self.counted() {
            for (index, count) in counts.into_iter().enumerate() {
                self.show(at::COUNTERS + index, count);
            }
            self.show(at::LATE, late);
            self.show(at::COUNTED_NS, now);
        }
    }

    /// Releases the steering part when the page says that another member has replaced it.
    pub(super) fn demote_if_replaced(&mut self) {
        if self.has_set && self.shown(at::HAS_SET) == Some(0) {
            self.demote();
        }
    }

    pub(super) fn demote(&mut self) -> u64 {
        if !self.has_set {
            return 0;
        }
        let shown = self.shown(at::LATE).unwrap_or(0);
        let late = self.counted().map_or(shown, |(_, late)| late);
        self.mark(false);
        // Closes the maps of the steering part too.
        self.fanout = None;
        self.past_late = 0;
        late
    }

    pub(super) fn mark(&mut self, has_set: bool) {
        self.has_set = has_set;
        self.show(at::HAS_SET, has_set.into());
    }

    /// Writes the steering program to the page.
    pub(super) fn show_steering(&self) {
        let title = title_words(self.steering.title());
        for (index, word) in title.into_iter().enumerate() {
            self.show(at::TITLE + index, word);
        }
        self.show(at::DIGEST, self.steering.digest());
    }

    pub(super) fn shown(&self, at: usize) -> Option<u64> {
        self.words.get(at - at::DIGEST).map(Word::get)
    }

    pub(super) fn show(&self, at: usize, value: u64) {
        if let Some(word) = self.words.get(at - at::DIGEST) {
            word.set(value);
        }
    }
}
