//! A capture from its beginning to its end: threads, the second's tick, the summary.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use fanpcap_linux::pcap::{Break, Handle, Library};
use fanpcap_linux::{process, stop};

use super::counts::Counts;
use super::interval::{self, Interval};
use super::link::{self, Link};
use super::savefile::Savefile;
use super::summary::Summary;
use super::thread::{Done, Reader, Shared, Told};
use super::{Arguments, handles};

/// Captures until a signal, the count, the time or the end of the savefile.
pub(super) fn run(arguments: &Arguments, library: &Library) -> Result<ExitCode> {
    stop::on_signals().context("catching signals")?;
    let link = Meter::new(arguments.interface.as_deref())?;
    let handles = handles::open(arguments, library)?;
    let ready = ready_line(arguments, library, &handles);
    let readers = readers(arguments, handles)?;
    let threads = Threads::start(readers, arguments.count)?;
    eprintln!("{ready}");
    let watched = watch(arguments, &threads, link.as_ref());
    // Whatever went wrong, the threads end in good order.
    stop::request();
    let nanoseconds = process::monotonic_ns().saturating_sub(threads.start_ns);
    let mut done = threads.join()?;
    watched?;
    let counted = link.map_or(Ok(None), |link| link.since_start())?;
    summarize(arguments, nanoseconds, &mut done, counted)?;
    match done.into_iter().find_map(|done| done.failed) {
        Some(error) => Err(error),
        None => Ok(ExitCode::SUCCESS),
    }
}

fn ready_line(arguments: &Arguments, library: &Library, handles: &[Handle]) -> String {
    let first = handles.first();
    let datalink = first.map_or(0, Handle::datalink);
    let name = library
        .datalink_name(datalink)
        .unwrap_or(datalink.to_string());
    let file = arguments
        .read
        .as_ref()
        .map(|file| file.display().to_string());
    let source = arguments.interface.clone().or(file).unwrap_or_default();
    let group = first.and_then(|first| group(arguments, first));
    let group = group.map_or(String::new(), |group| format!(" of group {group}"));
    let threads = handles.len();
    let plural = if threads == 1 { "" } else { "s" };
    format!("capturing on {source}, link-type {name}, {threads} thread{plural}{group}")
}

fn readers(arguments: &Arguments, handles: Vec<Handle>) -> Result<Vec<Reader>> {
    let cpus = arguments.cpus.choose(arguments.threads)?;
    let each = handles.into_iter().zip(cpus).enumerate();
    each.map(|(number, (handle, cpu))| {
        let pattern = arguments.write.as_deref();
        let savefile = pattern.map(|pattern| Savefile::create(pattern, number, &handle));
        Ok(Reader {
            number,
            savefile: savefile.transpose()?,
            handle,
            offline: arguments.read.is_some(),
            cpu,
            work_ns: arguments.work,
            timeout: Duration::from_millis(arguments.timeout.unsigned_abs().max(10).into()),
        })
    })
    .collect()
}

/// The threads that run.
struct Threads {
    shared: Arc<Shared>,
    start_ns: u64,
    ends: Vec<Break>,
    running: Vec<JoinHandle<Done>>,
}

impl Threads {
    fn start(readers: Vec<Reader>, limit: Option<u64>) -> Result<Self> {
        let mut threads = Self {
            shared: Arc::new(Shared::new(readers.len(), limit)),
            start_ns: process::monotonic_ns(),
            ends: readers
                .iter()
                .map(|reader| reader.handle.breaker())
                .collect(),
            running: Vec::new(),
        };
        for reader in readers {
            let shared = Arc::clone(&threads.shared);
            let named = thread::Builder::new().name(format!("capture-{}", reader.number));
            let running = named
                .spawn(move || reader.run(&shared))
                .inspect_err(|_| stop::request());
            threads.running.push(running.context("starting a thread")?);
        }
        Ok(threads)
    }

    /// Ends the threads' waits for packets.
    fn wake(&self) {
        self.ends.iter().for_each(Break::now);
    }

    /// Waits for their ends. What they did, in their order.
    fn join(mut self) -> Result<Vec<Done>> {
        while self.running.iter().any(|thread| !thread.is_finished()) {
            // Again and again: a thread may have been about to wait.
            self.wake();
            thread::sleep(Duration::from_millis(10));
        }
        let panicked = |_| anyhow!("a thread panicked");
        let running = self.running.drain(..);
        running
            .map(|thread| thread.join().map_err(panicked))
            .collect()
    }
}

/// Prints once a second, until there is a reason to end.
fn watch(arguments: &Arguments, threads: &Threads, link: Option<&Meter>) -> Result<()> {
    let start = Instant::now();
    let mut screen = Screen::new(arguments);
    let mut last = Last {
        told: threads.shared.so_far(),
        link: link.map(|link| link.start),
    };
    let mut tick = SECOND;
    loop {
        let until = arguments.seconds.map_or(tick, |end| end.min(tick));
        if is_ended_before(start + until)? {
            return Ok(());
        }
        if until == tick {
            // Even if nobody looks: libpcap's counters must not wrap unseen.
            let interval = last.interval(threads, link)?;
            screen.show(&interval)?;
        }
        if arguments.seconds == Some(until) {
            return Ok(());
        }
        // A second that was missed is not made up for.
        while tick <= start.elapsed() {
            tick += SECOND;
        }
    }
}

const SECOND: Duration = Duration::from_secs(1);

/// Waits until that time; true when somebody asked for the end meanwhile.
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

/// The counters at the last tick.
struct Last {
    told: Vec<Told>,
    link: Option<Reading>,
}

impl Last {
    /// What has happened since then.
    fn interval(&mut self, threads: &Threads, link: Option<&Meter>) -> Result<Interval> {
        let told = threads.shared.ask(|| threads.wake());
        let link = link.map_or(Ok(None), Meter::read)?;
        let rates = link.zip(self.link).map(|(now, before)| {
            let counters = now.counters.since(before.counters);
            (counters, now.at_ns.saturating_sub(before.at_ns))
        });
        let interval = Interval::between(threads.start_ns, &self.told, &told, rates);
        *self = Self { told, link };
        Ok(interval)
    }
}

fn summarize(
    arguments: &Arguments,
    nanoseconds: u64,
    done: &mut [Done],
    link: Option<link::Counters>,
) -> Result<()> {
    let threads: Vec<Counts> = done.iter().map(|done| done.counts).collect();
    // All handles are open still, so that the group is whole.
    let group = match done.first_mut() {
        Some(first) if group(arguments, &first.handle).is_some() => {
            first.handle.fanout_stats().ok()
        }
        _ => None,
    };
    let summary = Summary::of(nanoseconds, &threads, link, group);
    if arguments.json {
        return print(&[summary.json()?]);
    }
    print(&summary.text(arguments.count))
}

/// The handle's group. On several devices it has one on each, of which libpcap tells the first.
fn group(arguments: &Arguments, handle: &Handle) -> Option<u16> {
    let device = arguments.interface.as_deref().unwrap_or_default();
    handle.group().filter(|_| !device.contains('^'))
}

/// Where rates are printed.
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
        // A terminal scrolls; a file has its heading at the top.
        if self.rows == 0 || (self.pretty && self.rows >= PAGE) {
            self.rows = 0;
            rows.insert(0, interval::heading());
        }
        self.rows += rows.len();
        print(&rows)
    }
}

/// Rows below one heading.
const PAGE: usize = 40;

fn print(lines: &[String]) -> Result<()> {
    let mut out = io::stdout().lock();
    for line in lines {
        writeln!(out, "{line}").context("writing to standard output")?;
    }
    out.flush().context("writing to standard output")
}

/// The device's counters, since the beginning.
struct Meter {
    link: Link,
    start: Reading,
}

#[derive(Clone, Copy)]
struct Reading {
    counters: link::Counters,
    at_ns: u64,
}

impl Meter {
    /// None for a device without counters.
    fn new(device: Option<&str>) -> Result<Option<Self>> {
        let Some(link) = device.and_then(Link::of) else {
            return Ok(None);
        };
        let start = read(&link)?;
        Ok(start.map(|start| Self { link, start }))
    }

    fn read(&self) -> Result<Option<Reading>> {
        read(&self.link)
    }

    fn since_start(&self) -> Result<Option<link::Counters>> {
        let now = self.read()?;
        Ok(now.map(|now| now.counters.since(self.start.counters)))
    }
}

fn read(link: &Link) -> Result<Option<Reading>> {
    let at_ns = process::monotonic_ns();
    let counters = link.counters()?;
    Ok(counters.map(|counters| Reading { counters, at_ns }))
}
