//! The soak: all operations at once for a given time, in a network namespace of its own. Traffic
//! runs without pause. Processes capture all the time, change filters, break loops, open and close
//! handles. Members come and go, some killed. All counters must add up, and no resource may grow.
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

/// The device at which frames enter, and the one at which all capture.
const DEVICES: (&str, &str) = ("va", "vb");

/// How often the vitals are taken.
const SAMPLE: Duration = Duration::from_millis(200);

/// Runs it. `tell` gets how it goes each `every`, and the summary at the end.
///
/// # Errors
/// What went wrong first: a program ended or said so, a ledger does not add up, something grew.
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
            // The filters wait for frames: those go on until all are told to end.
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

/// Takes vitals until the time is over, or something goes wrong: here, or with the threads beside.
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

/// A seed from the clock, so that no two runs are alike.
fn seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(1, |now| u64::from(now.subsec_nanos()) ^ now.as_secs())
}
