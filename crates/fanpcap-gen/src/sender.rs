//! Senders: send a pool on a device according to a plan.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Error, Result, anyhow, bail};
use fanpcap_linux::wait::clock::{sleep_until, wake_on_time};
use serde::Serialize;

use crate::device::Device;
use crate::live::{self, Live};
use crate::pool::Pool;
use crate::portable::{self, Portable};
use crate::run::{Due, Plan, Run, Sent, TELL, TICK};
use crate::watch::{PROBES, Shown, Watch, takes_none};

/// The way in which frames reach the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// A BPF program in the kernel makes and sends the frames.
    LiveFrames,
    /// sendmmsg(2), bypassing the queueing discipline.
    Portable,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LiveFrames => "live frames",
            Self::Portable => "sendmmsg",
        })
    }
}

/// The rule by which a sender chooses the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Live frames if they work, otherwise the portable way. The portable way is also used for few
    /// frames, and for rates below 6400 frames a second. The device's counters show whether the
    /// device accepts live frames. The sender checks them after the first 64 frames, and then at
    /// intervals. A device that does not count the frames that it accepts gets the first frames
    /// twice, because the sender sends them again by the portable way.
    Auto,
    /// Only live frames. Sending fails if live frames don't work, or if most of them don't leave
    /// the device. Frames that the device refuses are lost.
    Live,
    /// Live frames without a check whether they leave the device, to measure only the generator's
    /// speed.
    Unwatched,
    /// The portable way.
    Portable,
}

/// A pool, ready to be sent on a device of the calling thread's network namespace.
///
/// The sending thread should stay on one CPU ([`fanpcap_linux::process::cpu::pin`]): the CPU
/// selects the device's queue, and frames of different queues may overtake each other.
#[derive(Debug)]
pub struct Sender {
    device: Device,
    choice: Choice,
    pool: Pool,
    route: Route,
    instead: Option<String>,
    sent: Sent,
}

#[derive(Debug)]
enum Route {
    Live(Box<Live>),
    Portable(Portable),
}

/// A function that returns the next pool, and `None` after the last pool.
type More<'a> = &'a mut dyn FnMut() -> Result<Option<Pool>>;

impl Sender {
    /// Opens `device` for the frames of `pool`.
    ///
    /// # Errors
    /// The device does not accept such frames, or the way to it can't be opened.
    pub fn open(device: &str, pool: Pool, choice: Choice) -> Result<Self> {
        let device = Device::find(device)?;
        device.check(&pool)?;
        let mut instead = None;
        let route = match choice {
            Choice::Portable => None,
            Choice::Live | Choice::Unwatched | Choice::Auto => {
                match Live::open(&pool, device.index) {
                    Ok(live) => Some(Route::Live(Box::new(live))),
                    Err(error) if choice != Choice::Auto => return Err(live_frames(error)),
                    Err(error) => {
                        instead = Some(error.to_string());
                        None
                    }
                }
            }
        };
        let route = match route {
            Some(route) => route,
            None => portable(&device)?,
        };
        Ok(Self {
            device,
            choice,
            pool,
            route,
            instead,
            sent: Sent::default(),
        })
    }

    /// The way in which frames are sent.
    pub fn way(&self) -> Way {
        match self.route {
            Route::Live(_) => Way::LiveFrames,
            Route::Portable(_) => Way::Portable,
        }
    }

    /// The reason why the portable way is used although live frames were allowed. `None` if live
    /// frames are used, or were not allowed.
    pub fn instead(&self) -> Option<&str> {
        self.instead.as_deref()
    }

    /// The result of the last run, even if the run ended with an error.
    pub fn sent(&self) -> Sent {
        self.sent
    }

    /// Sends the pool in a loop from its first frame on, until the plan's end or until `stop` is
    /// set.
    ///
    /// # Errors
    /// Sending ended early: the device is gone, down or accepts no frames, or there are no more
    /// frames.
    pub fn send(&mut self, plan: &Plan, stop: &AtomicBool) -> Result<Sent> {
        self.send_watched(plan, stop, &mut |_| ())
    }

    /// Works like [`Sender::send`], but also calls `watch` about once a second with the result so
    /// far.
    ///
    /// # Errors
    /// Sending ended early: the device is gone, down or accepts no frames, or there are no more
    /// frames.
    pub fn send_watched(
        &mut self,
        plan: &Plan,
        stop: &AtomicBool,
        watch: &mut dyn FnMut(&Sent),
    ) -> Result<Sent> {
        self.run(plan, stop, watch, None)
    }

    /// Sends the pool once, and then each pool that `more` returns, until `more` returns `None`.
    /// Ends earlier at the plan's end or at `stop`, like [`Sender::send_watched`]. Frames that are
    /// due while `more` runs are sent late.
    ///
    /// # Errors
    /// Sending ended early: the device is gone, down or accepts no frames, or there are no more
    /// frames.
    pub fn send_stream(
        &mut self,
        plan: &Plan,
        stop: &AtomicBool,
        watch: &mut dyn FnMut(&Sent),
        more: &mut dyn FnMut() -> Result<Option<Pool>>,
    ) -> Result<Sent> {
        self.run(plan, stop, watch, Some(more))
    }

    fn run(
        &mut self,
        plan: &Plan,
        stop: &AtomicBool,
        watch: &mut dyn FnMut(&Sent),
        mut more: Option<More<'_>>,
    ) -> Result<Sent> {
        // If this fails, sleeps last up to 50 us longer, which only affects the gaps between
        // frames.
        let _ = wake_on_time();
        self.sent = Sent::default();
        let mut watching = Watch::start(&self.device)?;
        let first = self.first(plan, more.is_some(), &watching, stop)?;
        let mut run = Run::new(plan, first, &self.pool);
        let mut ended = Ok(());
        while !stop.load(Ordering::Relaxed) {
            ended = self.step(&mut run, plan, stop, &mut more);
            if run.elapsed() >= run.looked + TICK && ended.is_ok() {
                run.looked = run.elapsed();
                ended = self.look(&mut watching, &run);
            }
            if run.elapsed() >= run.told + TELL {
                run.told = run.elapsed();
                watch(&run.so_far());
            }
            if run.over || ended.is_err() {
                break;
            }
        }
        if matches!(&ended, Err(error) if error.is::<io::Error>()) {
            // The device's own error, for example that it is gone or down, is more helpful than the
            // call's error.
            ended = watching.counters().map(drop).and(ended);
        }
        self.sent = if ended.is_ok() {
            run.finish(stop)
        } else {
            run.so_far()
        };
        ended.map(|()| self.sent)
    }

    /// Sends the frames that are due, or waits.
    fn step(
        &mut self,
        run: &mut Run,
        plan: &Plan,
        stop: &AtomicBool,
        more: &mut Option<More<'_>>,
    ) -> Result<()> {
        let mut left = u64::MAX;
        if let Some(more) = more {
            if run.place == self.pool.len() as u64 {
                match more()? {
                    Some(pool) => self.load(pool)?,
                    None => {
                        run.over = true;
                        return Ok(());
                    }
                }
                run.place = 0;
            }
            left = self.pool.len() as u64 - run.place;
        }
        match run.due(plan, &self.pool, left.min(self.most())) {
            Due::Now { frames, bytes } => {
                let sent = self.hand_over(run.place, frames, stop)?;
                run.count(&self.pool, sent, frames, bytes);
            }
            Due::At(time) => sleep_until(run.start + time.min(run.elapsed() + TICK)),
            Due::Never => run.over = true,
        }
        Ok(())
    }

    /// Tries a device that may refuse live frames: the device's counters show whether it accepts
    /// the first frames. If not, changes to the portable way. Returns the number of frames sent.
    fn first(
        &mut self,
        plan: &Plan,
        stream: bool,
        watching: &Watch,
        stop: &AtomicBool,
    ) -> Result<u64> {
        let Route::Live(live) = &self.route else {
            return Ok(0);
        };
        live.rewind().map_err(live_frames)?;
        if self.choice != Choice::Auto {
            return Ok(0);
        }
        let most = if stream {
            self.pool.len() as u64
        } else {
            u64::MAX
        };
        if !plan.is_quick(&self.pool, PROBES) || most < PROBES {
            return self.give_way("sendmmsg is enough at this rate".to_owned());
        }
        if live.send(PROBES, stop).map_err(live_frames)? < PROBES {
            return Ok(0);
        }
        let device = &self.device.name;
        match watching.first(PROBES, self.pool.bytes_of(0, PROBES))? {
            Shown::Taken => Ok(PROBES),
            Shown::Refused => self.give_way(self.device.refuses()),
            Shown::Hidden => self.give_way(format!(
                "other traffic hides whether {device} accepts live frames, so up to {PROBES} frames more than counted were sent; --live sends live frames anyway"
            )),
        }
    }

    /// Changes to the portable way.
    fn give_way(&mut self, why: String) -> Result<u64> {
        self.instead = Some(why);
        self.route = portable(&self.device)?;
        Ok(0)
    }

    /// Checks that the device is still there, and that live frames leave the device. If they do
    /// not, changes to the portable way, or fails if only live frames are allowed.
    fn look(&mut self, watching: &mut Watch, run: &Run) -> Result<()> {
        if self.choice == Choice::Unwatched {
            return Ok(());
        }
        if matches!(self.route, Route::Portable(_)) {
            return watching.counters().map(drop);
        }
        let handed = run.so_far().frames;
        let Some(missing) = watching.look(handed)? else {
            return Ok(());
        };
        let why = format!(
            "{}: of {handed} frames, at least {missing} did not leave",
            self.device.refuses()
        );
        if self.choice == Choice::Live {
            bail!("live frames: {why}");
        }
        self.give_way(why).map(drop)
    }

    /// Changes to another pool.
    fn load(&mut self, pool: Pool) -> Result<()> {
        self.device.check(&pool)?;
        if matches!(self.route, Route::Live(_)) {
            let live = Live::open(&pool, self.device.index).map_err(live_frames)?;
            self.route = Route::Live(Box::new(live));
        }
        self.pool = pool;
        Ok(())
    }

    fn hand_over(&mut self, place: u64, count: u64, stop: &AtomicBool) -> Result<u64> {
        match &mut self.route {
            Route::Live(live) => live.send(count, stop).map_err(live_frames),
            Route::Portable(portable) => portable
                .send(&self.pool, place, count, stop)
                .map_err(takes_none),
        }
    }

    /// The maximum number of frames in one call of `hand_over`.
    fn most(&self) -> u64 {
        match self.route {
            Route::Live(_) => live::MOST,
            Route::Portable(_) => portable::MOST,
        }
    }
}

fn live_frames(error: Error) -> Error {
    let text = format!("live frames: {error}");
    error.context(text)
}

fn portable(device: &Device) -> Result<Route> {
    Portable::open(&device.name)
        .map(Route::Portable)
        .map_err(|error| anyhow!("opening a packet socket (it needs CAP_NET_RAW): {error}"))
}
