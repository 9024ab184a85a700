//! Starts other projects' applications at the wire's far end, and reads their counters.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fanpcap_testbed::member::{Ended, libraries_of};
use fanpcap_testbed::{Member, Program};

use crate::bench::Bench;
use crate::cores::{Cores, Occupant};
use crate::cpu;
use crate::figure::Sample;
use crate::generator::{Load, Sent};
use crate::libraries::Side;
use crate::pause::pause;
use crate::refusal::{Counters, Refusal, Tally, generator_share};
use crate::trial::SETTLE;
use crate::trial::{sample, with_share};

/// How an application reads and ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    /// The signal that ends the application, without SIG.
    pub(crate) signal: &'static str,
    /// Time that the application gets after the last frame to read the rest of its ring.
    pub(crate) grace: Duration,
    /// Whether the application uses a whole core even when there is nothing to read.
    pub(crate) polls: bool,
}

/// The message for an application that is not installed; `None` if it is installed.
pub(crate) fn missing(program: &str, package: &str) -> Option<String> {
    let path = env::var_os("PATH").unwrap_or_default();
    let runs = |file: std::path::PathBuf| {
        fs::metadata(file)
            .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    let found = env::split_paths(&path).any(|directory| runs(directory.join(program)));
    (!found).then(|| format!("not installed (package {package})"))
}

/// An application for the far end, on one library and one core. It prints `ready` as soon as it
/// captures.
pub(crate) fn program(
    bench: &Bench,
    side: Side,
    cpu: usize,
    name: &str,
    ready: &'static str,
) -> Program {
    let cpu = cpu.to_string();
    bench
        .libraries()
        .program(side, name.as_ref(), ready, Some(&cpu))
}

/// Starts an application at the far end. Checks that an application on libpcap has loaded the right
/// library.
pub(crate) fn start(bench: &Bench, side: Option<Side>, program: Program) -> Result<Member> {
    let member = bench.wire.at_far(|| program.start(&bench.scratch))?;
    if let Some(side) = side {
        let libraries = libraries_of(member.pid())?;
        ensure!(
            bench.libraries().is_library_of(side, &libraries),
            "a program for {} ran on {libraries:?}",
            side.name()
        );
    }
    Ok(member)
}

/// Floods a started application and ends it.
pub(crate) fn flood(
    bench: &Bench,
    len: usize,
    member: Member,
    manner: Manner,
    tally: impl FnOnce(&Ended, u64) -> Result<Tally>,
) -> Result<Result<Sample, Refusal>> {
    let before = bench.arrived()?;
    pause(SETTLE)?;
    let occupant = Occupant {
        pid: member.pid(),
        cpu: Some(bench.reader_cpu),
    };
    let cores = Cores::watch(bench, &[occupant])?;
    // The runs are short because there are many applications.
    let load = Load::flood(len, bench.way, bench.time / 2);
    let (sent, times) = bench.generate_for(load, member.pid())?;
    let undisturbed = cores.undisturbed(&sent, false)?;
    bench.stray()?;
    pause(manner.grace)?;
    let cpu_ns = reader_time(&member, manner, &sent, times)?;
    let arrived = bench.arrived()?.since(before);
    member.signal(manner.signal)?;
    let tally = tally(&member.wait()?, arrived.received)?;
    let counters = Counters::new(sent.frames, arrived, tally);
    let alone = bench.alone(generator_share(sent.share()));
    let accepted = counters.agree().and(undisturbed).and(alone);
    Ok(accepted.map(|()| with_share(sample(&sent, &counters, cpu_ns), &counters)))
}

/// CPU time of all threads from the first frame on, in nanoseconds. The time of an application that
/// waits is read after its ring is drained; while it waits it uses no time. The time of an
/// application that polls ends with the last frame, because afterwards it would use CPU time
/// without packets.
fn reader_time(
    member: &Member,
    manner: Manner,
    sent: &Sent,
    (first, last): (u64, u64),
) -> Result<u64> {
    if manner.polls {
        return Ok(within(sent.nanoseconds, first, last));
    }
    let drained = u64::try_from(cpu::of_all_threads(member.pid())?.as_nanos())?;
    Ok(drained.saturating_sub(first))
}

/// Limits the CPU time of a polling thread to the time that has passed on the clock. The kernel
/// updates a running thread's time at its ticks, so the difference may be a tick too large.
fn within(wall: u64, first: u64, last: u64) -> u64 {
    last.saturating_sub(first).min(wall)
}

/// The whole number right before `what` in an application's output.
pub(crate) fn number_before(said: &str, what: &str) -> Result<u64> {
    let number = |line: &str| {
        let (before, _) = line.split_once(what)?;
        before.split_whitespace().next_back()?.parse().ok()
    };
    said.lines()
        .rev()
        .find_map(number)
        .with_context(|| format!("no number before {what:?} in:\n{said}"))
}

/// The whole number right after the last `what`.
pub(crate) fn number_after(said: &str, what: &str) -> Result<u64> {
    let number = |line: &str| {
        let (_, after) = line.split_once(what)?;
        let digits = after.trim_start();
        let end = digits.find(|c: char| !c.is_ascii_digit());
        digits[..end.unwrap_or(digits.len())].parse().ok()
    };
    said.lines()
        .rev()
        .find_map(number)
        .with_context(|| format!("no number after {what:?} in:\n{said}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_in_closing_words() {
        let said = "\r        1000  packets incoming (0 unread on exit)\n\r          70  packets passed filter\n";
        assert_eq!(number_before(said, "packets incoming").unwrap(), 1000);
        assert_eq!(number_before(said, "packets passed").unwrap(), 70);
        assert!(number_before(said, "packets lost").is_err());
        let said = "RX-packets: 12   RX-dropped: 3   RX-total: 15\n RX-packets: 40 \n";
        assert_eq!(number_after(said, "RX-packets:").unwrap(), 40);
        assert_eq!(number_after(said, "RX-dropped:").unwrap(), 3);
    }

    #[test]
    fn a_spinning_thread_has_one_core_at_the_most() {
        assert_eq!(within(1000, 5000, 5900), 900);
        assert_eq!(within(1000, 5000, 6004), 1000);
        assert_eq!(within(1000, 5000, 4000), 0);
    }

    #[test]
    fn a_program_is_installed_or_named_with_its_package() {
        assert_eq!(missing("sh", "dash"), None);
        let why = missing("no-such-program", "no-package").unwrap();
        assert!(why.contains("package no-package"));
    }
}
