//! Plans, and the state of a run that follows a plan.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fanpcap_linux::wait::clock::{monotonic_ns, sleep_until, thread_cpu_ns};
use serde::Serialize;

use crate::pace::{Pace, Schedule};
use crate::pool::Pool;

/// The end and the pace of a run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The end of the run.
    pub until: Until,
    /// The pace, which decides when each frame is due.
    pub pace: Pace,
}

impl Plan {
    /// Whether the plan sends this many frames nearly at once. Slower plans need no live frames.
    pub(crate) fn is_quick(&self, pool: &Pool, frames: u64) -> bool {
        let mut schedule = Schedule::new(self.pace);
        for number in 0..frames {
            schedule.advance(pool.frame_len(number), pool.gap(number));
        }
        self.until.frames() >= frames && schedule.due() <= AT_ONCE
    }
}

/// The time that 64 frames take at a rate of 6400 frames a second, in nanoseconds.
const AT_ONCE: u64 = 10_000_000;

/// The end of a run. The caller's flag `stop` may end the run earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// After this many frames.
    Frames(u64),
    /// After this time. Frames that are due before the end are still sent up to 10 ms after the
    /// end.
    Elapsed(Duration),
    /// After this many frames or this time, whichever comes first.
    First(u64, Duration),
    /// Only when `stop` is set.
    Stopped,
}

impl Until {
    /// Maximum number of frames.
    pub(crate) fn frames(self) -> u64 {
        match self {
            Self::Frames(frames) | Self::First(frames, _) => frames,
            Self::Elapsed(_) | Self::Stopped => u64::MAX,
        }
    }

    /// The end in nanoseconds after the start.
    fn end(self) -> u64 {
        match self {
            Self::Elapsed(time) | Self::First(_, time) => {
                u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
            }
            Self::Frames(_) | Self::Stopped => u64::MAX,
        }
    }
}

/// Result of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sent {
    /// Frames passed to the device; [`crate::Counting`] counts the frames that the device accepted.
    pub frames: u64,
    /// Bytes of these frames, without check sequences.
    pub bytes: u64,
    /// Duration of the run, from the first frame. A run with a pace ends only when one more frame
    /// would be due or at its time limit, if that time is less than 100 ms away.
    pub nanoseconds: u64,
    /// The thread's CPU time during the run, including delivery to a veth's peer on the same
    /// machine.
    pub cpu_ns: u64,
    /// Lateness of the last frame, or of the first unsent frame; 0 at top speed. The lateness grows
    /// if the sender can't keep the pace.
    pub late_ns: u64,
}

/// The longest sleep, in nanoseconds, so that the sender notices `stop` in time. `TICK` is also the
/// interval between checks of the device, and `TELL` the interval between calls of `watch`.
pub(crate) const TICK: u64 = 100_000_000;
pub(crate) const TELL: u64 = 1_000_000_000;

/// A run with a time limit ends at most this many nanoseconds after the limit.
const LATE: u64 = 10_000_000;

/// One run of a plan.
pub(crate) struct Run {
    schedule: Schedule,
    /// Start, by the monotonic clock.
    pub(crate) start: u64,
    cpu: u64,
    /// Time when frames were last passed to the device.
    last: u64,
    /// Time of the last call of `watch`.
    pub(crate) told: u64,
    /// Time of the last check of the device.
    pub(crate) looked: u64,
    /// Whether the run is over.
    pub(crate) over: bool,
    sent: Sent,
    /// Index of the next frame in the pool.
    pub(crate) place: u64,
    paced: bool,
    /// Time of the end.
    end: u64,
}

/// The next action.
pub(crate) enum Due {
    /// Send this many frames, with this many bytes.
    Now {
        frames: u64,
        /// Bytes of these frames.
        bytes: u64,
    },
    /// Wait until this time, in nanoseconds after the start.
    At(u64),
    /// End the run.
    Never,
}

impl Run {
    /// Starts a run now. The first `already` frames of the pool have been sent before, and are
    /// counted.
    pub(crate) fn new(plan: &Plan, already: u64, pool: &Pool) -> Self {
        let mut run = Self {
            schedule: Schedule::new(plan.pace),
            start: monotonic_ns(),
            cpu: thread_cpu_ns(),
            last: 0,
            told: 0,
            looked: 0,
            over: false,
            sent: Sent::default(),
            place: 0,
            paced: plan.pace != Pace::Top,
            end: plan.until.end(),
        };
        for place in 0..already {
            let len = pool.frame_len(place);
            run.schedule.advance(len, pool.gap(place));
            run.count(pool, 1, 1, len as u64);
        }
        run
    }

    /// Nanoseconds since the start.
    pub(crate) fn elapsed(&self) -> u64 {
        monotonic_ns() - self.start
    }

    /// The next action, for at most `most` frames.
    pub(crate) fn due(&mut self, plan: &Plan, pool: &Pool, most: u64) -> Due {
        let most = most.min(plan.until.frames().saturating_sub(self.sent.frames));
        let now = self.elapsed();
        if most == 0 {
            return Due::Never;
        }
        if !self.paced {
            let bytes = || pool.bytes_of(self.place, most);
            return if now >= self.end {
                Due::Never
            } else {
                Due::Now {
                    frames: most,
                    bytes: bytes(),
                }
            };
        }
        let wake = self.schedule.due().max(self.last + self.schedule.rest());
        if self.schedule.due() >= self.end || now >= self.end.saturating_add(LATE) {
            return Due::Never;
        }
        if wake > now {
            return Due::At(wake);
        }
        let (mut frames, mut bytes) = (0, 0);
        while frames < most && self.schedule.due() <= now.min(self.end - 1) {
            let len = pool.frame_len(self.place + frames);
            let gap = pool.gap(self.place + frames);
            self.schedule.advance(len, gap);
            frames += 1;
            bytes += len as u64;
        }
        self.last = now;
        Due::Now { frames, bytes }
    }

    /// Counts the first `sent` of `frames` frames as sent. All `frames` together have `bytes`
    /// bytes.
    pub(crate) fn count(&mut self, pool: &Pool, sent: u64, frames: u64, bytes: u64) {
        let all = sent == frames;
        self.sent.frames += sent;
        self.sent.bytes += if all {
            bytes
        } else {
            pool.bytes_of(self.place, sent)
        };
        self.place += sent;
    }

    pub(crate) fn so_far(&self) -> Sent {
        let elapsed = self.elapsed();
        Sent {
            nanoseconds: elapsed,
            late_ns: if self.paced {
                elapsed.saturating_sub(self.schedule.due())
            } else {
                0
            },
            cpu_ns: thread_cpu_ns() - self.cpu,
            ..self.sent
        }
    }

    /// Waits until the frame after the last one would be due, if that is soon. Returns the run's
    /// result.
    pub(crate) fn finish(self, stop: &AtomicBool) -> Sent {
        let late_ns = self.so_far().late_ns;
        let over = self.schedule.due().min(self.end);
        if self.paced && !stop.load(Ordering::Relaxed) && over < self.elapsed() + TICK {
            sleep_until(self.start + over);
        }
        Sent {
            late_ns,
            ..self.so_far()
        }
    }
}
