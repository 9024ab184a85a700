//! `fanpcap gen`: sends generated or replayed traffic.

mod report;
mod values;
mod options;
mod description;

use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use fanpcap_gen::{
    Choice, Counting, Device, Faults, Limit, Pace, Plan, Pool, Replay, Sender, Sent, Until, guard,
};
use fanpcap_linux::process::cpu;
use fanpcap_linux::wait::stop;
use fanpcap_terminal::streams;

pub(crate) use options::Arguments;
use report::{Progress, Report};

/// Runs `fanpcap gen`.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let device = arguments.device.required();
    guard(device, arguments.force)?;
    // Stay on one CPU: the CPU determines the device's queue, and frames of different queues may
    // overtake each other.
    let core = match arguments.core {
        Some(core) => core,
        None => cpu::current_cpu().context("which CPU this is")?,
    };
    cpu::pin(core).with_context(|| {
        format!("--core {core}: this process may not run there; 'taskset -cp $$' lists its CPUs")
    })?;
    let stop = stop::on_signals().context("catching signals")?;
    let found = Device::find(device)?;
    let (pool, mut more, faults) = match traffic(arguments, found)? {
        Traffic::Pool(pool, faults) => (pool, None, faults),
        Traffic::Stream(first, more) => (first, Some(more), Faults::default()),
    };
    let plan = plan(arguments, &pool, more.is_some())?;
    let choice = choice(arguments, more.is_some())?;
    let mut sender = Sender::open(device, pool, choice).with_context(|| device.to_owned())?;
    let counting = Counting::start(device).with_context(|| format!("the counters of {device}"))?;
    let mut progress = Progress::new(arguments.progress);
    let ended = send(&mut sender, &plan, stop, &mut progress, more.as_deref_mut());
    progress.end();
    let faults = more.map_or(faults, |more| more.faults());
    if let Some(path) = &arguments.replay {
        report::complain(path, &faults);
    }
    // Report the sent frames even after an error. If the device is gone, its counters are unknown.
    let counted = counting.finish(sender.sent().frames);
    let (counted, uncounted) = match counted {
        Ok(counted) => (Some(counted), None),
        Err(error) => (None, Some(error)),
    };
    let report = Report::new(arguments, &sender, counted, faults);
    let lost = report.lost();
    report.print(arguments.json)?;
    ended.with_context(|| format!("sending on {device}"))?;
    if let Some(error) = uncounted {
        return Err(error).with_context(|| format!("the counters of {device}"));
    }
    Ok(streams::status(!lost))
}

/// The frames that the command sends.
enum Traffic {
    /// The same frames in a loop.
    Pool(Pool, Faults),
    /// The first frames of a file, then the frames that follow them.
    Stream(Pool, Box<Replay>),
}

fn traffic(arguments: &Arguments, device: Device) -> Result<Traffic> {
    let Some(path) = &arguments.replay else {
        let pool = arguments
            .description()?
            .pool()
            .context("making the frames")?;
        return Ok(Traffic::Pool(pool, Faults::default()));
    };
    let limit = Limit {
        device,
        skip: arguments.skip_long,
    };
    if !arguments.flows_per_loop {
        let read = Pool::replay(path, Some(&limit)).context("reading the capture")?;
        if let Some((pool, faults)) = read {
            return Ok(Traffic::Pool(pool, faults));
        }
    }
    let loops = (arguments.loops() > 0).then_some(arguments.loops());
    let mut replay = Replay::open(path, loops, arguments.flows_per_loop, Some(limit))
        .context("reading the capture")?;
    let first = replay.next_pool().context("reading the capture")?;
    Ok(Traffic::Stream(
        first.context("no packets")?,
        Box::new(replay),
    ))
}

fn plan(arguments: &Arguments, pool: &Pool, stream: bool) -> Result<Plan> {
    let loops = u64::from(arguments.loops());
    // A stream ends by itself after its loops, so only a pool's loops limit the number of frames.
    let looped = (loops > 0 && !stream)
        .then(|| loops.checked_mul(pool.len() as u64))
        .flatten();
    let count = match (arguments.count, looped) {
        (Some(count), Some(looped)) => Some(count.min(looped)),
        (count, looped) => count.or(looped),
    };
    let duration = |seconds| {
        let time = Duration::try_from_secs_f64(seconds);
        time.with_context(|| format!("--seconds {seconds}: not a valid duration"))
    };
    let time = arguments.seconds.map(duration).transpose()?;
    let until = match (count, time) {
        (Some(count), Some(time)) => Until::First(count, time),
        (Some(count), None) => Until::Frames(count),
        (None, Some(time)) => Until::Elapsed(time),
        (None, None) if loops > 0 && !stream => bail!("the number of loops is too large"),
        (None, None) => Until::Stopped,
    };
    let pace = match (arguments.rate, arguments.gaps, arguments.speed) {
        (Some(rate), options::Gaps::Even, _) => Pace::Even(rate),
        (Some(rate), options::Gaps::Poisson, _) => Pace::Poisson(rate, arguments.seed),
        (None, _, Some(speed)) => Pace::Recorded(speed),
        (None, _, None) => Pace::Top,
    };
    Ok(Plan { until, pace })
}

/// The way of sending. A stream replaces its pool of frames during sending, and only the portable
/// way can do this without a pause.
fn choice(arguments: &Arguments, stream: bool) -> Result<Choice> {
    Ok(match (arguments.live, arguments.portable || stream) {
        (true, false) => Choice::Live,
        (true, true) => bail!(
            "--live: live frames allow at most {} MiB of packets, and no --flows-per-loop; leave --live out",
            fanpcap_gen::POOL_LIMIT >> 20
        ),
        (false, true) => Choice::Portable,
        (false, false) => Choice::Auto,
    })
}

fn send(
    sender: &mut Sender,
    plan: &Plan,
    stop: &AtomicBool,
    progress: &mut Progress,
    more: Option<&mut Replay>,
) -> Result<Sent> {
    let mut watch = |sent: &Sent| progress.tell(sent);
    match more {
        None => sender.send_watched(plan, stop, &mut watch),
        Some(replay) => sender.send_stream(plan, stop, &mut watch, &mut || replay.next_pool()),
    }
}
