//! `fanpcap tune`: shows how a device should receive for captures, makes these changes, and undoes
//! them.

mod text;
mod measure;
mod put_back;
mod adapt;

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use fanpcap::overview::Overview;
use fanpcap_linux::netlink::link;
use fanpcap_linux::process::pidfd::Process;
use fanpcap_linux::wait::stop;
use fanpcap_nic::apply::{self, Tried};
use fanpcap_nic::device::Device;
use fanpcap_nic::facts::Facts;
use fanpcap_nic::journal::{Hold, Journal, Undone, Wish};
use fanpcap_nic::plan::{self, Wishes};
use fanpcap_nic::settings::Settings;
use fanpcap_pcap::compile_expression;
use fanpcap_snapshot::{Socket, Source, device_of};
use fanpcap_terminal::{DeviceArgument, streams};

use crate::doctor::{is_no_interface, long_packets};
use adapt::Which;
use measure::Measured;
use text::say;

/// Sets up how a device receives for captures, or undoes that
///
/// Without options, the command only shows the device's settings, which of them it would change,
/// and why.
///
/// Each change is written to a journal before it is made, and verified by reading it back. When the
/// command undoes changes, it leaves alone values that another program has changed since.
#[derive(Args, Debug)]
#[command(mut_arg("device", |it| it.required_unless_present_any(["restore", "interface"])))]
pub struct Arguments {
    #[command(flatten)]
    device: DeviceArgument,
    /// Make the changes; they stay until --restore
    #[arg(long, conflicts_with = "restore")]
    apply: bool,
    /// Undo the changes of --apply, of applications' calls and of ended processes; on all devices,
    /// if no device is named
    #[arg(long)]
    restore: bool,
    /// Wait until this process or this command ends, then undo the changes
    #[arg(long = "while", value_name = "PID", requires = "apply")]
    while_runs: Option<u32>,
    /// Run a shell command before and after the changes, and print how many packets were lost
    /// during each run; undo the changes if the second run lost more
    #[arg(
        long = "for",
        value_name = "COMMAND",
        value_parser = NonEmptyStringValueParser::new(),
        requires = "apply",
        conflicts_with = "while_runs"
    )]
    for_command: Option<String>,
    /// Move entries of the indirection table from busy receive queues to others until a signal
    /// comes, then restore the table
    ///
    /// Only entries without live flows move. With --adapt=all, entries with live flows move too:
    /// this levels the queues within seconds, but the packets of a flow may be reordered when its
    /// entry moves. Each round is printed in a line, with the moves as entry:old>new queue.
    #[arg(
        long,
        value_name = "WHICH",
        value_enum,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "idle",
        conflicts_with_all = ["apply", "restore", "facts", "queues", "threads", "monitor"]
    )]
    adapt: Option<Which>,
    /// End --adapt after this many rounds
    #[arg(long, value_name = "N", requires = "adapt")]
    rounds: Option<u32>,
    /// Number of receive queues [default: as few as suffice, on at most half of the cores]
    #[arg(long, value_name = "N", conflicts_with = "restore", value_parser = clap::value_parser!(u32).range(1..))]
    queues: Option<u32>,
    /// Let threads poll the queues, even where interrupts could be placed
    #[arg(long, conflicts_with = "restore")]
    threads: bool,
    /// Turn off merging and pause frames even if the host has an address on the device
    #[arg(long, conflicts_with = "restore")]
    monitor: bool,
    /// Also change the device that carries the default route
    #[arg(long, conflicts_with = "restore")]
    force: bool,
    /// Print the facts from which the plan is made, for a bug report
    #[arg(long, conflicts_with_all = ["apply", "restore"])]
    facts: bool,
}

/// Runs `fanpcap tune`.
///
/// # Errors
/// The device can't be read or changed, or the changes can't be undone.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let Some(name) = arguments.device.name() else {
        return put_back::all();
    };
    ensure!(
        !is_no_interface(name),
        "{name} is no network interface, and has no settings of the kernel: 'fanpcap poller' sets \
         its queues and CPUs (--queues, --cpus)"
    );
    let device = Device::open(device_of(name))?;
    if arguments.restore {
        return put_back::one(&device);
    }
    let facts = Facts::of(&device);
    if arguments.facts {
        streams::print(&facts.text())?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(which) = arguments.adapt {
        return adapt::run(&device, &facts, which, arguments);
    }
    let wishes = Wishes {
        queues: arguments.queues,
        threads: arguments.threads,
        monitor: arguments.monitor,
        on_engine: is_on_engine(&device),
        force: arguments.force || !arguments.apply,
    };
    if !arguments.apply {
        return show(&device, &facts, wishes);
    }
    let tuned = Tuning { device, wishes };
    match (&arguments.for_command, arguments.while_runs) {
        (Some(command), _) => tuned.measured(command),
        (None, Some(pid)) => tuned.while_runs(pid),
        (None, None) => tuned.lasting(),
    }
}

fn show(device: &Device, facts: &Facts, wishes: Wishes) -> Result<ExitCode> {
    let mut page = text::facts(facts);
    // A user who may not read the journal may still read the facts and the plan.
    if let Ok(journal) = Journal::open(device) {
        page += &text::journal(&journal, &apply::changed_since(device, &journal));
    }
    let name = &facts.device;
    let plan = plan::plan(facts, wishes).map_err(|error| anyhow!("{name}: {error}"))?;
    page += &plan.text();
    page += &unsegmented(device).unwrap_or_default();
    if facts.has_default_route {
        page += &format!("note: {name} carries the default route: --apply needs --force\n");
    }
    if !plan.steps.is_empty() {
        page += &format!("nothing is changed; 'fanpcap tune {name} --apply' makes these changes\n");
    }
    say(&page)?;
    Ok(ExitCode::SUCCESS)
}

/// Whether the XDP engine takes the device's packets for all its members. If the device has no
/// member, whether it would by the settings.
fn is_on_engine(device: &Device) -> bool {
    let seen = Source::new(Some(&device.name)).and_then(|mut source| source.take());
    let sockets = seen.map(|it| it.sockets).unwrap_or_default();
    let members = sockets.iter();
    let members = members.filter(|it| it.group.is_some() && !it.is_placeholder);
    let mut members = members.peekable();
    if members.peek().is_some() {
        return members.all(Socket::is_on_engine);
    }
    let told = Overview::read(Some(&device.name), Vec::new, &compile_expression);
    let mut plans = told.devices.iter().flatten().map(|it| &it.explained.plan);
    plans.any(|plan| plan.as_ref().is_ok_and(|it| it.on_engine.is_some()))
}

/// A note about a problem that no plan fixes: the XDP engine captures the host's packets before the
/// kernel or the NIC segments them.
fn unsegmented(device: &Device) -> Option<String> {
    let seen = Source::new(Some(&device.name)).and_then(|mut source| source.take());
    let mut sockets = seen.ok()?.sockets.into_iter();
    if !sockets.any(|it| it.captures_sent) {
        return None;
    }
    let cut = long_packets::cut(device.ifindex, &link::links().ok()?)?;
    Some(format!(
        "note: an application captures on the XDP engine, which captures the host's packets before \
         they are cut into segments; '{cut}' makes TCP send packets of the wire's length\n"
    ))
}

/// A device that is being changed.
struct Tuning {
    device: Device,
    wishes: Wishes,
}

impl Tuning {
    /// Undoes changes that a crashed process has left, then plans the new changes and makes them.
    /// Returns whether all new changes succeeded.
    fn make(&self, journal: &mut Journal, wish: Wish<'_>) -> Result<bool> {
        let name = &self.device.name;
        let left = journal.recover(&Settings(&self.device));
        say(&text::undone(name, &left))?;
        let facts = Facts::of(&self.device);
        let plan = plan::plan(&facts, self.wishes).map_err(|error| anyhow!("{name}: {error}"))?;
        let tried = apply::apply(&self.device, journal, wish, &plan);
        let is_done = tried.iter().all(|Tried { result, .. }| result.is_ok());
        say(&text::tried(name, &tried, &plan))?;
        Ok(is_done)
    }

    fn say_how_to_restore(&self) -> Result<()> {
        let name = &self.device.name;
        say(&format!(
            "'fanpcap tune {name} --restore' puts everything back"
        ))?;
        Ok(())
    }

    fn lasting(&self) -> Result<ExitCode> {
        let is_done = self.make(&mut put_back::journal(&self.device)?, Wish::Stays)?;
        self.say_how_to_restore()?;
        Ok(streams::status(is_done))
    }

    fn while_runs(&self, pid: u32) -> Result<ExitCode> {
        let process = Process::open(pid).with_context(|| format!("--while: process {pid}"))?;
        stop::on_signals().context("signals")?;
        let mut journal = put_back::journal(&self.device)?;
        let hold = journal.hold()?;
        let is_done = self.make(&mut journal, Wish::While(&hold))?;
        drop(journal);
        let waited = await_end(&process);
        self.release(hold)?;
        waited.map(|()| streams::status(is_done))
    }

    fn measured(&self, command: &str) -> Result<ExitCode> {
        stop::on_signals().context("signals")?;
        let before = Measured::during(command, self.device.ifindex)?;
        say(&before.text("before"))?;
        let mut journal = put_back::journal(&self.device)?;
        let hold = journal.hold()?;
        let is_done = self.make(&mut journal, Wish::While(&hold))?;
        drop(journal);
        let after = match Measured::during(command, self.device.ifindex) {
            Ok(after) if !stop::is_requested() => after,
            interrupted => {
                self.release(hold)?;
                return interrupted.map(|_| ExitCode::FAILURE);
            }
        };
        say(&after.text("after"))?;
        if after.is_worse_than(&before) {
            say("the second run lost more: all changes are undone")?;
            self.release(hold)?;
            return Ok(ExitCode::FAILURE);
        }
        put_back::journal(&self.device)?.keep(&hold)?;
        self.say_how_to_restore()?;
        Ok(streams::status(is_done))
    }

    fn release(&self, hold: Hold) -> Result<Vec<Undone>> {
        let undone = put_back::journal(&self.device)?.release(&Settings(&self.device), hold);
        say(&text::undone(&self.device.name, &undone))?;
        Ok(undone)
    }
}

/// Waits until the process ends or a signal asks this process to end.
fn await_end(process: &Process) -> Result<()> {
    while !stop::is_requested() {
        let ended = process.ends_within(Some(LOOK));
        let is_interrupted = |error: &io::Error| error.kind() == io::ErrorKind::Interrupted;
        if ended.as_ref().is_err_and(is_interrupted) {
            continue;
        }
        if ended.context("waiting for the process")? {
            break;
        }
    }
    Ok(())
}

/// Interval of checks for a signal.
const LOOK: Duration = Duration::from_millis(200);
