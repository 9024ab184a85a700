//! Plans, and how a run follows one: what is due, what was sent.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fanpcap_linux::clock::sleep_until;
use fanpcap_linux::process::monotonic_ns;
use fanpcap_linux::process::thread_cpu_ns;
use serde::Serialize;

use crate::pace::{Pace, Schedule};
use crate::sender::Sender;

/// What is to be sent, and when.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The end.
    pub until: Until,
    /// The times.
    pub pace: Pace,
}

/// When sending ends; in any case when it is told to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// After so many frames.
    Frames(u64),
    /// After so much time: frames that are due before are sent.
    Elapsed(Duration),
    /// When it is told to stop.
    Stopped,
}

/// What was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sent {
    /// Frames handed to the device; whether it took them, [`crate::Counting`] tells.
    pub frames: u64,
    /// Their bytes, without check sequences.
    pub bytes: u64,
    /// From the first frame until the one after the last would have been due, if that was within 100 ms
    /// of the last.
    pub nanoseconds: u64,
    /// CPU time of the thread in between, the delivery to a peer on the same machine included.
    pub cpu_ns: u64,
}

/// The longest sleep, for the sake of `stop`, and the time between two calls of `watch`.
pub(crate) const TICK: u64 = 100_000_000;
pub(crate) const TELL: u64 = 1_000_000_000;

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
    pub(crate) fn new(plan: &Plan, already: u64, sender: &Sender) -> Self {
        let mut run = Self {
            schedule: Schedule::new(plan.pace),
            start: monotonic_ns(),
            cpu: thread_cpu_ns(),
            last: 0,
            told: 0,
            sent: Sent::default(),
            place: 0,
            paced: plan.pace != Pace::Top,
            end: match plan.until {
                Until::Elapsed(time) => u64::try_from(time.as_nanos()).unwrap_or(u64::MAX),
                Until::Frames(_) | Until::Stopped => u64::MAX,
            },
        };
        for _ in 0..already {
            let bytes = sender.bytes(0, 1);
            run.schedule
                .advance(sender.pool().frame_len(0), sender.pool().gap(0));
            run.count(sender, 1, 1, bytes);
        }
        run
    }

    /// Nanoseconds since the start.
    pub(crate) fn elapsed(&self) -> u64 {
        monotonic_ns() - self.start
    }

    /// What is to be done now; no more than `left` frames.
    pub(crate) fn due(&mut self, plan: &Plan, sender: &Sender, left: u64) -> Due {
        let mut most = left.min(sender.most());
        if let Until::Frames(count) = plan.until {
            most = most.min(count - self.sent.frames.min(count));
        }
        let now = self.elapsed();
        if most == 0 {
            return Due::Never;
        }
        if !self.paced {
            let bytes = || sender.bytes(self.place, most);
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
        if self.schedule.due() >= self.end {
            return Due::Never;
        }
        if wake > now {
            return Due::At(wake);
        }
        let (mut frames, mut bytes) = (0, 0);
        while frames < most && self.schedule.due() <= now.min(self.end - 1) {
            let len = sender.pool().frame_len(self.place + frames);
            let gap = sender.pool().gap(self.place + frames);
            self.schedule.advance(len, gap);
            frames += 1;
            bytes += len as u64;
        }
        self.last = now;
        Due::Now { frames, bytes }
    }

    /// Counts `sent` of `frames` frames, which have so many bytes together.
    pub(crate) fn count(&mut self, sender: &Sender, sent: u64, frames: u64, bytes: u64) {
        let all = sent == frames;
        self.sent.frames += sent;
        self.sent.bytes += if all {
            bytes
        } else {
            sender.bytes(self.place, sent)
        };
        self.place += sent;
    }

    /// What was sent until now.
    pub(crate) fn so_far(&self) -> Sent {
        Sent {
            nanoseconds: self.elapsed(),
            cpu_ns: thread_cpu_ns() - self.cpu,
            ..self.sent
        }
    }

    /// Waits until the last frame's time is over.
    pub(crate) fn finish(self, stop: &AtomicBool) -> Sent {
        let over = self.schedule.due().min(self.end);
        if self.paced && !stop.load(Ordering::Relaxed) && over < self.elapsed() + TICK {
            sleep_until(self.start + over);
        }
        self.so_far()
    }
}
