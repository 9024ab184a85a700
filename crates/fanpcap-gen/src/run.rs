//! Plans, and how a run follows one: what is due, what was sent.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fanpcap_linux::wait::clock::{monotonic_ns, sleep_until, thread_cpu_ns};
use serde::Serialize;

use crate::pace::{Pace, Schedule};
use crate::pool::Pool;

/// What is to be sent, and when.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The end.
    pub until: Until,
    /// The times.
    pub pace: Pace,
}

impl Plan {
    /// Whether as many frames are sent at all, and nearly at once. What is slower needs no live
    /// frames.
    pub(crate) fn is_quick(&self, pool: &Pool, frames: u64) -> bool {
        let mut schedule = Schedule::new(self.pace);
        for number in 0..frames {
            schedule.advance(pool.frame_len(number), pool.gap(number));
        }
        self.until.frames() >= frames && schedule.due() <= AT_ONCE
    }
}

/// In nanoseconds; 64 frames at 6400 a second.
const AT_ONCE: u64 = 10_000_000;

/// When sending ends; in any case when it is told to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// After so many frames.
    Frames(u64),
    /// After so much time: frames that are due before are sent, if they are no more than 10 ms
    /// late.
    Elapsed(Duration),
    /// After so many frames or so much time, whichever is over first.
    First(u64, Duration),
    /// When it is told to stop.
    Stopped,
}

impl Until {
    /// No more frames than these.
    pub(crate) fn frames(self) -> u64 {
        match self {
            Self::Frames(frames) | Self::First(frames, _) => frames,
            Self::Elapsed(_) | Self::Stopped => u64::MAX,
        }
    }

    /// No frame is due from here on, in nanoseconds after the start.
    fn end(self) -> u64 {
        match self {
            Self::Elapsed(time) | Self::First(_, time) => {
                u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
            }
            Self::Frames(_) | Self::Stopped => u64::MAX,
        }
    }
}

/// What was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sent {
    /// Frames handed to the device; whether it took them, [`crate::Counting`] tells.
    pub frames: u64,
    /// Their bytes, without check sequences.
    pub bytes: u64,
    /// From the first frame until the one after the last would have been due, if that was within
    /// 100 ms of the last.
    pub nanoseconds: u64,
    /// CPU time of the thread in between, the delivery to a peer on the same machine included.
    pub cpu_ns: u64,
    /// How late the last frame was, or the first that came no more; 0 at top speed. It grows when
    /// the pace can't be kept.
    pub late_ns: u64,
}

/// The longest sleep, for the sake of `stop`, and between two looks at the device; the time between
/// two calls of `watch`.
pub(crate) const TICK: u64 = 100_000_000;
pub(crate) const TELL: u64 = 1_000_000_000;

/// A run that is bounded by time ends no later than this after it.
const LATE: u64 = 10_000_000;

/// One run of a plan.
pub(crate) struct Run {
    schedule: Schedule,
    /// By the monotonic clock.
    pub(crate) start: u64,
    cpu: u64,
    /// When frames were last handed over.
    last: u64,
    /// When `watch` was last called.
    pub(crate) told: u64,
    /// When the device was last looked at.
    pub(crate) looked: u64,
    /// Nothing more is to be sent.
    pub(crate) over: bool,
    sent: Sent,
    /// The next frame's place in the pool.
    pub(crate) place: u64,
    paced: bool,
    /// No frame is due from here on.
    end: u64,
}

/// What comes next.
pub(crate) enum Due {
    /// So many frames with so many bytes go now.
    Now {
        /// Frames.
        frames: u64,
        /// Bytes of them.
        bytes: u64,
    },
    /// Nothing before that time, in nanoseconds after the start.
    At(u64),
    /// It is over.
    Never,
}

impl Run {
    /// Begins now; so many frames have been sent already.
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

    /// What is to be done now; no more than `most` frames.
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

    /// Counts `sent` of `frames` frames, which have so many bytes together.
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

    /// What was sent until now.
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

    /// Waits until the last frame's time is over.
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
