//! `fanpcap gen`: makes traffic.

mod options;
mod report;

use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, bail, ensure};
use fanpcap_gen::{
    Choice, Counting, Pace, Plan, Pool, Replay, Sender, Sent, Until, carries_default_route,
};
use fanpcap_linux::{inject, interface, link, stop};

pub(crate) use options::Arguments;
use report::{Progress, Report};

/// Does it.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let device = arguments.device.as_str();
    guard(arguments)?;
    // A device's queue goes by CPU: frames of different queues may overtake each other.
    let core = match arguments.core {
        Some(core) => core,
        None => inject::current_cpu().context("which CPU this is")?,
    };
    inject::pin(core).with_context(|| format!("staying on CPU {core}"))?;
    let stop = stop::on_signals().context("catching signals")?;
    let traffic = traffic(arguments)?;
    let (pool, more) = match traffic {
        Traffic::Pool(pool) => (pool, None),
        Traffic::Stream(first, more) => (first, Some(more)),
    };
    let plan = plan(arguments, &pool, more.is_some())?;
    let choice = choice(arguments, more.is_some())?;
    let mut sender = Sender::open(device, pool, choice).with_context(|| device.to_owned())?;
    let counting = Counting::start(device).with_context(|| format!("the counters of {device}"))?;
    let mut progress = Progress::new(arguments.progress);
    let sent = send(&mut sender, &plan, stop, &mut progress, more);
    progress.end();
    let sent = sent.with_context(|| format!("sending on {device}"))?;
    let counted = counting
        .finish(sent.frames)
        .with_context(|| format!("the counters of {device}"))?;
    let report = Report::new(arguments, &sender, sent, counted);
    if arguments.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        print!("{report}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Nobody floods by mistake the network that the machine is reached by, or all that runs on it.
fn guard(arguments: &Arguments) -> Result<()> {
    let device = arguments.device.as_str();
    let index = interface::find(device).context("looking for the device")?;
    let index = index.with_context(|| format!("there is no device {device} here"))?;
    if arguments.force {
        return Ok(());
    }
    if carries_default_route(device).context("reading the routes")? {
        bail!(
            "{device} carries the default route: traffic there reaches others; \
             if that is what you want, say --force"
        );
    }
    let link = link::get(index).with_context(|| device.to_owned())?;
    ensure!(
        link.flags & IFF_LOOPBACK == 0,
        "{device} is the loopback device, which every program of this machine uses; \
         if that is what you want, say --force"
    );
    Ok(())
}

const IFF_LOOPBACK: u32 = 1 << 3;

/// What is sent.
enum Traffic {
    /// The same frames again and again.
    Pool(Pool),
    /// These, then those of the file that follow.
    Stream(Pool, Replay),
}

fn traffic(arguments: &Arguments) -> Result<Traffic> {
    let Some(path) = &arguments.replay else {
        let pool = arguments.description()?.pool();
        return Ok(Traffic::Pool(pool.context("making the frames")?));
    };
    if !arguments.flows_per_loop {
        if let Some((pool, shortened)) = Pool::replay(path).context("reading the capture")? {
            if shortened > 0 {
                eprintln!(
                    "fanpcap gen: of {shortened} packets {} has only the beginning, which is sent",
                    path.display()
                );
            }
            return Ok(Traffic::Pool(pool));
        }
    }
    let loops = (arguments.loops() > 0).then_some(arguments.loops());
    let mut replay =
        Replay::open(path, loops, arguments.flows_per_loop).context("reading the capture")?;
    let first = replay.next_pool().context("reading the capture")?;
    Ok(Traffic::Stream(first.context("no packets")?, replay))
}

fn plan(arguments: &Arguments, pool: &Pool, stream: bool) -> Result<Plan> {
    let loops = u64::from(arguments.loops());
    let until = match (arguments.count, arguments.seconds) {
        (Some(count), _) => Until::Frames(count),
        (None, Some(seconds)) => Until::Elapsed(options::duration(seconds)?),
        // The stream itself ends after its loops.
        (None, None) if loops > 0 && !stream => {
            let frames = loops.checked_mul(pool.len() as u64);
            Until::Frames(frames.context("so many loops have no end")?)
        }
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

/// A stream changes its pool on the way, which the portable sender does without a pause.
fn choice(arguments: &Arguments, stream: bool) -> Result<Choice> {
    Ok(match (arguments.live, arguments.portable || stream) {
        (true, false) => Choice::Live,
        (true, true) => bail!(
            "--live: live frames take {} MiB of packets at most, and no --flows-per-loop; leave it out",
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
    more: Option<Replay>,
) -> Result<Sent> {
    let mut watch = |sent: &Sent| progress.tell(sent);
    let sent = match more {
        None => sender.send_watched(plan, stop, &mut watch),
        Some(mut replay) => sender.send_stream(plan, stop, &mut watch, &mut || replay.next_pool()),
    };
    Ok(sent?)
}
