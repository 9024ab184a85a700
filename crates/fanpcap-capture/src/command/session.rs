//! A capture from start to end: the threads, the line of each second, the summary.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fanpcap_linux::process::cpu;
use fanpcap_linux::wait::{clock, stop};
use fanpcap_nic::cpus::{self, Choice, Pinning};
use fanpcap_pcap::{Handle, Library};

use super::Arguments;
use super::handles::Source;
use super::interval::{self, Interval};
use super::link::{self, Link, Reading};
use super::slots;
use super::summary::{Group, Summary};
use crate::counter::Counter;
use crate::{Counts, Done, Each, Reader, Savefiles, ThreadCounts, Threads};

/// Captures until a signal, the count, the time limit or the end of the savefile, and prints the
/// figures.
pub(super) fn run(arguments: &Arguments, library: &Library) -> Result<ExitCode> {
    let mut captured = capture(arguments, library, &mut |_| Ok(None))?;
    let summary = summarize(arguments, &mut captured)?;
    match captured.done.into_iter().find_map(|done| done.failed) {
        Some(error) => Err(error),
        None => summary.verdict().map(|()| ExitCode::SUCCESS),
    }
}

/// A capture that has ended. Its handles are still open.
pub(super) struct Captured {
    nanoseconds: u64,
    /// The results of the threads, in the order of their numbers.
    pub(super) done: Vec<Done>,
    /// The device's counters for the time of the capture.
    pub(super) link: Option<link::Counters>,
}

/// A function that returns the callback for a thread's packets. The function is called when the
/// thread's handle is open.
pub(super) type Witness<'a> = &'a mut dyn FnMut(&Handle) -> Result<Option<Each>>;

/// Captures until a signal, the count, the time limit or the end of the savefile.
pub(super) fn capture(
    arguments: &Arguments,
    library: &Library,
    witness: Witness<'_>,
) -> Result<Captured> {
    stop::on_signals().context("catching signals")?;
    let cpus = choose_cpus(arguments)?;
    let link = arguments.device().and_then(Link::of);
    let start = link.as_ref().map_or(Ok(None), Link::read)?;
    let link = link.filter(|_| start.is_some());
    let mut threads = Threads::new(arguments.count);
    let begun = begin(arguments, library, &cpus, &mut threads, witness);
    let watched = begun.and_then(|ready| {
        fanpcap_terminal::streams::note(&format!("{ready}\n"));
        watch(arguments, &threads, link.as_ref())
    });
    // End the threads in the same way as after a signal, even if an error ended the capture.
    stop::request();
    let nanoseconds = clock::monotonic_ns().saturating_sub(threads.start_ns);
    let done = threads.join()?;
    watched?;
    let end = link.as_ref().map_or(Ok(None), Link::read)?;
    Ok(Captured {
        nanoseconds,
        done,
        link: end.zip(start).map(|(end, start)| end.since(start).0),
    })
}

fn choose_cpus(arguments: &Arguments) -> Result<Choice> {
    let allowed = cpu::cpus().context("which CPUs this process may run on")?;
    // If there are several devices, the first one determines the CPUs.
    let devices = arguments.device();
    let device = devices.and_then(|devices| devices.split('^').next());
    let threads = arguments.threads.into();
    let choice = cpus::choose(&arguments.cpus, device, &allowed, threads)?;
    if arguments.cpus != Pinning::None && !arguments.quiet {
        fanpcap_terminal::streams::note(&format!("{}\n", choice.why));
    }
    Ok(choice)
}

/// Opens the threads' handles and starts each thread as soon as its handle is open, so that the
/// thread reads while other handles are opened. Returns the line to print when all threads have
/// their share of the packets.
fn begin(
    arguments: &Arguments,
    library: &Library,
    cpus: &Choice,
    threads: &mut Threads,
    witness: Witness<'_>,
) -> Result<String> {
    let mut source = Source::new(arguments, library)?;
    let mut savefiles = Savefiles::beside(arguments.read.as_deref())?;
    let mut ready = String::new();
    for thread in 0..arguments.threads {
        if stop::is_requested() {
            return Ok(format!(
                "ended when {thread} of {} threads had begun",
                arguments.threads
            ));
        }
        let opened = source.open(thread)?;
        if thread == 0 {
            threads.start_ns = opened.since_ns;
            ready = ready_line(arguments, library, &opened.handle);
        }
        let cpu = cpus.cpus.get(usize::from(thread)).copied().flatten();
        let each = witness(&opened.handle)?;
        let savefile = arguments.write.as_deref();
        let savefile =
            savefile.map(|pattern| savefiles.create(pattern, thread.into(), &opened.handle));
        let limits = (opened.late_max, arguments.work);
        let counter = Counter::new(savefile.transpose()?, each, limits, opened.handle.breaker());
        threads.start(Reader {
            number: thread.into(),
            counter,
            handle: opened.handle,
            offline: arguments.read.is_some(),
            cpu,
            timeout: Duration::from_millis(arguments.timeout.unsigned_abs().max(10).into()),
        })?;
    }
    threads.await_begin();
    Ok(ready)
}

fn ready_line(arguments: &Arguments, library: &Library, first: &Handle) -> String {
    let datalink = first.datalink();
    let name = library
        .datalink_name(datalink)
        .unwrap_or(datalink.to_string());
    let file = arguments
        .read
        .as_ref()
        .map(|file| file.display().to_string());
    let source = arguments
        .device()
        .map(str::to_owned)
        .or(file)
        .unwrap_or_default();
    let group = group(arguments, first);
    let group = group.map_or(String::new(), |group| format!(" of group {group}"));
    let threads = arguments.threads;
    let plural = if threads == 1 { "" } else { "s" };
    format!("capturing on {source}, link-type {name}, {threads} thread{plural}{group}")
}

/// Prints a line once a second until the capture ends.
fn watch(arguments: &Arguments, threads: &Threads, link: Option<&Link>) -> Result<()> {
    let start = Instant::now();
    let mut screen = Screen::new(arguments);
    // The rates do not include packets that arrived while the handles were opened.
    let mut last = Last {
        told: threads.ask(),
        link: link.map_or(Ok(None), Link::read)?,
    };
    let mut tick = SECOND;
    loop {
        let until = arguments.seconds.map_or(tick, |end| end.min(tick));
        if is_ended_before(start + until)? {
            return Ok(());
        }
        if until == tick {
            // Read the counters even with --quiet: libpcap's counters must not wrap between two
            // readings.
            let interval = last.interval(threads, link)?;
            screen.show(&interval)?;
        }
        if arguments.seconds == Some(until) {
            return Ok(());
        }
        // Skip the ticks that have passed.
        while tick <= start.elapsed() {
            tick += SECOND;
        }
    }
}

const SECOND: Duration = Duration::from_secs(1);

/// Waits until `time`. Returns true if the capture is to end before `time`.
fn is_ended_before(time: Instant) -> Result<bool> {
    loop {
        let left = time.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(stop::is_requested());
        }
        if stop::wait(left).context("waiting for the next second")? {
            return Ok(true);
        }
    }
}

/// The counters when the last line was printed.
struct Last {
    told: Vec<ThreadCounts>,
    link: Option<Reading>,
}

impl Last {
    /// The interval since the last line was printed.
    fn interval(&mut self, threads: &Threads, link: Option<&Link>) -> Result<Interval> {
        let told = threads.ask();
        let link = link.map_or(Ok(None), Link::read)?;
        let rates = link.zip(self.link).map(|(now, before)| now.since(before));
        let interval = Interval::between(threads.start_ns, &self.told, &told, rates);
        *self = Self { told, link };
        Ok(interval)
    }
}

fn summarize(arguments: &Arguments, captured: &mut Captured) -> Result<Summary> {
    let done = &mut captured.done;
    let threads: Vec<Counts> = done.iter().map(|done| done.counts).collect();
    // All handles are still open, so all members are still in the group.
    let group = done.first_mut().and_then(|first| {
        let number = group(arguments, &first.handle)?;
        let stats = first.handle.fanout_stats();
        let device = arguments.device().and_then(link::base);
        let slots = device.and_then(|device| slots::own(&device, number));
        Some(Group::of(number, stats, slots))
    });
    let summary = Summary::of(captured.nanoseconds, &threads, captured.link, group);
    if arguments.json {
        print(&[summary.json()?])?;
    } else {
        print(&summary.text(arguments.count))?;
    }
    Ok(summary)
}

/// The handle's group; `None` for several devices. A handle on several devices has a group on each,
/// but libpcap returns only the group on the first device.
fn group(arguments: &Arguments, handle: &Handle) -> Option<u16> {
    let device = arguments.device().unwrap_or_default();
    handle.group().filter(|_| !device.contains('^'))
}

/// Prints a line for each interval.
struct Screen {
    quiet: bool,
    json: bool,
    pretty: bool,
    rows: usize,
}

impl Screen {
    fn new(arguments: &Arguments) -> Self {
        Self {
            quiet: arguments.quiet,
            json: arguments.json,
            pretty: io::stdout().is_terminal(),
            rows: 0,
        }
    }

    fn show(&mut self, interval: &Interval) -> Result<()> {
        if self.quiet {
            return Ok(());
        }
        if self.json {
            return print(&[interval.json()?]);
        }
        let mut rows = interval.rows(self.pretty);
        // On a terminal the heading scrolls away, so it is repeated. In a file, one heading at the
        // top is enough.
        if self.rows == 0 || (self.pretty && self.rows >= PAGE) {
            self.rows = 0;
            rows.insert(0, interval::heading());
        }
        self.rows += rows.len();
        print(&rows)
    }
}

/// Number of rows on a terminal until the heading is repeated.
const PAGE: usize = 40;

fn print(lines: &[String]) -> Result<()> {
    let mut out = io::stdout().lock();
    for line in lines {
        writeln!(out, "{line}").context("writing to standard output")?;
    }
    out.flush().context("writing to standard output")
}
