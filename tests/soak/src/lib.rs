//! The soak test: processes use all operations at once for a given time, in a new network
//! namespace. Traffic never pauses. Some processes capture all the time; others change filters,
//! break loops, open and close handles. Members join and leave, and some are killed. All counters
//! must add up, and no resource may grow.
#![forbid(unsafe_code)]

mod sender;
mod stage;
mod visitors;
mod vitals;
mod cast;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Result, ensure};
use fanpcap_testkit::{Injector, Veth, netns, veth};

use cast::Cast;
use sender::Sender;
use stage::Stage;
use visitors::Visitors;

/// The device at which frames enter, and the device at which all processes capture.
const DEVICES: (&str, &str) = ("va", "vb");

/// Time between two readings of the processes' resources.
const SAMPLE: Duration = Duration::from_millis(200);

/// Runs the soak. Calls `tell` with the progress in intervals of `every`, and with the summary at
/// the end.
///
/// # Errors
/// A process ended or reported an error, a ledger does not add up, or a resource grew. Returns the
/// first error.
pub fn run(duration: Duration, every: Duration, tell: &(dyn Fn(&str) + Sync)) -> Result<()> {
    netns::within_new(|| {
        let (near, far) = DEVICES;
        Veth::new(near, far, 1)?;
        let stage = Stage::new(far)?;
        let (no_visits, no_frames) = (AtomicBool::new(false), AtomicBool::new(false));
        let sender = Sender::new(Injector::open(near)?, seed());
        let visitors = Visitors::new(seed());
        let mut cast = Cast::start(&stage)?;
        let progress = |cast: &Cast| {
            let (sent, visited) = (sender.sent(), visitors.tell());
            cast.tell()
                .map(|players| tell(&format!("{sent} frames, {visited}\n     {players}")))
        };
        thread::scope(|scope| {
            let sending = scope.spawn(|| sender.run(&no_frames));
            let visiting = scope.spawn(|| visitors.run(&stage, &no_visits));
            let gone = || visiting.is_finished() || sending.is_finished();
            let watched = watch(&mut cast, duration, every, &progress, &gone);
            // The roles that change filters wait for frames, so the traffic must go on until all
            // processes are asked to end.
            no_visits.store(true, Ordering::Release);
            let visited = visiting.join().expect("the visitors do not panic");
            no_frames.store(true, Ordering::Release);
            let sent = sending.join().expect("the sender does not panic");
            watched.and(visited).and(sent)?;
            cast.interrupt()
        })?;
        let lost = veth::counters(far)?.receive_dropped;
        ensure!(lost == 0, "the host dropped {lost} frames");
        cast.end(tell)
    })
}

/// Reads the processes' resources until the time is over, or until an error occurs in this thread
/// or in another one.
fn watch(
    cast: &mut Cast,
    duration: Duration,
    every: Duration,
    tell: &dyn Fn(&Cast) -> Result<()>,
    gone: &dyn Fn() -> bool,
) -> Result<()> {
    let begin = Instant::now();
    let mut next = every;
    while begin.elapsed() < duration && !gone() {
        thread::sleep(SAMPLE);
        cast.sample()?;
        if begin.elapsed() >= next {
            next += every;
            tell(cast)?;
        }
    }
    Ok(())
}

/// A seed from the clock, so that each run is different.
fn seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(1, |now| u64::from(now.subsec_nanos()) ^ now.as_secs())
}
