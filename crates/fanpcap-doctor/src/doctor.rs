//! `fanpcap doctor`: finds problems of captures before they occur, and the commands that fix them.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, ValueHint};
use fanpcap_linux::process::netns;
use fanpcap_terminal::{DeviceArgument, streams};
use serde::Serialize;

mod finding;
mod machine;
mod privileges;
mod limits;
mod cpuset;
mod groups;
pub(crate) mod long_packets;
mod nic;
mod device;
mod engine;
mod settings;
mod library;
mod program;
mod cluster;
mod facts;
mod user;
mod text;

use cluster::Node;
pub(crate) use facts::is_no_interface;
use finding::Finding;
pub use library::other_library;
use library::{Loads, Program};
use user::AsUser;

/// Finds what loses packets or splits flows, and says how to fix it
///
/// doctor examines a device, its groups and their members, the settings, the library that
/// applications load, the privileges of the caller, and the machine. It reads everything twice
/// within a second, and changes nothing. Each finding says what is wrong, where, why it matters,
/// and which command fixes it. The exit status is 3 if packets are lost or captures are refused,
/// otherwise 0. It is 1 if doctor could not examine the machine.
#[derive(Args, Debug)]
#[command(mut_arg("device", |it| it.help("The device; by default, all devices that have packet sockets")))]
pub struct Arguments {
    #[command(flatten)]
    device: DeviceArgument,
    /// A program that is to capture, a path or a name in PATH: check whether it would load the
    /// library
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// A user who is to capture: check settings, library, privileges and limits as that user, and
    /// everything else as the caller. The caller must be root
    #[arg(long, value_name = "NAME", value_hint = ValueHint::Username)]
    user: Option<String>,
    /// Check only what concerns applications that the caller starts
    #[arg(long, hide = true, conflicts_with = "user")]
    caller: bool,
    /// Print one JSON object (docs/doctor-json.md)
    #[arg(long)]
    json: bool,
}

/// Time between the two readings.
const WHILE: Duration = Duration::from_secs(1);

/// The exit status if packets are lost.
const LOST: u8 = 3;

/// Version of the JSON format. A new field does not change the version; a changed or removed field
/// increments it.
const SCHEMA: u32 = 1;

/// The JSON.
#[derive(Serialize)]
struct DoctorPage<'a> {
    schema: u32,
    network_namespace: u64,
    device: Option<&'a str>,
    user: Option<&'a str>,
    loses_packets: bool,
    findings: &'a [Finding],
    node: Option<&'a Node>,
    program: Option<ProgramPage>,
}

/// The program of --program.
#[derive(Serialize)]
struct ProgramPage {
    file: String,
    libpcap: Option<String>,
    is_fanpcaps: Option<bool>,
}

impl ProgramPage {
    fn of(program: &Program) -> Self {
        let loaded = match &program.loads {
            Loads::Library(loaded) => Some(loaded),
            Loads::Nothing | Loads::Missing(_) | Loads::Unknown => None,
        };
        Self {
            file: program.path.display().to_string(),
            libpcap: loaded.map(|it| it.path.display().to_string()),
            is_fanpcaps: loaded.map(|it| it.is_ours),
        }
    }
}

/// Runs `fanpcap doctor`.
///
/// # Errors
/// The facts of the machine can't be read, or the `fanpcap doctor` that runs as the user of --user
/// fails.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let asked = arguments.device.name();
    let program = arguments.program.as_deref().map(program::find);
    let program = program.transpose()?;
    let program = program.as_deref();
    let user = arguments.user.as_deref();
    let as_user = user.map(|name| AsUser::start(name, asked, program));
    let as_user = as_user.transpose()?;
    let mut facts = facts::read(asked, program, WHILE)?;
    facts.of_user = as_user.map(AsUser::findings).transpose()?;
    if !arguments.caller {
        facts.cluster = cluster::ask()?;
    }
    let findings = match arguments.caller {
        true => facts.findings_of_caller(),
        false => facts.findings(),
    };
    let loses_packets = findings.iter().any(|it| it.effect.loses_packets());
    let told = DoctorPage {
        schema: SCHEMA,
        network_namespace: netns::inode().context("this process's network namespace")?,
        device: asked,
        user,
        loses_packets,
        findings: &findings,
        node: facts.cluster.node.as_ref(),
        program: facts.library.program.as_ref().map(ProgramPage::of),
    };
    streams::print_as(arguments.json, &told, || {
        let mut before = vec![format!("Looked at {}.", facts.looked_at(user))];
        before.extend(told.node.map(Node::sentence));
        before.extend(facts.library.program.as_ref().map(Program::sentence));
        text::page(&before, &findings, facts.for_a_group().as_deref())
    })?;
    Ok(match loses_packets {
        true => ExitCode::from(LOST),
        false => ExitCode::SUCCESS,
    })
}

#[cfg(test)]
mod tests {
    /// The manual's page of the findings.
    const PAGE: &str = include_str!("../../../docs/doctor.md");

    const SOURCES: [&str; 9] = [
        include_str!("doctor/machine.rs"),
        include_str!("doctor/limits.rs"),
        include_str!("doctor/privileges.rs"),
        include_str!("doctor/device.rs"),
        include_str!("doctor/groups.rs"),
        include_str!("doctor/nic.rs"),
        include_str!("doctor/settings.rs"),
        include_str!("doctor/library.rs"),
        include_str!("doctor/engine.rs"),
    ];

    /// The strings that follow `before` in a source.
    fn behind<'a>(source: &'a str, before: &'a str) -> impl Iterator<Item = &'a str> {
        let rests = source
            .match_indices(before)
            .map(move |(at, _)| &source[at + before.len()..]);
        rests.filter_map(|rest| rest.trim_start().strip_prefix('"')?.split('"').next())
    }

    /// The names of the findings that these sources contain.
    fn names(sources: &[&'static str]) -> Vec<&'static str> {
        let mut found: Vec<&str> = Vec::new();
        for source in sources {
            let source = source.split("mod tests").next().unwrap_or_default();
            found.extend(behind(source, "Finding::new(").chain(behind(source, ".finding(")));
            found.extend(behind(source, "finding(used,"));
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    #[test]
    fn what_a_users_doctor_may_find_is_what_concerns_the_caller() {
        let [_, limits, privileges, _, _, _, settings, library, _] = SOURCES;
        let mut found = names(&[limits, privileges, settings, library]);
        // This finding is about running applications, which doctor examines as root, not as the
        // user.
        found.retain(|&it| it != "not-in-group");
        let mut taken = super::user::NAMES;
        taken.sort_unstable();
        assert_eq!(taken[..], found);
    }

    #[test]
    fn the_manual_has_each_finding_and_no_other() {
        let row = |line: &'static str| line.strip_prefix("| `")?.split('`').next();
        let mut told: Vec<&str> = PAGE.lines().filter_map(row).collect();
        told.sort_unstable();
        let mut all = names(&SOURCES);
        all.extend(super::cluster::NAMES);
        all.sort_unstable();
        assert_eq!(told, all);
    }
}
