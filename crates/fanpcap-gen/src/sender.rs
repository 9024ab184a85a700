//! Senders: a pool sent on a device as a plan says, and what came of it.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use fanpcap_linux::clock::{sleep_until, wake_on_time};
use fanpcap_linux::process::monotonic_ns;
use fanpcap_linux::{interface, link};
use serde::Serialize;

use crate::live::{self, Live};
use crate::pool::Pool;
use crate::portable::{self, Portable};
use crate::refusal::{OpenError, SendError};
use crate::replay::ReplayError;
use crate::run::{Due, Plan, Run, Sent, TELL, TICK, Until};

/// How frames get to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// A program within the kernel makes and sends them.
    LiveFrames,
    /// sendmmsg(2) past the queueing discipline.
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

/// Which way to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Live frames where they are possible and the device takes them, which is tried with the first
    /// frame; else the portable way.
    Auto,
    /// Live frames or an error. Frames that the device refuses are lost.
    Live,
    /// The portable way.
    Portable,
}

/// A pool, ready to be sent on a device of the calling thread's network namespace.
///
/// A thread that sends should stay on one CPU ([`fanpcap_linux::inject::pin`]): which queue of the device a
/// frame takes goes by the CPU, and frames of different queues may overtake each other.
#[derive(Debug)]
pub struct Sender {
    device: String,
    ifindex: u32,
    choice: Choice,
    pool: Pool,
    even: bool,
    route: Route,
    instead: Option<String>,
}

#[derive(Debug)]
enum Route {
    Live(Box<Live>),
    Portable(Portable),
}

/// Hands out further pools, until there are no more.
type More<'a> = &'a mut dyn FnMut() -> Result<Option<Pool>, ReplayError>;

impl Sender {
    /// Opens `device` for the frames of `pool`.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(device: &str, pool: Pool, choice: Choice) -> Result<Self, OpenError> {
        let found = interface::find(device)
            .map_err(|error| OpenError::Call("looking for the device", error))?;
        let ifindex = found.ok_or_else(|| OpenError::NoDevice(device.to_owned()))?;
        check(ifindex, &pool)?;
        let mut instead = None;
        let route = match choice {
            Choice::Portable => None,
            Choice::Live | Choice::Auto => match Live::open(&pool, ifindex) {
                Ok(live) => Some(Route::Live(Box::new(live))),
                Err(error) if choice == Choice::Live => return Err(OpenError::Live(error)),
                Err(error) => {
                    instead = Some(error.to_string());
                    None
                }
            },
        };
        let route = match route {
            Some(route) => route,
            None => portable(device)?,
        };
        Ok(Self {
            device: device.to_owned(),
            ifindex,
            choice,
            even: pool.is_even(),
            pool,
            route,
            instead,
        })
    }

    /// The way that frames take.
    pub fn way(&self) -> Way {
        match self.route {
            Route::Live(_) => Way::LiveFrames,
            Route::Portable(_) => Way::Portable,
        }
    }

    /// Why it is the portable way though live frames were not ruled out.
    pub fn instead(&self) -> Option<&str> {
        self.instead.as_deref()
    }

    /// Sends the pool, again and again from its first frame on, until the plan's end or until `stop` is
    /// set.
    ///
    /// # Errors
    /// See [`SendError`].
    pub fn send(&mut self, plan: &Plan, stop: &AtomicBool) -> Result<Sent, SendError> {
        self.send_watched(plan, stop, &mut |_| ())
    }

    /// Like [`Sender::send`]; `watch` is called about once a second with what was sent so far.
    ///
    /// # Errors
    /// See [`SendError`].
    pub fn send_watched(
        &mut self,
        plan: &Plan,
        stop: &AtomicBool,
        watch: &mut dyn FnMut(&Sent),
    ) -> Result<Sent, SendError> {
        self.run(plan, stop, watch, None)
    }

    /// Sends the pool once, then each that `more` hands out, until there are no more; or until the
    /// plan's end or `stop`, as [`Sender::send_watched`] does. Frames that are due while `more` is busy
    /// are late.
    ///
    /// # Errors
    /// See [`SendError`].
    pub fn send_stream(
        &mut self,
        plan: &Plan,
        stop: &AtomicBool,
        watch: &mut dyn FnMut(&Sent),
        more: &mut dyn FnMut() -> Result<Option<Pool>, ReplayError>,
    ) -> Result<Sent, SendError> {
        self.run(plan, stop, watch, Some(more))
    }

    fn run(
        &mut self,
        plan: &Plan,
        stop: &AtomicBool,
        watch: &mut dyn FnMut(&Sent),
        mut more: Option<More<'_>>,
    ) -> Result<Sent, SendError> {
        // Without this, sleeps last up to 50 us longer, which shows in gaps only.
        let _ = wake_on_time();
        let first = self.first(plan, stop)?;
        let mut run = Run::new(plan, u64::from(first), self);
        while !stop.load(Ordering::Relaxed) {
            if more.is_some() && run.place == self.pool.len() as u64 {
                let next = more.as_mut().map_or(Ok(None), |more| more());
                match next.map_err(SendError::Replay)? {
                    Some(pool) => self.load(pool)?,
                    None => break,
                }
                run.place = 0;
            }
            let left = if more.is_some() {
                self.pool.len() as u64 - run.place
            } else {
                u64::MAX
            };
            match run.due(plan, self, left) {
                Due::Now { frames, bytes } => {
                    let sent = self.hand_over(run.place, frames, stop)?;
                    run.count(self, sent, frames, bytes);
                }
                Due::At(time) => sleep_until(run.start + time.min(run.elapsed() + TICK)),
                Due::Never => break,
            }
            if run.elapsed() >= run.told + TELL {
                run.told = run.elapsed();
                watch(&run.so_far());
            }
        }
        Ok(run.finish(stop))
    }

    /// Where the device may refuse live frames, the first frame shows whether it does: its counters
    /// move, or the way is changed. Whether one was sent.
    fn first(&mut self, plan: &Plan, stop: &AtomicBool) -> Result<bool, SendError> {
        let Route::Live(live) = &self.route else {
            return Ok(false);
        };
        live.rewind().map_err(SendError::Live)?;
        if self.choice != Choice::Auto || plan.until == Until::Frames(0) {
            return Ok(false);
        }
        let gone = || {
            link::get(self.ifindex).map(|link| {
                let counters = link.counters;
                counters.tx_packets + counters.tx_dropped
            })
        };
        let Ok(before) = gone() else {
            return Ok(false);
        };
        if live.send(1, stop).map_err(SendError::Live)? == 0 {
            return Ok(false);
        }
        let patience = monotonic_ns() + SETTLE;
        while gone().is_ok_and(|now| now == before) {
            if monotonic_ns() > patience {
                self.instead = Some(format!(
                    "{} refuses them (a veth takes them when its other end has an XDP program or GRO)",
                    self.device
                ));
                self.route = portable(&self.device).map_err(SendError::Open)?;
                return Ok(false);
            }
            sleep_until(monotonic_ns() + 1_000_000);
        }
        Ok(true)
    }

    /// Changes to another pool.
    fn load(&mut self, pool: Pool) -> Result<(), SendError> {
        check(self.ifindex, &pool).map_err(SendError::Open)?;
        if matches!(self.route, Route::Live(_)) {
            let live = Live::open(&pool, self.ifindex).map_err(SendError::Live)?;
            self.route = Route::Live(Box::new(live));
        }
        self.even = pool.is_even();
        self.pool = pool;
        Ok(())
    }

    fn hand_over(&mut self, place: u64, count: u64, stop: &AtomicBool) -> Result<u64, SendError> {
        match &mut self.route {
            Route::Live(live) => live.send(count, stop).map_err(SendError::Live),
            Route::Portable(portable) => portable
                .send(&self.pool, place, count, stop)
                .map_err(SendError::Device),
        }
    }

    /// The pool that is being sent.
    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Most frames at once.
    pub(crate) fn most(&self) -> u64 {
        match self.route {
            Route::Live(_) => live::MOST,
            Route::Portable(_) => portable::MOST,
        }
    }

    /// Bytes of `count` frames from the pool's frame `place` on.
    pub(crate) fn bytes(&self, place: u64, count: u64) -> u64 {
        if self.even {
            return count * self.pool.longest() as u64;
        }
        (place..place + count)
            .map(|number| self.pool.frame_len(number) as u64)
            .sum()
    }
}

/// A device's counters may need so long to tell of a frame.
const SETTLE: u64 = 1_000_000_000;

fn portable(device: &str) -> Result<Route, OpenError> {
    Portable::open(device)
        .map(Route::Portable)
        .map_err(|error| OpenError::Call("opening a packet socket (it needs CAP_NET_RAW)", error))
}

/// Whether the device is up and takes frames of such length.
fn check(ifindex: u32, pool: &Pool) -> Result<(), OpenError> {
    if pool.is_empty() {
        return Err(OpenError::NoFrames);
    }
    let link =
        link::get(ifindex).map_err(|error| OpenError::Call("asking for the device", error))?;
    if link.flags & IFF_UP == 0 {
        return Err(OpenError::Down(link.name));
    }
    // Ethernet's header, and a VLAN tag, which the kernel does not count.
    let most = link.mtu as usize + 14 + 4;
    if pool.longest() > most {
        let len = pool.longest();
        return Err(OpenError::TooLong { len, most });
    }
    Ok(())
}

const IFF_UP: u32 = 1;
