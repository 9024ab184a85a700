//! The copies' group, and the environment that makes them join it.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{self, Command};

use anyhow::{Context, Result, anyhow, bail};
use fanpcap_config::fanout::Fanout;
use fanpcap_config::mode::Mode;
use fanpcap_config::source::Source;
use fanpcap_config::steering::Steering;
use fanpcap_group::roster;

use crate::default_mode::DefaultMode;
use crate::lang::Pcap;

/// Start of the search for a free number: users choose smaller ones.
const FIRST: u16 = 20_000;
const LAST: u16 = 60_000;

/// The fan-out mode of the copies.
#[derive(Debug)]
pub(crate) struct Wanted {
    /// The mode's text, as the copies get it in the environment.
    pub(crate) text: String,
    /// The kernel's mode.
    pub(crate) mode: Mode,
    /// Digest that identifies the steering program, if the mode is one.
    pub(crate) digest: Option<u64>,
}

/// Parses a mode, or compiles a steering program, as the library does.
///
/// # Errors
/// The library would refuse `text`.
pub(crate) fn wanted(text: &str) -> Result<Wanted> {
    match Fanout::parse(Source::new("--fanout", text)) {
        Ok(Fanout::Mode(mode)) => Ok(Wanted {
            text: mode.to_string(),
            mode,
            digest: None,
        }),
        Ok(Fanout::Program(script)) => {
            let pcap = Pcap::default();
            let steering = Steering::compile(&script, &|expression| pcap.compile(expression));
            Ok(Wanted {
                text: text.trim().to_owned(),
                mode: script.mode(),
                digest: Some(steering.map_err(|report| anyhow!("{report}"))?.digest()),
            })
        }
        Err(fault) => Err(anyhow!("--fanout {text:?}: {fault}")),
    }
}

/// The mode of copies for which none is given, and why it is this one.
///
/// # Errors
/// The group runs a steering program of which its members' pages tell the beginning only.
pub(crate) fn by_default(group: u16, device: Option<&str>) -> Result<(Wanted, Option<String>)> {
    let DefaultMode { text, why, .. } = DefaultMode::of(device, Some(group));
    let wanted = wanted(&text).with_context(|| {
        format!("--group {group}: the group runs the steering program {text:?}: give the whole of it by --fanout")
    });
    Ok((wanted?, Some(why)))
}

/// A group number that no packet socket of this network namespace has and no config file names.
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
    // Two runs that start at the same time start their searches at different numbers.
    let start = FIRST + u16::try_from(process::id() % u32::from(LAST - FIRST))?;
    let mut all = (start..LAST).chain(FIRST..start);
    match all.find(|number| !used.contains(number)) {
        Some(number) => Ok(number),
        None => bail!("no group from {FIRST} to {LAST} is free; --group N names one"),
    }
}

/// The members of a group, each as its process and application, where these are known.
pub(crate) fn members(group: u16) -> Vec<String> {
    let seen = roster::entries().unwrap_or_default().into_iter();
    let of_group = seen.filter(|entry| entry.is_in(group) && !entry.is_placeholder);
    let told = of_group.map(|seen| match seen.page {
        Some(page) => format!("process {} ({})", page.pid, page.program),
        None => "one without our library".to_owned(),
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

/// All numbers in a config file. A number that is no group only shrinks the search.
fn numbers(text: &str) -> impl Iterator<Item = u16> {
    text.split(|character: char| !character.is_ascii_digit())
        .filter_map(|digits| digits.parse().ok())
}

/// Makes `command` load our library and join the group. Removes variables of the calling
/// environment that would change that. `member` is its name, unless the environment has one.
pub(crate) fn lead(
    command: &mut Command,
    library: &Path,
    (group, mode): (u16, &str),
    member: Option<String>,
) {
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if text == "PCAP_DEF_GROUP"
            || text.starts_with("PCAP_GROUP_")
            || text.starts_with("PCAP_FANOUT_")
        {
            command.env_remove(&name);
        }
    }
    let mut directories = library.as_os_str().to_owned();
    if let Some(before) = env::var_os("LD_LIBRARY_PATH").filter(|before| !before.is_empty()) {
        directories.push(":");
        directories.push(before);
    }
    command
        .env("LD_LIBRARY_PATH", directories)
        .env("PCAP_GROUP", group.to_string())
        .env("PCAP_FANOUT", mode);
    let has_name = env::var_os("PCAP_MEMBER").is_some_and(|name| !name.is_empty());
    if let Some(member) = member.filter(|_| !has_name) {
        command.env("PCAP_MEMBER", member);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_mode_says_what_to_write() {
        assert_eq!(wanted(" Hash + defrag").unwrap().text, "hash+defrag");
        let program = "main = tcp >-> steer_flow";
        let compiled = wanted(program).unwrap();
        assert!(compiled.text == program && compiled.digest.is_some());
        let error = wanted("main = tpc >-> steer_flow").unwrap_err().to_string();
        assert!(error.contains("tpc"), "{error}");
        let error = wanted("hsah").unwrap_err().to_string();
        assert!(
            error.contains("unknown mode 'hsah'; did you mean 'hash'?"),
            "{error}"
        );
    }

    #[test]
    fn numbers_of_a_config_file() {
        let text = "group_eth0:1 = 23 # 5\nfanout@42 = hash\nrx_slots = 131072";
        assert_eq!(numbers(text).collect::<Vec<_>>(), [0, 1, 23, 5, 42]);
    }

    #[test]
    fn the_copy_finds_ours_before_what_was_there() {
        let mut command = Command::new("true");
        let member = Some("run-1-0".to_owned());
        lead(&mut command, Path::new("/ours"), (7, "lb"), member);
        let of = |name: &str| {
            let found = command.get_envs().find(|(key, _)| *key == name);
            found
                .and_then(|(_, value)| value)
                .map(|value| value.to_string_lossy().into_owned())
        };
        assert_eq!(of("PCAP_GROUP").as_deref(), Some("7"));
        assert_eq!(of("PCAP_FANOUT").as_deref(), Some("lb"));
        let directories = of("LD_LIBRARY_PATH").unwrap();
        assert!(
            directories.split(':').next() == Some("/ours"),
            "{directories}"
        );
    }
}
