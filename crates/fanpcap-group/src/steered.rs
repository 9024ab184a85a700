//! A member's part in its group's steering program: its loaded BPF programs and their counters.
//!
//! If the steering program has a filtering part, the member attaches this part in place of its
//! socket's filter. When it joins, the member loads the filtering part alone. When the application
//! sets a filter of the handle, the member loads the filtering part again, together with that
//! filter. By then the process may lack the privilege to load BPF programs. Then the filtering part
//! stays alone, and the reader runs the handle's filter.

mod error;
mod loading;
mod filters;
mod state;
mod hold;

use crate::record::at;
use fanpcap_config::steering::{Counts, Steering};
use fanpcap_engine::fd_store::{FdStore, StoredFd};
use fanpcap_linux::bpf::{Loaded, LoadedProgram};
use fanpcap_linux::file::shared::Word;
use fanpcap_linux::packet::{self, Filter};
use fanpcap_steer::ir::COUNTERS;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex};

pub use error::SteerError;
use filters::Filters;
pub use hold::Unchanging;
pub(crate) use loading::load_fanout;
pub(crate) use state::Prepared;
use state::State;

/// A member's part in its group's steering program, shared with the threads that publish its
/// counters.
#[derive(Debug)]
pub struct Steered(Mutex<State>);

/// The counters of a group whose BPF program steers, filters and counts. Only one member at a time
/// publishes these counters. The functions allocate and free nothing, since signal handlers call
/// them.
pub(crate) trait Whole: Send + Sync {
    /// The counters, and the late fragments; `None` when another member publishes them.
    fn counted(&self) -> Option<(Counts, u64)>;

    /// Whether the counters may change.
    fn changes(&self) -> bool;

    /// Publishes the group's other counters, if this member publishes them.
    fn tell(&self);
}

impl fmt::Debug for dyn Whole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Whole")
    }
}

/// Where a handle's own filter runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filtering {
    /// In the kernel, with the filtering part.
    Kernel,
    /// In the reader only.
    Reader,
}

impl Steered {
    /// Loads the filters of a new member, which count dropped packets in the group's `table`. `own`
    /// is the filter of the member's socket.
    pub(crate) fn load(
        steering: &Arc<Steering>,
        own: Option<Filter>,
        table: BorrowedFd<'_>,
    ) -> Result<Self, SteerError> {
        let filters = Filters::load(steering, own.as_ref(), table)?;
        if own.is_some() && filters.lack_own() {
            return Err(SteerError::Beside);
        }
        Ok(Self::with(steering, own, filters))
    }

    /// Loads the filters again: the newcomer enters a group with another table.
    pub(crate) fn load_for(&self, table: BorrowedFd<'_>) -> Result<(), SteerError> {
        let mut state = self.hold()?;
        let filters = Filters::load(&state.steering, state.own.as_ref(), table)?;
        state.filters = filters;
        Ok(())
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
            has_set: false,
            whole: None,
            words: Vec::new(),
        }))
    }

    /// Makes the part of a member that may not load BPF programs. `filter` is the filtering part
    /// that the group's founder has loaded, whose counters the founder publishes. The reader runs
    /// the handle's own filter.
    pub(crate) fn with_kept(steering: &Arc<Steering>, filter: LoadedProgram) -> Self {
        let bare = Some(Loaded::from(filter));
        let combined = None;
        Self::with(steering, None, Filters { bare, combined })
    }

    /// Puts the filtering part into the group's descriptor store, if there is one, for newcomers
    /// that may not load BPF programs.
    ///
    /// # Errors
    /// As [`FdStore::put`].
    pub(crate) fn keep_filter(&self, store: &FdStore) -> io::Result<()> {
        match self
            .try_hold()
            .as_ref()
            .and_then(|it| it.filters.bare.as_ref())
        {
            Some(filter) => store.put(StoredFd::Filter, &[filter.as_fd()]),
            None => Ok(()),
        }
    }

    /// Counts the late fragments of the steering part from now on. A newcomer attaches it later.
    pub(crate) fn count_late(&self, loaded: Loaded) {
        if let Ok(mut state) = self.hold() {
            state.fanout = Some(loaded);
            state.mark(true);
        }
    }

    /// Makes the part of a member on an engine. The BPF program that the engine runs for the group
    /// steers, filters and counts. So nothing is loaded for this member.
    pub(crate) fn unloaded(steering: &Arc<Steering>) -> Self {
        Self::with(steering, None, Filters::default())
    }

    /// Publishes the counters of the group's BPF program from now on.
    pub(crate) fn tell_of(&self, whole: Box<dyn Whole>) {
        if let Ok(mut state) = self.hold() {
            state.whole = Some(whole);
        }
    }

    /// Publishes the counters on a page from now on. `words` are the page's words from
    /// [`at::DIGEST`] on.
    pub(crate) fn publish_on(&self, words: &[Word]) {
        if let Ok(mut state) = self.hold() {
            state.words = words.to_vec();
            state.show(at::HAS_SET, state.has_set.into());
            state.publish();
        }
    }

    /// The group's steering program; `None` if the state stays locked for longer than a second.
    pub fn steering(&self) -> Option<Arc<Steering>> {
        self.hold().ok().map(|state| Arc::clone(&state.steering))
    }

    /// Attaches the steering part to the group, using the socket of any member of the group.
    pub(crate) fn set(&self, loaded: Loaded, socket: BorrowedFd<'_>) -> Result<(), SteerError> {
        let attached = packet::set_fanout_program(socket, loaded.as_fd());
        attached.map_err(SteerError::Attach)?;
        let mut state = self.hold()?;
        state.demote_if_replaced();
        let before = state.fanout.replace(loaded);
        state.past_late += before.map_or(0, |before| loading::late(&before).unwrap_or(0));
        state.mark(true);
        Ok(())
    }

    /// Notes that another member has attached its steering part in place of this member's. Returns
    /// the late fragments that this member counted until then; the other member adds them to its
    /// own.
    pub(crate) fn demote(&self) -> u64 {
        self.hold().map_or(0, |mut state| {
            state.demote_if_replaced();
            state.demote()
        })
    }

    /// Adds the late fragments that were counted by members which had attached the steering part
    /// earlier.
    pub(crate) fn take_over(&self, late: u64) {
        if let Ok(mut state) = self.hold() {
            state.past_late = state.past_late.saturating_add(late);
        }
    }

    /// If the steering program has a filtering part, attaches it in place of the socket's filter.
    pub(crate) fn attach(&self, socket: BorrowedFd<'_>) -> Result<(), SteerError> {
        self.hold()?.filters.attach(socket)
    }

    /// The counters of the member's BPF programs, and the late fragments.
    pub fn counted(&self) -> Option<(Counts, u64)> {
        self.try_hold()?.counted().ok()
    }

    /// Updates the counters on the page. This is not for signal handlers, because it may close
    /// descriptors and free memory.
    pub fn publish(&self) {
        if let Some(mut state) = self.try_hold() {
            state.demote_if_replaced();
            state.publish();
        }
    }

    /// Updates the counters on the page, for signal handlers: never waits, allocates or frees.
    pub fn publish_at_once(&self) {
        if let Some(state) = self.try_hold() {
            state.publish();
        }
    }

    /// Whether the counters change even while the member receives no packets: some counters count
    /// dropped packets, or fragments for other members.
    pub fn goes_on(&self) -> bool {
        // If another thread holds the state, that thread may be about to change it. So the answer
        // is then true.
        self.try_hold().is_none_or(|state| state.changes())
    }

    /// Lets the kernel truncate packets by the filter `keep`, unless the handle has a filter of its
    /// own.
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

    /// Loads this member's filters for another steering program.
    pub(crate) fn prepare(
        &self,
        steering: &Steering,
        table: BorrowedFd<'_>,
    ) -> Result<Prepared, SteerError> {
        self.hold()?.prepare(steering, table)
    }

    /// Changes to another steering program, with its loaded filters. `table` is the group's table.
    pub(crate) fn switch_to(
        &self,
        steering: &Arc<Steering>,
        prepared: Prepared,
        [socket, table]: [BorrowedFd<'_>; 2],
    ) -> Result<(), SteerError> {
        let mut state = self.hold()?;
        // If the application has set a filter since `prepared` was loaded, `prepared` lacks this
        // filter and can't be used.
        let prepared = match state.generation == prepared.generation {
            true => prepared,
            false => state.prepare(steering, table)?,
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
        // The group has the new steering program already. So publish it even if attaching the
        // filter failed.
        state.show_steering();
        state.publish();
        done
    }
}

#[cfg(test)]
pub(super) mod tests;
