//! The copies' group, and the environment that makes them join it.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{self, Command};

use anyhow::{Context, Result, anyhow, bail, ensure};
use fanpcap::overview::{DefaultMode, mode_text};
use fanpcap_config::device::ANY;
use fanpcap_config::driver::Driver;
use fanpcap_config::fanout::Fanout;
use fanpcap_config::mode::Mode;
use fanpcap_config::settings::GroupChoice;
use fanpcap_config::source::Source;
use fanpcap_config::steering::Steering;
use fanpcap_group::record::Record;
use fanpcap_group::roster;
use fanpcap_pcap::compile_expression;

use crate::founding::{self, is_replaced};

/// The smallest number that [`free`] chooses. Users choose smaller numbers by hand.
const FIRST: u16 = 20_000;
const LAST: u16 = 60_000;

/// The fanout mode of the copies, as far as the mode is known before the copies start.
#[derive(Debug)]
pub(crate) struct GroupMode {
    /// The mode, or the steering program in short, for messages.
    pub(crate) text: String,
    /// The reason for this mode, if --fanout does not give it.
    pub(crate) why: Option<String>,
    /// The mode that the copies request; `None` if the library decides at each join.
    pub(crate) asked: Option<Asked>,
    /// The value of PCAP_FANOUT for each copy; further copies get the last one. Empty without
    /// --fanout.
    variables: Vec<String>,
}

impl GroupMode {
    /// The value of PCAP_FANOUT for a copy, if --fanout is given.
    pub(crate) fn variable(&self, copy: usize) -> Option<&str> {
        let variable = self.variables.get(copy).or(self.variables.last());
        variable.map(String::as_str)
    }
}

/// A mode that the copies request: the library joins in this mode or fails.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    /// The kernel's mode.
    pub(crate) mode: Mode,
    /// The digest of the steering program; `None` if the mode is the kernel's own.
    pub(crate) digest: Option<u64>,
}

impl Asked {
    /// Whether the member with this page has the mode.
    pub(crate) fn is_of(&self, page: &Record) -> bool {
        let digest = page.steering.as_ref().map(|running| running.digest);
        page.mode == self.mode && digest == self.digest
    }
}

/// Parses the modes of the copies. `None` if there are none. `is_on_engine` says that the copies
/// will be on an engine other than packet sockets, which has classes.
///
/// # Errors
/// As [`parse_mode`], or the copies would have different steering programs or modes.
pub(crate) fn parse_modes(texts: &[String], is_on_engine: bool) -> Result<Option<GroupMode>> {
    let modes = texts.iter().map(|text| parse_mode(text, is_on_engine));
    let mut modes = modes.collect::<Result<Vec<_>>>()?.into_iter();
    let Some(mut all) = modes.next() else {
        return Ok(None);
    };
    for mode in modes {
        ensure!(
            mode.asked == all.asked,
            "--fanout: all members of a group have one mode, but {} and {} differ; only +weight and +class may differ",
            all.text,
            mode.text
        );
        all.variables.extend(mode.variables);
    }
    all.text = of_copies(&all.variables);
    Ok(Some(all))
}

/// The modes of the copies in short. The last mode is for all further copies.
fn of_copies(modes: &[String]) -> String {
    let last = modes.len().saturating_sub(1);
    if modes.iter().all(|mode| *mode == modes[last]) {
        return modes.last().map_or_else(String::new, |mode| short(mode));
    }
    let named = modes.iter().enumerate().map(|(copy, mode)| match copy {
        copy if copy == last => format!("{} (from copy {copy} on)", short(mode)),
        copy => format!("{} (copy {copy})", short(mode)),
    });
    named.collect::<Vec<_>>().join(", ")
}

/// A mode as it is. Of a steering program with several lines, the first one, without comments.
fn short(text: &str) -> String {
    let lines = text.lines().map(str::trim);
    let mut lines = lines.filter(|line| !line.is_empty() && !line.starts_with("--"));
    let first = lines.next().unwrap_or_default();
    match lines.next() {
        Some(_) => format!("{first} ..."),
        None => first.to_owned(),
    }
}

/// Parses the mode of --fanout, or compiles its steering program, as the library does.
///
/// # Errors
/// The library would refuse `text`.
pub(crate) fn parse_mode(text: &str, is_on_engine: bool) -> Result<GroupMode> {
    let (text, mode, digest) = match Fanout::parse(Source::new("--fanout", text)) {
        Ok(Fanout::Mode(mode)) => (mode.to_string(), mode, None),
        Ok(Fanout::Program(script)) => {
            let steering = match is_on_engine {
                true => Steering::compile_for_engine(&script, &compile_expression),
                false => Steering::compile(&script, &compile_expression),
            };
            let steering = steering.map_err(|report| anyhow!("{report}"))?;
            (
                text.trim().to_owned(),
                script.mode(),
                Some(steering.digest()),
            )
        }
        Err(fault) => bail!("--fanout {text:?}: {fault}"),
    };
    Ok(GroupMode {
        text: short(&text),
        variables: vec![text],
        why: None,
        asked: Some(Asked { mode, digest }),
    })
}

/// The mode of copies without --fanout: the mode of the settings, or the mode that the library
/// would choose now. `poller` is the engine of copies that have a poller. A copy that has given up
/// CAP_BPF may get another mode from the library.
pub(crate) fn by_settings(group: u16, device: Option<&str>, poller: Option<Driver>) -> GroupMode {
    of_settings(group, device).unwrap_or_else(|| {
        let DefaultMode { text, why, .. } = match poller {
            Some(_) => DefaultMode::of_poller(),
            None => DefaultMode::of(device, Some(group), &compile_expression),
        };
        GroupMode {
            text,
            why: Some(why),
            asked: None,
            variables: Vec::new(),
        }
    })
}

/// The mode that a variable or the config file gives the group. `None` if these settings give no
/// mode, or have errors. Each copy reports the errors.
fn of_settings(group: u16, device: Option<&str>) -> Option<GroupMode> {
    let explained = founding::explained(group, device.unwrap_or(ANY), None)?;
    let joined = explained.plan.ok()?.choice?;
    (!joined.is_default).then(|| GroupMode {
        text: of_choice(&joined),
        why: explained.origins.mode,
        asked: Some(Asked {
            mode: joined.mode,
            digest: joined.steering.map(|steering| steering.digest()),
        }),
        variables: Vec::new(),
    })
}

/// The mode of a member in short. A steering program from a file is `file:PATH`.
fn of_choice(joined: &GroupChoice) -> String {
    let whole = mode_text(joined, None);
    let Some(steering) = &joined.steering else {
        return whole;
    };
    // The title of a text is this text in one line. Other titles are names of modes.
    let words = |text: &str| {
        text.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let is_text = words(steering.title()) == words(steering.text());
    match steering.file() {
        Some(file) => file.to_owned(),
        None if is_text => short(steering.text()),
        None => whole,
    }
}

/// A group number that no packet socket of this network namespace uses and no config file names.
///
/// # Errors
/// The kernel does not list groups, or no number is free.
pub(crate) fn free() -> Result<u16> {
    let seen = roster::entries().context("asking the kernel for groups; --group N names one")?;
    let used = seen.iter().filter_map(|seen| seen.socket.fanout);
    let mut used: BTreeSet<u16> = used.map(|fanout| fanout.id).collect();
    for path in config_files() {
        used.extend(numbers(&fs::read_to_string(path).unwrap_or_default()));
    }
    // Two `fanpcap run` that start at the same time begin with different numbers, so that they do
    // not choose the same group.
    let start = FIRST + u16::try_from(process::id() % u32::from(LAST - FIRST))?;
    let mut all = (start..LAST).chain(FIRST..start);
    match all.find(|number| !used.contains(number)) {
        Some(number) => Ok(number),
        None => bail!("no group from {FIRST} to {LAST} is free; --group N names one"),
    }
}

/// The members of a group, each with its process and application if known.
pub(crate) fn members(group: u16) -> Vec<String> {
    let seen = roster::entries().unwrap_or_default().into_iter();
    let of_group = seen.filter(|entry| entry.is_in(group) && !entry.is_placeholder);
    let told = of_group.map(|seen| match seen.page {
        Some(page) => format!("process {} ({})", page.pid, page.program),
        None => "a process without fanpcap's library".to_owned(),
    });
    let all: BTreeSet<String> = told.collect();
    all.into_iter().collect()
}

fn config_files() -> Vec<OsString> {
    let home = env::var_os("HOME").map(|home| Path::new(&home).join(".pcap.conf").into());
    let chosen = env::var_os("PCAP_CONFIG");
    let all = [chosen, Some("/etc/pcap.conf".into()), home];
    all.into_iter().flatten().collect()
}

/// All numbers in a config file. Some of them are not group numbers; [`free`] does no harm when it
/// avoids these, too.
fn numbers(text: &str) -> impl Iterator<Item = u16> {
    text.split(|character: char| !character.is_ascii_digit())
        .filter_map(|digits| digits.parse().ok())
}

/// Makes `command` load our library and join the group. Removes variables of the calling
/// environment that set another group or mode. Sets the mode only if `fanout` gives one: if this
/// function set the default mode, that mode would become a request, and a copy without CAP_BPF
/// could not join. `member` is the copy's name, unless PCAP_MEMBER already gives a name.
pub(crate) fn lead(
    command: &mut Command,
    library: &Path,
    (group, fanout): (u16, Option<&str>),
    member: Option<String>,
) {
    for (name, _) in env::vars_os().filter(|(name, _)| is_replaced(name, fanout.is_some())) {
        command.env_remove(&name);
    }
    let mut directories = library.as_os_str().to_owned();
    if let Some(before) = env::var_os("LD_LIBRARY_PATH").filter(|before| !before.is_empty()) {
        directories.push(":");
        directories.push(before);
    }
    command
        .env("LD_LIBRARY_PATH", directories)
        .env("PCAP_GROUP", group.to_string());
    if let Some(fanout) = fanout {
        command.env("PCAP_FANOUT", fanout);
    }
    let has_name = env::var_os("PCAP_MEMBER").is_some_and(|name| !name.is_empty());
    if let Some(member) = member.filter(|_| !has_name) {
        command.env("PCAP_MEMBER", member);
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;
    use fanpcap_testkit::Scratch;

    #[test]
    fn a_wrong_mode_says_what_to_write() {
        assert_eq!(
            parse_mode(" Hash + defrag", false).unwrap().text,
            "hash+defrag"
        );
        let program = "main = tcp >-> steer_flow";
        let compiled = parse_mode(program, false).unwrap();
        let asked = compiled.asked.unwrap();
        assert!(compiled.text == program && asked.digest.is_some());
        let error = parse_mode("main = tpc >-> steer_flow", false)
            .unwrap_err()
            .to_string();
        assert!(error.contains("tpc"), "{error}");
        let error = parse_mode("hsah", false).unwrap_err().to_string();
        assert!(
            error.contains("unknown mode 'hsah'; did you mean 'hash'?"),
            "{error}"
        );
    }

    #[test]
    fn copies_differ_only_in_options_of_their_own() {
        let modes = |texts: &[&str]| {
            parse_modes(
                &texts.iter().map(ToString::to_string).collect::<Vec<_>>(),
                false,
            )
        };
        assert!(modes(&[]).unwrap().is_none());
        let two = modes(&["flow+weight=3", "flow"]).unwrap().unwrap();
        let variables = [0, 1, 2].map(|copy| two.variable(copy).unwrap().to_owned());
        assert_eq!(variables, ["flow+weight=3", "flow", "flow"]);
        for other in ["hash", "flow+sticky", "main = steer_flow"] {
            let error = modes(&["flow", other]).unwrap_err().to_string();
            assert!(error.contains("only +weight and +class"), "{error}");
        }
        assert_eq!(two.text, "flow+weight=3 (copy 0), flow (from copy 1 on)");
        let same = modes(&["lb", "lb"]).unwrap().unwrap();
        assert_eq!(same.text, "lb");
        assert!(modes(&["flow", "hsah"]).is_err());
        let classes = "main = classify 2 >-> steer_flow";
        assert!(parse_mode(classes, false).is_err() && parse_mode(classes, true).is_ok());
    }

    #[test]
    fn a_program_of_several_lines_is_shown_in_short() {
        let program = "-- DNS\n\nmain = do\n  when (has_port 53) (inc 1)\n  steer_flow\n";
        let scratch = Scratch::new().unwrap();
        let file = format!(
            "file:{}",
            scratch.write("dns.pfq", program).unwrap().display()
        );
        let shown = |text: &str| parse_mode(text, false).unwrap();
        let own = shown(program);
        assert_eq!(own.text, "main = do ...");
        assert_eq!(own.variable(0), Some(program.trim()));
        assert_eq!(shown("-- all\nmain = steer_flow").text, "main = steer_flow");
        assert_eq!(
            shown(&format!(" {file} +sticky")).text,
            format!("{file} +sticky")
        );
        for (setting, expected) in [
            (program, "main = do ..."),
            (&file, &file),
            ("main = steer_flow", "main = steer_flow"),
            ("flow + weight=3", "flow+weight=3"),
            ("lb", "lb"),
        ] {
            let explained = founding::explained(7, "lo", Some(setting)).unwrap();
            let choice = explained.plan.unwrap().choice.unwrap();
            assert_eq!(of_choice(&choice), expected);
        }
    }

    #[test]
    fn numbers_of_a_config_file() {
        let text = "group_eth0:1 = 23 # 5\nfanout@42 = hash\ncaplen = 131072";
        assert_eq!(numbers(text).collect::<Vec<_>>(), [0, 1, 23, 5, 42]);
    }

    #[test]
    fn the_copy_finds_ours_before_what_was_there() {
        let mut command = Command::new("true");
        let member = Some("run-1-0".to_owned());
        let group = (7, Some("lb"));
        lead(&mut command, Path::new("/ours"), group, member);
        let of = |name: &str| value(&command, name);
        assert_eq!(of("PCAP_GROUP").as_deref(), Some("7"));
        assert_eq!(of("PCAP_FANOUT").as_deref(), Some("lb"));
        let directories = of("LD_LIBRARY_PATH").unwrap();
        assert!(
            directories.split(':').next() == Some("/ours"),
            "{directories}"
        );
    }

    /// Without --fanout the library chooses the mode by the copy's privileges, which differ from
    /// those of this command.
    #[test]
    fn a_default_is_no_order() {
        let mut command = Command::new("true");
        lead(&mut command, Path::new("/ours"), (7, None), None);
        assert_eq!(value(&command, "PCAP_GROUP").as_deref(), Some("7"));
        let mut set = command.get_envs().map(|(name, _)| name);
        assert!(!set.any(|name| name == "PCAP_FANOUT"));
        let is_replaced = |name: &str, has| is_replaced(OsStr::new(name), has);
        for name in ["PCAP_GROUP", "PCAP_GROUP_eth0", "PCAP_DEF_GROUP"] {
            assert!(is_replaced(name, false), "{name}");
        }
        for name in ["PCAP_FANOUT", "PCAP_FANOUT_eth0"] {
            assert!(is_replaced(name, true) && !is_replaced(name, false));
        }
        assert!(!is_replaced("PCAP_GROUPS", true));
    }

    fn value(command: &Command, name: &str) -> Option<String> {
        let (_, value) = command.get_envs().find(|(key, _)| *key == name)?;
        Some(value?.to_string_lossy().into_owned())
    }
}
