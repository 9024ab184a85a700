//! `fanpcap run`: runs copies of an application that share one stream of packets.
#![forbid(unsafe_code)]

mod founding;
mod group;
mod not_joined;
mod ledger;
mod options;
mod arguments;
mod checks;
mod files;
mod copy;
mod output;
mod program;
mod progress;
mod summary;
mod open_captures;
mod processes;
mod guard;
mod orphans;
pub mod serve;
mod left_behind;
mod written;
mod waiting;
mod supervise;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use clap::Args;
use fanpcap_config::driver::Driver;
use fanpcap_install::library;
use fanpcap_linux::interface;
use fanpcap_linux::process::{child, cpu};
use fanpcap_merge as merge;
use fanpcap_nic::cpus;
use fanpcap_snapshot::on;
use fanpcap_terminal::group_number;

use group::GroupMode;
use output::Output;
use summary::{OfCopy, OfMerge, Summary};
use supervise::{Run, Supervised};

/// Runs copies of a program that share one stream of packets
///
/// Each copy gets its share of the packets, according to the mode (--fanout). The program is
/// unmodified. In its arguments, %i is the copy's number, from 0, and %% is a percent sign.
///
/// The output of the copies is merged line by line. --merge merges their captures in order of time:
/// fanpcap run -n 4 --merge all.pcapng -- tcpdump -i eth0 -w %i.pcap
///
/// The summary says for each copy how many packets it received, and where packets were lost. A copy
/// that joins the group, or sets its filter, rejects its share of the packets for some
/// microseconds. The kernel does not count these packets: "at most N packets are in no figure" is
/// an upper bound, from the device's counters. Packets that come while no copy is in the group,
/// because all copies are being restarted, have their own line. Packets of a merged file that are
/// out of order are `late` in the JSON: another copy reads the packets that a dead copy left in its
/// ring after newer packets of its own. If a copy was killed while it had a packet, this packet
/// counts as taken. A program that is killed loses what it has taken and not written to its file:
/// with --merge, or if a copy was killed, this command counts the packets in the captures named
/// with %i, and says how many are missing.
///
/// Copies join in the order of their numbers: each starts when the copy before it has its share of
/// the packets. If a copy needs more than 1 second for this, or all copies together more than 5
/// seconds, the remaining copies start at once.
///
/// Without --fanout, variables and the config file set the mode of the copies' group: fanout@5
/// counts with --group 5. If they set none, the mode is flow, or hash where flow can't be loaded.
/// This command loads a steering program, such as flow, before the copies start, if it has CAP_BPF
/// and knows the device. Then programs that have given up CAP_BPF, such as dumpcap, can be copies,
/// too.
///
/// A copy that captures outside the group sees all packets. Examples are programs that read packet
/// sockets themselves, and copies that are each alone in a group. If a copy captures outside the
/// group, this command ends all copies, unless --allow-outsiders is given.
///
/// Signals are passed on to all copies. At the first SIGINT or SIGTERM, the copies leave the group
/// together, take the packets that are in their rings, and then get the signal. This takes at most
/// their read time-out, and not more than about 1 second unless they still take packets. A second
/// signal is passed on at once, the next one kills the copies. This command ends everything that
/// its copies have started, so run daemons in the foreground. The exit status is the status of
/// the first copy that failed by itself, or 128 plus the signal's number if that copy was killed.
/// The exit status is 1 if the copies ran for some seconds and none was in the group, 127 if the
/// program is not found, and 126 if the program can't be run.
#[derive(Args, Debug)]
#[command(override_usage = "fanpcap run [OPTIONS] [--] <COMMAND>...")]
pub struct Arguments {
    /// Copies
    #[arg(short = 'n', long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=256))]
    copies: u16,
    /// How packets are shared: flow, hash, lb, rnd, cpu, rollover or qm, with options such as
    /// +defrag; a steering program, or file:PATH of one. Given several times, the first is for copy
    /// 0, the second for copy 1, and the last for all further copies: these may differ in +weight
    /// and +class [default: the group's own; in a new group flow, or hash where that can't be
    /// loaded]
    #[arg(long, value_name = "MODE")]
    fanout: Vec<String>,
    /// The copies' group [default: a free one]
    #[arg(short, long, value_name = "NUMBER", value_parser = group_number)]
    group: Option<u16>,
    /// The CPUs that the copies run on: auto (near the device, but not its receiving CPUs), a list,
    /// or none
    #[arg(long, value_name = "CPUS", default_value = "auto")]
    cpus: String,
    /// The device, if the program's arguments don't name it with -i or --interface
    #[arg(short = 'i', long, alias = "device", value_name = "DEV")]
    interface: Option<String>,
    /// Restarts a copy that was killed or ended with an error. A file that the copy wrote is kept
    /// as NAME.1, .2 and so on. In modes that are steering programs, such as flow, the new copy
    /// gets the flows and unread packets of the old copy, if the new copy joins within 2 seconds. A
    /// copy that ended because its device is gone is started when the device is up again
    #[arg(long)]
    restart: bool,
    /// Merges the captures of the copies into FILE. The copies write their captures to files named
    /// with %i, or to standard output. FILE is pcapng if its name ends with pcapng, otherwise pcap.
    /// The FILE - is standard output, written when all copies have ended
    #[arg(long, value_name = "FILE")]
    merge: Option<PathBuf>,
    /// Continues even if a copy has not joined the group and sees all packets
    #[arg(long)]
    allow_outsiders: bool,
    /// Begins each line of the copies' output with their number
    #[arg(long)]
    prefix: bool,
    /// Writes the summary as JSON, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Shows neither progress nor summary
    #[arg(short, long)]
    quiet: bool,
    /// Ends copies whose command was killed
    #[arg(long, hide = true)]
    guard: bool,
    /// The program and its arguments
    #[arg(
        trailing_var_arg = true,
        value_name = "COMMAND",
        required_unless_present = "guard"
    )]
    command: Vec<OsString>,
}

/// Runs `fanpcap run` until its copies have ended.
///
/// # Errors
/// The arguments are wrong, or the copies can't be started, watched or summed up.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    if arguments.guard {
        return Ok(guard::stand());
    }
    if let Err(error) = program::find(&arguments.command) {
        fanpcap_terminal::streams::note(&format!("fanpcap: {}\n", error.text));
        return Ok(ExitCode::from(error.code));
    }
    let wanted = cpus::Pinning::parse(&arguments.cpus)
        .with_context(|| format!("--cpus {:?}", arguments.cpus))?;
    let library = library::directory()?;
    let group = arguments.group.map_or_else(group::free, Ok)?;
    let copies = usize::from(arguments.copies);
    let device = checks::device(arguments.interface.as_deref(), &arguments.command)?;
    ensure!(
        arguments.fanout.len() <= copies,
        "--fanout: more modes than copies: -n sets the number of copies"
    );
    let first = arguments.fanout.first().map(String::as_str);
    let engine = founding::asked_engine(group, device.as_deref(), first);
    let named_engine = device
        .as_deref()
        .and_then(|it| arguments::named_engine(&arguments.command, it));
    let poller = checks::poller(group, named_engine, device.as_deref(), first);
    checks::ensure_accounted(poller)?;
    let is_on_engine = engine.is_some() || named_engine.is_some() || poller.is_some();
    let fanout = mode(arguments, (group, device.as_deref()), is_on_engine, poller)?;
    checks::files(&arguments.command, copies, arguments.merge.is_some())?;
    prepare(arguments)?;
    let allowed = cpu::cpus().context("which CPUs this process may run on")?;
    let choice = cpus::choose(&wanted, device.as_deref(), &allowed, copies)?;

    let output = Arc::new(output(arguments)?);
    announce(
        arguments,
        (group, &fanout, engine.or(poller)),
        &choice.why,
        &output,
    );
    if arguments.group.is_none() {
        tell_of_settings(device.as_deref(), &output);
    }
    let warning = || waiting::warning(&arguments.command, group, device.as_deref(), first);
    if let Some(warning) = (!arguments.restart).then(warning).flatten() {
        output.say(&warning);
    }
    let ifindex = device.as_deref().and_then(interface::index);
    let founder = founding::of_copies(group, device.as_deref(), named_engine, fanout.variable(0));
    let run = Run {
        device: device.as_deref(),
        named_engine,
        poller,
        devices: ifindex.as_slice(),
        arguments,
        library: &library,
        group,
        fanout: &fanout,
        output: &output,
    };
    let code = match run.supervise(&choice.cpus, founder) {
        Ok(supervised) => finish(arguments, group, &output, &supervised),
        Err(error) => {
            output.say(&format!("{error:#}"));
            program::code(&error)
        }
    };
    left_behind::tidy(&output);
    output.close();
    Ok(ExitCode::from(code))
}

/// The mode of the copies' group, which they can join as far as this command knows. `device` is
/// their device, and `poller` their engine if they have a poller.
///
/// # Errors
/// --fanout is wrong, or the group has another mode or device.
fn mode(
    arguments: &Arguments,
    (group, device): (u16, Option<&str>),
    is_on_engine: bool,
    poller: Option<Driver>,
) -> Result<GroupMode> {
    let fanout = match group::parse_modes(&arguments.fanout, is_on_engine)? {
        Some(modes) => modes,
        None => group::by_settings(group, device, poller),
    };
    // The kernel knows nothing of a poller's groups.
    if poller.is_none() {
        checks::group(group, &fanout, device)?;
    }
    Ok(fanout)
}

/// Checks that this command can write its files, and raises its limit of descriptors.
///
/// # Errors
/// A file can't be written.
fn prepare(arguments: &Arguments) -> Result<()> {
    if let Some(to) = &arguments.merge {
        merge::ensure_writable(to).context("--merge")?;
    }
    // This process holds several descriptors for each copy, so it raises its limit of open files.
    // If the limit can't be raised, the first call that lacks a descriptor reports the error.
    let _ = child::raise_open_files();
    if let Some(path) = &arguments.json {
        summary::ensure_writable(path)?;
    }
    Ok(())
}

fn output(arguments: &Arguments) -> Result<Output> {
    let to_stdout = arguments.merge.as_deref() == Some(Path::new("-"));
    Output::new(!arguments.quiet, to_stdout)
}

/// Prints the group, the mode, the engine and the number of copies, and warns of settings that the
/// user may not have meant.
fn announce(
    arguments: &Arguments,
    (group, fanout, engine): (u16, &GroupMode, Option<Driver>),
    why: &str,
    output: &Output,
) {
    let copies = arguments.copies;
    let mut mode = fanout.text.clone();
    if let Some(engine) = engine {
        mode = on(engine.name(), &mode);
    }
    if let Some(why) = &fanout.why {
        mode = format!("{mode} ({why})");
    }
    if !arguments.quiet {
        let plural = if copies == 1 { "copy" } else { "copies" };
        output.say(&format!(
            "{copies} {plural} in group {group}, {mode}; {why}"
        ));
    }
    for name in checks::ignored(fanout.variable(0).is_some()) {
        output.say(&format!(
            "{name} is set and does nothing here: the copies are in group {group}, {mode}"
        ));
    }
    let shared = || arguments::shared_file(&arguments.command);
    let is_known = options::known_program(&arguments.command).is_some();
    if let Some(file) = shared().filter(|_| copies > 1 && !is_known) {
        output.say(&format!(
            "all copies write the file {}: put the copy's number, %i, into the file's name",
            Path::new(file).display()
        ));
    }
    for member in group::members(group) {
        output.say(&format!(
            "group {group} already has another member, which also gets a share of the packets: {member}"
        ));
    }
}

/// Names the group that the config file gives the device, which the copies do not join.
fn tell_of_settings(device: Option<&str>, output: &Output) {
    let configured = device.and_then(|device| Some((device, founding::configured(device)?)));
    if let Some((device, (group, origin))) = configured {
        output.say(&format!(
            "{origin}: {device} has group {group}, which these copies do not join: '--group {group}' makes them \
             its members, in its mode"
        ));
    }
}

/// Merges the captures, writes the summary and returns the exit status.
fn finish(arguments: &Arguments, group: u16, output: &Output, supervised: &Supervised) -> u8 {
    let sources = supervised.sources();
    let paths: Vec<PathBuf> = sources.iter().map(|(_, path)| path.clone()).collect();
    let merged = match &arguments.merge {
        None => None,
        Some(_) if paths.is_empty() => Some(Err(nothing_to_merge(supervised))),
        Some(to) => Some(merge::merge(&paths, to)),
    };
    let done = merged.as_ref().and_then(|merged| merged.as_ref().ok());
    let of_merge = arguments.merge.as_deref().zip(done);
    let of_merge = of_merge.map(|(to, done)| OfMerge::new(to, done));
    let counted = match (&arguments.merge, done) {
        (None, _) => written::count(&arguments.command, &supervised.copies, &paths),
        (Some(_), done) => done.map(|done| Ok(done.parts.iter().map(|it| it.packets).collect())),
    };
    let copies = supervised.copies.iter().map(|copy| {
        let counted = counted.as_ref().and_then(|counted| counted.as_ref().ok());
        let written = counted.map(|counted| written(copy.number, &sources, counted));
        OfCopy::new(copy, supervised.accounts[copy.number], written)
    });
    let copies = (copies.collect(), supervised.absent, supervised.ceiling);
    let mut summary = Summary::new(group, supervised.mode.clone(), copies, of_merge);
    summary.steered_nowhere = supervised.nowhere;
    summary.poller = supervised.at_poller;
    if !arguments.quiet {
        output.say(&summary.text());
    }
    if done.is_some() {
        tell_of_others(supervised, output);
    }
    let copies = &supervised.copies;
    if let Some(lack) = written::lack(&summary, &arguments.command, copies, counted.as_ref()) {
        output.say(&lack);
    }
    tell_of_shares(arguments, group, output, supervised);
    let mut errors = Vec::new();
    match merged.transpose() {
        Ok(None) => {}
        Ok(Some(_)) => supervised.remove_spools(),
        Err(error) => {
            if is_broken_pipe(&error) {
                // The reader of standard output has closed it and wants no more packets, so the
                // captures need not be kept.
                supervised.remove_spools();
            }
            errors.push(format!("{:#}", error.context(kept(&paths))));
        }
    }
    errors.extend(supervised.failures.error.clone());
    if let Some(Err(error)) = arguments.json.as_deref().map(|path| summary.write(path)) {
        errors.push(format!("{error:#}"));
    }
    for error in &errors {
        output.say(error);
    }
    if errors.is_empty() {
        supervised.code()
    } else {
        1
    }
}

/// Warns of copies that never got a share of the group's packets.
fn tell_of_shares(arguments: &Arguments, group: u16, output: &Output, supervised: &Supervised) {
    for copy in &supervised.without_share {
        output.say(&format!(
            "copy {copy} never had a share of the group's packets: its application has never looked for packets"
        ));
    }
    let is_brief = supervised.had_no_members && supervised.code() == 0;
    let says_so = !arguments.quiet && !arguments.allow_outsiders;
    if supervised.none_joined || (is_brief && says_so) {
        output.say(&format!(
            "no copy was ever in group {group}: no copy captured its share of the packets"
        ));
    }
}

/// Warns of files that are not merged.
fn tell_of_others(supervised: &Supervised, output: &Output) {
    let copies = supervised.copies.iter();
    for path in copies.flat_map(|copy| copy.files.no_captures()) {
        output.say(&format!(
            "--merge: {} is left out, because it is no capture",
            path.display()
        ));
    }
}

/// The number of packets in all captures of a copy. `counted` has the number for each source.
fn written(copy: usize, sources: &[(usize, PathBuf)], counted: &[u64]) -> u64 {
    let of_copy = sources
        .iter()
        .zip(counted)
        .filter(|((of, _), _)| *of == copy);
    of_copy.map(|(_, packets)| packets).sum()
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io = error
        .chain()
        .find_map(|cause| cause.downcast_ref::<io::Error>());
    io.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

fn nothing_to_merge(supervised: &Supervised) -> anyhow::Error {
    let copies = supervised.copies.iter();
    let others = names(copies.flat_map(|copy| copy.files.no_captures()));
    if others.is_empty() {
        anyhow::anyhow!(
            "--merge: no copy wrote a capture; name files with %i (-w %i.pcap), or write to standard output (-w -)"
        )
    } else {
        anyhow::anyhow!(
            "--merge: the copies wrote files, but none of them is a capture: {}",
            others
        )
    }
}

fn names(paths: impl Iterator<Item = PathBuf>) -> String {
    let names: Vec<String> = paths.map(|path| path.display().to_string()).collect();
    names.join(", ")
}

fn kept(paths: &[PathBuf]) -> String {
    let names = names(paths.iter().filter(|path| path.exists()).cloned());
    if names.is_empty() {
        "nothing is merged".to_owned()
    } else {
        format!("nothing is merged; the copies' files are {names}")
    }
}
