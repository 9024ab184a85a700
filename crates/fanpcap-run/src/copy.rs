//! One copy of the application, from its first start to its last end.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fanpcap_group::waiting::Sign;
use fanpcap_linux::netlink::link;
use fanpcap_linux::process::child;
use std::os::unix::process::ExitStatusExt;

use super::arguments;
use super::files::Files;

/// The pause before a restart doubles with each restart, from `DELAY_FIRST` to `DELAY_LAST`.
const DELAY_FIRST: Duration = Duration::from_millis(100);
const DELAY_LAST: Duration = Duration::from_secs(5);

/// If a copy runs for at least this time after a start, the pause before its next start is
/// [`DELAY_FIRST`] again.
const WELL: Duration = Duration::from_secs(10);

/// After this many ends, a copy is not started again. If the copy ran for at least [`WELL`] before
/// it ended, this count begins at 1 again.
const ENDS_MAX: u32 = 10;

/// The number of signals (signal(7)).
const SIGNALS: u8 = 64;

/// How a copy ended after one start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    /// The kernel's wait status.
    pub(crate) status: ExitStatus,
    /// This command had sent the copy a signal before the copy ended.
    pub(crate) told: bool,
    /// The copy will be started again.
    pub(crate) again: bool,
}

impl End {
    /// The exit status as shells report it: 128 and the signal's number for a killed process.
    pub(crate) fn code(&self) -> u8 {
        let killed = || self.status.signal().map(|signal| signal + 128);
        let code = self.status.code().or_else(killed);
        code.and_then(|code| u8::try_from(code).ok())
            .unwrap_or(u8::MAX)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Copy {
    /// Number of the copy, from 0.
    pub(crate) number: usize,
    /// The CPU that the copy runs on.
    pub(crate) cpu: Option<usize>,
    /// The files that the copy may write.
    pub(crate) files: Files,
    /// Files into which this command wrote the captures from the copy's standard output.
    pub(crate) spools: Vec<PathBuf>,
    /// How the copy ended after each start.
    pub(crate) ends: Vec<End>,
    /// Number of starts.
    pub(crate) starts: u32,
    /// Number of members that the copy had had before its last start.
    pub(crate) members_before: usize,
    /// Whether this command has examined why the copy did not join after its last start.
    pub(crate) questioned: bool,
    /// The copy ended too often and will not be started again.
    pub(crate) given_up: bool,
    child: Option<Child>,
    started: Option<Instant>,
    /// Time of the next start; `None` if no start is planned. The first start also waits for the
    /// copies with lower numbers.
    due: Option<Instant>,
    short: u32,
    /// The next start waits until these devices are up. While one is not, a sign shows to other
    /// processes that this copy waits for it.
    awaited: BTreeMap<String, Option<Sign>>,
}

impl Copy {
    /// A copy before its first start.
    pub(crate) fn new(number: usize, cpu: Option<usize>, arguments: &[OsString]) -> Self {
        Self {
            number,
            cpu,
            files: Files::of(arguments, number),
            due: Some(Instant::now()),
            ..Self::default()
        }
    }

    /// Starts the copy. `lead` sets the environment. The caller reads the output from the returned
    /// child.
    ///
    /// # Errors
    /// The application can't be started.
    pub(crate) fn start(
        &mut self,
        command_line: &[OsString],
        lead: impl FnOnce(&mut Command),
    ) -> Result<&mut Child> {
        let mut words = command_line
            .iter()
            .map(|word| arguments::expand(word, self.number));
        let program = words.next().context("no command given")?;
        let mut command = Command::new(&program);
        command
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        lead(&mut command);
        child::bind(&mut command, self.cpu);
        let child = command.spawn().with_context(|| {
            format!(
                "starting copy {}, {}",
                self.number,
                Path::new(&program).display()
            )
        })?;
        self.starts += 1;
        self.started = Some(Instant::now());
        self.due = None;
        self.awaited.clear();
        self.questioned = false;
        Ok(self.child.insert(child))
    }

    /// The process id, while the process runs.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Time since the last start.
    pub(crate) fn age(&self) -> Duration {
        let started = self.started.map(|started| started.elapsed());
        started.unwrap_or_default()
    }

    /// Whether the copy neither runs nor will run again.
    pub(crate) fn is_done(&self) -> bool {
        self.child.is_none() && self.due.is_none()
    }

    /// Whether it is time for the next start: the pause is over, and all awaited devices are up.
    pub(crate) fn is_due(&mut self) -> bool {
        let mut is_due = self.due.is_some_and(|due| due <= Instant::now());
        for (device, sign) in &mut self.awaited {
            let is_up = link::is_up(device);
            // Best effort: without the sign, the copy waits as well.
            let show = || Sign::of_copy(device, self.number).ok();
            *sign = match is_up {
                true => None,
                false => sign.take().or_else(show),
            };
            is_due &= is_up;
        }
        is_due
    }

    /// Whether the next start waits for devices.
    pub(crate) fn awaits_devices(&self) -> bool {
        self.due.is_some() && !self.awaited.is_empty()
    }

    /// The devices that the next start waits for.
    pub(crate) fn awaited(&self) -> impl Iterator<Item = &str> {
        self.awaited.keys().map(String::as_str)
    }

    /// Whether a signal killed the copy after one of its starts. A copy that ends by this command's
    /// signal ends in order, unless that was SIGKILL. If the copy is a shell or timeout(1), its
    /// exit status has the signal of the program that it ran.
    pub(crate) fn was_killed(&self) -> bool {
        let is_signal = |end: &End| (129..=128 + SIGNALS).contains(&end.code());
        let is_in_order = |end: &End| end.told && end.code() != 128 + 9;
        let mut ends = self.ends.iter();
        ends.any(|end| is_signal(end) && !is_in_order(end))
    }

    /// Prevents further starts.
    pub(crate) fn stay_down(&mut self) {
        self.due = None;
        self.awaited.clear();
        if let Some(end) = self.ends.last_mut() {
            end.again = false;
        }
    }

    /// Notes the end of the process, if the process has ended. `told` says whether a signal of this
    /// command ended it. With `again`, plans the next start if the copy failed by itself and has
    /// not ended too often. `lost` are the copy's devices if one of them is gone. Then the copy is
    /// started as soon as they are up, and the end does not count.
    ///
    /// # Errors
    /// waitpid(2) failed.
    pub(crate) fn end(
        &mut self,
        told: impl Fn(ExitStatus) -> bool,
        again: bool,
        lost: impl FnOnce() -> BTreeSet<String>,
    ) -> Result<Option<End>> {
        let Some(child) = &mut self.child else {
            return Ok(None);
        };
        let Some(status) = child.try_wait().context("waiting for a copy")? else {
            return Ok(None);
        };
        self.child = None;
        let told = told(status);
        let may_start = again && !told;
        let lost = if may_start { lost() } else { BTreeSet::new() };
        self.awaited = lost.into_iter().map(|device| (device, None)).collect();
        // dumpcap ends with 0 when its device is removed.
        let again = may_start && (!status.success() || !self.awaited.is_empty());
        self.short = match self.awaited.is_empty() {
            true if self.age() < WELL => self.short + 1,
            true => 1,
            false => 0,
        };
        self.given_up = again && self.short >= ENDS_MAX;
        let again = again && !self.given_up;
        if again {
            let pause = match self.short {
                0 => Duration::ZERO,
                short => delay(short),
            };
            self.due = Some(Instant::now() + pause);
        }
        let end = End {
            status,
            told,
            again,
        };
        self.ends.push(end);
        Ok(Some(end))
    }
}

/// The pause before the next start, after `short` ends in a row.
fn delay(short: u32) -> Duration {
    let doubled = 2_u32.saturating_pow(short.saturating_sub(1));
    DELAY_FIRST.saturating_mul(doubled).min(DELAY_LAST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanpcap_group::waiting;

    fn run(copy: &mut Copy, script: &str) -> End {
        let line = ["sh", "-c", script].map(OsString::from);
        copy.start(&line, |_| {}).unwrap();
        loop {
            if let Some(end) = copy.end(|_| false, true, BTreeSet::new).unwrap() {
                return end;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn ends_as_shells_tell_them_and_numbers_in_arguments() {
        let mut copy = Copy::new(3, None, &[]);
        assert_eq!(run(&mut copy, "exit %i").code(), 3);
        assert!(!copy.was_killed());
        assert_eq!(run(&mut copy, "kill -9 $$").code(), 137);
        assert_eq!(
            (copy.starts, copy.ends.len(), copy.is_done()),
            (2, 2, false)
        );
        copy.stay_down();
        assert!(copy.is_done() && !copy.ends[1].again && copy.was_killed());
        for (status, was_killed) in [(137, true), (255, false), (1, false)] {
            let mut copy = Copy::new(0, None, &[]);
            run(&mut copy, &format!("exit {status}"));
            assert_eq!(copy.was_killed(), was_killed, "{status}");
        }
    }

    #[test]
    fn what_has_done_its_work_is_not_started_again() {
        let mut copy = Copy::new(0, None, &[]);
        assert!(!run(&mut copy, "exit 0").again && copy.is_done());
    }

    #[test]
    fn what_ends_at_once_again_and_again_is_given_up() {
        let mut copy = Copy::new(0, None, &[]);
        for round in 1..=ENDS_MAX {
            assert_eq!(run(&mut copy, "exit 1").again, round < ENDS_MAX);
        }
        assert!(copy.given_up && copy.is_done());
    }

    #[test]
    fn a_copy_whose_device_is_gone_waits_for_it() {
        let mut copy = Copy::new(0, None, &[]);
        let line = ["sh", "-c", "exit 1"].map(OsString::from);
        for device in ["lo", "no-such-device"] {
            let is_there = link::is_up(device);
            for _ in 0..2 * ENDS_MAX {
                copy.start(&line, |_| {}).unwrap();
                let lost = || BTreeSet::from([device.to_owned()]);
                while copy.end(|_| false, true, lost).unwrap().is_none() {
                    std::thread::sleep(Duration::from_millis(1));
                }
                assert!(copy.awaits_devices() && !copy.given_up && !copy.is_done());
                assert_eq!(copy.is_due(), is_there, "{device}");
                let waiting = waiting::all().unwrap();
                let is_shown = waiting.iter().any(|it| it.device == device);
                assert_eq!(is_shown, !is_there, "{device}");
            }
        }
    }

    #[test]
    fn delays_grow_to_their_bound() {
        let delays = [1, 2, 3, 7, 40].map(|short| delay(short).as_millis());
        assert_eq!(delays, [100, 200, 400, 5000, 5000]);
    }
}
