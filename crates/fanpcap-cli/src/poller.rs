//! `fanpcap poller`: takes packets from devices in user space, and writes them into the pools of
//! members in other processes.

mod place;
mod policy;
mod dpdk;
mod options;
mod socket;
mod tags;
mod privileges;
mod totals;
mod opening;
mod served;

use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use fanpcap_linux::process::{child, seccomp};
use fanpcap_linux::wait::{Wake, clock, stop};
use fanpcap_poll::{PoolFile, PoolKind, PoolSize};
use fanpcap_poller::device::Together;
use fanpcap_terminal::notify::Notify;
use fanpcap_terminal::streams;

pub(crate) use options::Arguments;
use options::Options;
pub(crate) use place::{PLACE, places};
use served::Served;
use totals::Totals;

/// Runs `fanpcap poller`.
///
/// # Errors
/// A device can't be served, or a thread has failed.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let mut options = Options::of(arguments)?;
    let begin_ns = clock::monotonic_ns();
    let notify = Notify::from_environment();
    stop::on_signals().context("catching signals")?;
    ensure_pools()?;
    // Each member takes some descriptors. The present limit may be enough.
    let _ = child::raise_open_files();
    socket::remove_left();
    options.begin_dpdk(&arguments.devices)?;
    let places = arguments.devices.iter();
    let wakes: Result<Vec<_>, _> = places.clone().map(|_| Wake::new()).collect();
    let wakes = wakes.context("eventfd")?;
    let together = Together::default();
    let mut all = Vec::new();
    let mut queues = 0;
    for (place, wake) in places.zip(&wakes) {
        let served = Served::start(place, queues, (&options, &together), wake)?;
        queues += served.queues();
        all.push(served);
    }
    let places = &arguments.devices;
    privileges::keep_for(places, &options).context("dropping capabilities")?;
    let confined = match &options.dpdk {
        Some(_) => seccomp::confine_with_drivers(),
        None => seccomp::confine(),
    };
    if let Err(error) = confined {
        streams::note(&format!(
            "fanpcap: the poller may make any system call: {error}\n"
        ));
    }
    notify.ready();
    let totals = serve(all, &wakes, &notify)?;
    streams::print(&totals::summary(&totals, begin_ns))?;
    Ok(ExitCode::SUCCESS)
}

/// Checks that this process can make members' pools.
fn ensure_pools() -> Result<()> {
    let size = PoolSize {
        lanes: 1,
        block_len: 256 << 10,
        blocks: 1,
    };
    let made = PoolFile::create(PoolKind::default(), size);
    made.map(drop)
        .context("the memory for members (it takes CAP_BPF): run as root")
}

/// Serves each device in a thread of its own, until a signal comes or a thread fails.
fn serve(all: Vec<Served<'_>>, wakes: &[Wake], notify: &Notify) -> Result<Vec<Totals>> {
    thread::scope(|scope| {
        let run = |served: Served<'_>| {
            let _end = EndsAll;
            served.run()
        };
        let begin = |served| scope.spawn(move || run(served));
        let threads: Vec<_> = all.into_iter().map(begin).collect();
        let waited = await_stop();
        notify.stopping();
        stop::request();
        wakes.iter().for_each(Wake::signal);
        let joined = threads.into_iter().map(|it| match it.join() {
            Ok(totals) => totals,
            Err(_) => bail!("the thread of a device has panicked"),
        });
        let totals = joined.collect();
        waited.and(totals)
    })
}

/// Ends the command when the thread that has this value ends.
struct EndsAll;

impl Drop for EndsAll {
    fn drop(&mut self) {
        stop::request();
    }
}

fn await_stop() -> Result<()> {
    while !stop::wait(LONG).context("waiting for a signal")? {}
    Ok(())
}

const LONG: Duration = Duration::from_secs(3600);
