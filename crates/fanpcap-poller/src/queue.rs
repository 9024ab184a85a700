//! The thread of a receive queue: takes packets from its source, writes them into pools, and wakes
//! members. Another thread changes the queue's groups and members between two bursts.

use crate::fan_out::{FanOut, MemberSlot};
use crate::group::{Dismissed, Wants};
use crate::shared::Shared;
use crate::sleep::{LONGEST, Sleep};
use crate::source::{Source, SourceCounts, SourceError};
use fanpcap_linux::wait::{Wake, clock};
use fanpcap_ring::pool::{LaneWriter, PoolCounts};
use std::collections::BTreeMap;
use std::hint;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// What the thread does while no packets come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// It asks the source again and again: the least delay, and a whole CPU.
    Spin,
    /// It sleeps until the source's descriptor is readable, or for short times if the source has no
    /// descriptor.
    Sleep,
}

/// How many bursts without packets come before the thread sleeps.
const BEFORE_SLEEP: u32 = 64;

/// The time between two checks of an idle source, and between two looks at what a source has
/// dropped.
const CHECK: Duration = LONGEST;

/// What the thread has. Other threads change it by [`Queue::change`].
pub struct Polled {
    /// The groups and the members' pools.
    pub fan_out: FanOut,
    source: Box<dyn Source + Send>,
    /// What is shared with members: it is dropped after their pools' mappings.
    shared: BTreeMap<MemberSlot, Shared>,
    state: Result<(), SourceError>,
    is_over: bool,
}

impl Polled {
    /// Directs a slot's packets into a pool, and wakes its member. `shared` has the pool.
    /// Returns what the slot's former member had. Whoever drops the result frees its memory.
    ///
    /// # Errors
    /// The writer, if there is no such group.
    pub fn admit(
        &mut self,
        at: MemberSlot,
        writer: LaneWriter,
        wants: Wants,
        shared: Shared,
    ) -> Result<Option<LeftSlot>, LaneWriter> {
        let former = self.fan_out.admit(at, writer, wants)?;
        let shared = self.shared.insert(at, shared);
        // From here on, the source's drops are the member's, too.
        self.note_missed();
        Ok(former.map(|pool| LeftSlot::of(pool, shared)))
    }

    /// Shows the members what the source has dropped.
    fn note_missed(&mut self) {
        let missed = self.source.counts().dropped;
        self.fan_out.note_missed(missed);
    }

    /// Removes a slot's pool. Wakes the member first, so that it reads the last packets. Whoever
    /// drops the result unmaps the pool.
    pub fn dismiss(&mut self, at: MemberSlot) -> Option<LeftSlot> {
        let pool = self.fan_out.dismiss(at)?;
        Some(LeftSlot::of(pool, self.shared.remove(&at)))
    }

    /// The source's counts, and why no packets come, if the source has said so.
    pub fn state(&mut self) -> (SourceCounts, Result<(), &SourceError>) {
        (self.source.counts(), self.state.as_ref().map(|&()| ()))
    }

    /// Takes no more packets, so that the counts are the last ones.
    pub fn finish(&mut self) {
        self.is_over = true;
    }

    /// Sends a frame. See [`Source::transmit`].
    ///
    /// # Errors
    /// As [`Source::transmit`].
    pub fn transmit(&mut self, frame: &[u8]) -> io::Result<bool> {
        self.source.transmit(frame)
    }

    fn poll(&mut self, now_ns: u64) -> usize {
        if self.is_over {
            return 0;
        }
        let Self {
            fan_out,
            source,
            shared,
            ..
        } = self;
        let mut wake = |at| {
            if let Some(shared) = shared.get(&at) {
                shared.ring();
            }
        };
        match fan_out.poll(&mut **source, now_ns, &mut wake) {
            Ok(count) => {
                if count > 0 {
                    self.state = Ok(());
                }
                count
            }
            Err(error) => {
                self.state = Err(error);
                0
            }
        }
    }
}

/// What a slot's member had in the queue.
#[derive(Debug)]
pub struct LeftSlot {
    pool: Dismissed,
    _shared: Option<Shared>,
}

impl LeftSlot {
    fn of(pool: Dismissed, shared: Option<Shared>) -> Self {
        if let Some(shared) = &shared {
            shared.ring();
        }
        Self {
            pool,
            _shared: shared,
        }
    }

    /// The pool's final counts in the queue.
    pub fn counts(&self) -> PoolCounts {
        self.pool.counts()
    }
}

type Change = Box<dyn FnOnce(&mut Polled) + Send>;

/// The thread of a receive queue, which ends when this value is dropped.
#[derive(Debug)]
pub struct Queue {
    changes: Option<Sender<Change>>,
    wake: Arc<Wake>,
    thread: Option<JoinHandle<()>>,
}

impl Queue {
    /// Starts the thread of a source. `prepare` runs in the thread first, such as to pin it to a
    /// CPU.
    ///
    /// # Errors
    /// The errors of eventfd(2) and of pthread_create(3).
    pub fn start(
        source: Box<dyn Source + Send>,
        idle: Idle,
        prepare: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        let (changes, receiver) = mpsc::channel();
        let wake = Arc::new(Wake::new()?);
        let number = source.queue();
        let polled = Polled {
            fan_out: FanOut::new(number),
            source,
            shared: BTreeMap::new(),
            state: Ok(()),
            is_over: false,
        };
        let called = Arc::clone(&wake);
        let thread = thread::Builder::new().name(format!("queue {number}"));
        let thread = thread.spawn(move || {
            prepare();
            run(polled, &receiver, &called, idle);
        })?;
        Ok(Self {
            changes: Some(changes),
            wake,
            thread: Some(thread),
        })
    }

    /// Runs a change in the queue's thread, between two bursts, and waits for its result. So all
    /// packets that the thread had before are in the pools. `None` if the thread has ended. What
    /// the change returns is dropped by the caller, so that the queue's thread frees no memory.
    pub fn change<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut Polled) -> T + Send + 'static,
    ) -> Option<T> {
        let (answer, result) = mpsc::sync_channel(1);
        let change = Box::new(move |polled: &mut Polled| {
            // If nobody waits for the result, the change is made anyway.
            let _ = answer.send(change(polled));
        });
        self.changes.as_ref()?.send(change).ok()?;
        self.wake.signal();
        result.recv().ok()
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.changes = None;
        self.wake.signal();
        // A panic of the thread has been reported already.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn run(mut polled: Polled, changes: &Receiver<Change>, wake: &Wake, idle: Idle) {
    let (mut empty, mut checked_ns, mut noted_ns) = (0, 0, 0);
    let mut sleep = Sleep::default();
    loop {
        match changes.try_recv() {
            Ok(change) => {
                change(&mut polled);
                continue;
            }
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => return,
        }
        let now_ns = clock::monotonic_ns();
        let is_due = |last_ns| u128::from(now_ns.saturating_sub(last_ns)) >= CHECK.as_nanos();
        if is_due(noted_ns) {
            noted_ns = now_ns;
            polled.note_missed();
        }
        if polled.poll(now_ns) > 0 {
            empty = 0;
            sleep.end(&mut *polled.source);
            continue;
        }
        if is_due(checked_ns) {
            checked_ns = now_ns;
            match polled.source.check() {
                Err(error) => polled.state = Err(error),
                // The device is up again, even if no packets come.
                Ok(()) if matches!(polled.state, Err(SourceError::Down)) => polled.state = Ok(()),
                Ok(()) => {}
            }
        }
        empty += 1;
        if idle == Idle::Spin || empty < BEFORE_SLEEP {
            hint::spin_loop();
            continue;
        }
        empty = BEFORE_SLEEP;
        if sleep.once(&mut *polled.source, wake) {
            checked_ns = 0;
        }
    }
}
