//! A member's part in its group's program: what it has loaded of it, and what that has counted.
//!
//! A member whose program drops or counts has it in its filter's place, together with the filter
//! that the handle has itself. It is loaded twice: by itself when the member joins, and with the
//! handle's own filter when that is set. By then the process may have dropped the privilege to load
//! programs; then what was loaded first is enough, and the reader filters.

mod error;
mod loading;
mod filters;
mod hold;

use crate::record::{SET, SET_BY_US, UNCHANGING, at, title_words};
use fanpcap_config::steering::{Counts, Steering};
use fanpcap_linux::bpf::Loaded;
use fanpcap_linux::file::shared::Word;
use fanpcap_linux::packet::{self, Filter};
use fanpcap_linux::wait::clock;
use fanpcap_steer::ir::COUNTERS;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

pub use error::SteerError;
use filters::Filters;
pub use hold::Unchanging;
pub(crate) use loading::load_fanout;

/// What a member has of the program, shared with whoever publishes its counters.
#[derive(Debug)]
pub struct Steered(Mutex<State>);

#[derive(Debug)]
struct State {
    steering: Arc<Steering>,
    /// What this member has given the group.
    fanout: Option<Loaded>,
    filters: Filters,
    /// The handle's own filter, as the kernel had it.
    own: Option<Filter>,
    /// How often the program or the handle's own filter has changed.
    generation: u64,
    /// What programs counted that are gone.
    past: Counts,
    past_late: u64,
    /// What is known of the group's program: 0, [`SET`] or [`SET_BY_US`].
    set: u64,
    /// The page from the program's digest on.
    words: Vec<Word>,
}

/// Where a handle's own filter is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filtering {
    /// In the kernel, with the program.
    Kernel,
    /// Not in the kernel: whoever reads must do it.
    Reader,
}

impl Steered {
    /// For a member of a group with this program, on a socket that has this filter.
    pub(crate) fn load(steering: &Arc<Steering>, own: Option<Filter>) -> Result<Self, SteerError> {
        let filters = Filters::load(steering, own.as_ref())?;
        if own.is_some() && filters.lack_own() {
            return Err(SteerError::Beside);
        }
        Ok(Self::with(steering, own, filters))
    }

    fn with(steering: &Arc<Steering>, own: Option<Filter>, filters: Filters) -> Self {
        Self(Mutex::new(State {
            filters,
            steering: Arc::clone(steering),
            fanout: None,
            own,
            generation: 0,
            past: [0; COUNTERS],
            past_late: 0,
            set: 0,
            words: Vec::new(),
        }))
    }

    /// For tests: nothing is loaded.
    #[cfg(test)]
    pub(crate) fn unloaded(steering: &Arc<Steering>) -> Self {
        Self::with(steering, None, Filters::default())
    }

    /// Publishes on a page from now on, given from the program's digest on.
    pub(crate) fn publish_on(&self, words: &[Word]) {
        if let Ok(mut state) = self.hold() {
            state.words = words.to_vec();
            state.show(at::IS_SET, state.set);
            state.publish();
        }
    }

    /// The program.
    pub fn steering(&self) -> Option<Arc<Steering>> {
        self.hold().ok().map(|state| Arc::clone(&state.steering))
    }

    /// Gives the group its program, by any member's socket.
    pub(crate) fn set(&self, loaded: Loaded, socket: BorrowedFd<'_>) -> Result<(), SteerError> {
        let attached = packet::set_fanout_program(socket, loaded.as_fd());
        attached.map_err(SteerError::Attach)?;
        let mut state = self.hold()?;
        state.heed();
        let before = state.fanout.replace(loaded);
        state.past_late += before.map_or(0, |before| loading::late(&before).unwrap_or(0));
        state.mark(SET_BY_US);
        Ok(())
    }

    /// Another member has given the group its program since. Returns the late fragments that this
    /// one knows of: they are the other's to tell.
    pub(crate) fn demote(&self) -> u64 {
        self.hold().map_or(0, |mut state| {
            state.heed();
            state.demote()
        })
    }

    /// Takes over what members knew of late fragments that had set the program before.
    pub(crate) fn inherit(&self, late: u64) {
        if let Ok(mut state) = self.hold() {
            state.past_late = state.past_late.saturating_add(late);
        }
    }

    /// The group is known to have the program.
    pub(crate) fn mark_as_set(&self) {
        if let Ok(mut state) = self.hold() {
            state.mark(SET);
        }
    }

    /// Whether another program than this may steer the group: its members tell nothing.
    pub fn is_unknown(&self) -> bool {
        self.hold().is_ok_and(|state| state.set == 0)
    }

    /// Puts what drops and counts into the filter's place, where there is such a thing.
    pub(crate) fn attach(&self, socket: BorrowedFd<'_>) -> Result<(), SteerError> {
        self.hold()?.filters.attach(socket)
    }

    /// What the member's copies of the program have counted, and the late fragments that they met.
    pub fn counted(&self) -> Option<(Counts, u64)> {
        self.try_hold()?.counted().ok()
    }

    /// Brings the counters on the page up to date. It may close and free what is gone, so it is not
    /// for signal handlers.
    pub fn publish(&self) {
        if let Some(mut state) = self.try_hold() {
            state.heed();
            state.publish();
        }
    }

    /// The same for signal handlers: nothing is waited for, allocated or freed.
    pub fn publish_at_once(&self) {
        if let Some(state) = self.try_hold() {
            state.publish();
        }
    }

    /// Whether its counters change also while nothing comes to the member: those of packets that
    /// are dropped, and of fragments that come to others.
    pub fn goes_on(&self) -> bool {
        // Who has it locked may be about to change it.
        self.try_hold().is_none_or(|state| state.changes())
    }

    /// The kernel cuts packets by this filter from now on, unless the handle has one itself.
    ///
    /// # Errors
    /// See [`Unchanging::refilter`].
    pub fn truncate(&self, socket: BorrowedFd<'_>, keep: Filter) -> Result<(), SteerError> {
        let mut state = self.hold()?;
        if state.own.is_some() {
            return Ok(());
        }
        if !state.steering.has_filter() {
            keep.attach(socket).map_err(SteerError::Attach)?;
        }
        state.refilter(socket, Some(keep)).map(drop)
    }

    /// Loads the filters by another program, for this member.
    pub(crate) fn prepare(&self, steering: &Steering) -> Result<Prepared, SteerError> {
        self.hold()?.prepare(steering)
    }

    /// Goes over to another program, for which the filters are loaded.
    pub(crate) fn go_over(
        &self,
        steering: &Arc<Steering>,
        prepared: Prepared,
        socket: BorrowedFd<'_>,
    ) -> Result<(), SteerError> {
        let mut state = self.hold()?;
        // A filter that was set since is not in what was loaded.
        let prepared = match state.generation == prepared.generation {
            true => prepared,
            false => state.prepare(steering)?,
        };
        state.generation += 1;
        let before = std::mem::replace(&mut state.steering, Arc::clone(steering));
        let mut done = Ok(());
        if let Some(filters) = prepared.filters {
            let had = std::mem::replace(&mut state.filters, filters);
            done = match (steering.has_filter(), state.own.as_mut()) {
                (true, _) => state.filters.attach(socket),
                (false, Some(own)) => own.attach(socket).map_err(SteerError::Attach),
                (false, None) if before.has_filter() => {
                    packet::detach_filter(socket).map_err(SteerError::Attach)
                }
                (false, None) => Ok(()),
            };
            if before.counts() {
                state.retire(&[had.bare, had.combined]);
            }
        }
        // The group has the program by now, come what may.
        state.tell();
        state.publish();
        done
    }
}

/// What a member has of a program that is to come.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// Its filters by it; none where the old ones do.
    filters: Option<Filters>,
    /// The member's generation when they were loaded.
    generation: u64,
}

impl State {
    /// See [`Unchanging::refilter`].
    fn refilter(
        &mut self,
        socket: BorrowedFd<'_>,
        own: Option<Filter>,
    ) -> Result<Filtering, SteerError> {
        self.generation += 1;
        if !self.steering.has_filter() {
            self.own = own;
            return Ok(Filtering::Kernel);
        }
        let load = |own| loading::load_filter_with(&self.steering, own);
        let combined = own.as_ref().and_then(load);
        let before = std::mem::replace(&mut self.filters.combined, combined);
        self.own = own;
        let mut attached = self.filters.attach(socket);
        if attached.is_err() && self.filters.combined.take().is_some() {
            // What the program drops has to stay away, whoever runs the handle's filter.
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
    fn prepare(&self, steering: &Steering) -> Result<Prepared, SteerError> {
        let generation = self.generation;
        if self.steering.filters_as(steering) {
            let filters = None;
            return Ok(Prepared {
                filters,
                generation,
            });
        }
        let filters = Filters::load(steering, self.own.as_ref())?;
        // Where the reader runs the handle's filter already, it goes on.
        let is_in_kernel = self.own.is_some() && !self.filters.lack_own();
        if is_in_kernel && filters.lack_own() {
            return Err(SteerError::Beside);
        }
        Ok(Prepared {
            filters: Some(filters),
            generation,
        })
    }

    /// Takes over what filters have counted that are no longer attached.
    fn retire(&mut self, before: &[Option<Loaded>]) {
        if packet::await_packets_in_flight().is_err() {
            thread::sleep(IN_FLIGHT);
        }
        for before in before.iter().flatten() {
            _ = loading::add_counters(before, &mut self.past);
        }
    }

    fn counted(&self) -> io::Result<(Counts, u64)> {
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

    /// Whether it has counters that may change.
    fn changes(&self) -> bool {
        self.steering.counts() || self.fanout.as_ref().is_some_and(loading::counts_late)
    }

    fn publish(&self) {
        let now = if self.changes() {
            clock::monotonic_ns()
        } else {
            UNCHANGING
        };
        if let Ok((counts, late)) = self.counted() {
            for (index, count) in counts.into_iter().enumerate() {
                self.show(at::COUNTERS + index, count);
            }
            self.show(at::LATE, late);
            self.show(at::COUNTED_NS, now);
        }
    }

    /// Lets go of what this member gave the group when its page says that another has replaced it.
    fn heed(&mut self) {
        if self.set == SET_BY_US && self.shown(at::IS_SET) == Some(SET) {
            self.demote();
        }
    }

    fn demote(&mut self) -> u64 {
        if self.set != SET_BY_US {
            return 0;
        }
        let shown = self.shown(at::LATE).unwrap_or(0);
        let late = self.counted().map_or(shown, |(_, late)| late);
        self.mark(SET);
        // Its maps go with it.
        self.fanout = None;
        self.past_late = 0;
        late
    }

    fn mark(&mut self, set: u64) {
        self.set = set;
        self.show(at::IS_SET, set);
    }

    /// Shows the program on the page.
    fn tell(&self) {
        let title = title_words(self.steering.title());
        for (index, word) in title.into_iter().enumerate() {
            self.show(at::TITLE + index, word);
        }
        self.show(at::DIGEST, self.steering.digest());
    }

    fn shown(&self, at: usize) -> Option<u64> {
        self.words.get(at - at::DIGEST).map(Word::get)
    }

    fn show(&self, at: usize, value: u64) {
        if let Some(word) = self.words.get(at - at::DIGEST) {
            word.set(value);
        }
    }
}

/// How long packets on their way take at most, where the kernel can't tell when they have arrived.
const IN_FLIGHT: Duration = Duration::from_millis(50);

#[cfg(test)]
pub(super) mod tests;
