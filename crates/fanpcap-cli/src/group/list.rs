//! The list of all groups, or of the groups of a device.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

use anyhow::Result;
use fanpcap_config::report::harmless_text;
use fanpcap_snapshot::{Snapshot, Socket, members_wait};
use fanpcap_terminal::{streams, table};
use serde::Serialize;

use super::{Group, shown};

/// The columns' titles.
const TITLES: [&str; 6] = ["DEVICE", "GROUP", "MODE", "MEMBERS", "GONE", "PROGRAMS"];

/// The sockets of each group, by the device's index and the group's number.
type Groups<'a> = BTreeMap<(u32, u16), Vec<&'a Socket>>;

/// Prints the groups of a snapshot, which is of `device` or of all devices: a line for each group,
/// or a JSON object for each group. Then follow the members that wait for a device that is gone.
/// The exit status is that of a failure if a group does not show its table to this user.
pub(super) fn run(snapshot: &Snapshot, device: Option<&str>, is_json: bool) -> Result<ExitCode> {
    let mut groups = Groups::new();
    for socket in &snapshot.sockets {
        if let Some(group) = socket.of_group() {
            let key = (socket.ifindex, group.number);
            groups.entry(key).or_default().push(socket);
        }
    }
    if !is_json {
        if groups.is_empty() {
            let on = device.map_or_else(String::new, |name| format!(" on {name}"));
            streams::print(&format!("no groups{on} in this network namespace\n"))?;
        } else {
            streams::print(&text(snapshot, &groups))?;
        }
        for (device, &count) in &snapshot.waiting {
            let wait = harmless_text(&members_wait(device, count));
            streams::print(&format!("{wait} until a device of this name is up\n"))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut are_all_shown = true;
    for (ifindex, number) in groups.into_keys() {
        match Group::of(snapshot, ifindex, number) {
            Ok(group) => drop(streams::print_as(true, &group.shown, String::new)?),
            Err(error) => {
                streams::note(&format!("fanpcap: {error:#}\n"));
                are_all_shown = false;
            }
        }
    }
    for (device, &count) in &snapshot.waiting {
        let waiting = Waiting {
            schema: shown::SCHEMA,
            time_unix_seconds: snapshot.unix_seconds,
            network_namespace: snapshot.netns,
            device: "gone",
            awaited_device: device,
            waiting_members_total: count,
        };
        streams::print_as(true, &waiting, String::new)?;
    }
    Ok(streams::status(are_all_shown))
}

/// The members that wait for a device that is gone, in the JSON: they are in no group.
#[derive(Serialize)]
struct Waiting<'a> {
    schema: u32,
    time_unix_seconds: f64,
    network_namespace: u64,
    device: &'static str,
    awaited_device: &'a str,
    waiting_members_total: usize,
}

fn text(snapshot: &Snapshot, groups: &Groups<'_>) -> String {
    let mut rows = vec![TITLES.map(str::to_owned).to_vec()];
    rows.extend(
        groups
            .iter()
            .map(|(key, sockets)| row(snapshot, *key, sockets)),
    );
    let rows = table::without_empty(&rows, |column, cell| {
        TITLES[column] == "GONE" && cell == "0"
    });
    let is_left =
        |column: usize| ["DEVICE", "MODE", "PROGRAMS"].contains(&rows[0][column].as_str());
    let lines = table::lines(&rows, is_left);
    let whys = groups.iter().filter_map(|((_, number), sockets)| {
        let why = shown::hash_because(sockets)?;
        Some(format!(
            "group {number} has mode hash, not flow, because {why}"
        ))
    });
    let lines = lines.into_iter().chain(whys);
    let lines = lines.map(|it| harmless_text(it.trim_end()) + "\n");
    lines.collect()
}

fn row(snapshot: &Snapshot, (ifindex, number): (u32, u16), sockets: &[&Socket]) -> Vec<String> {
    let device = shown::device(snapshot, ifindex);
    let gone = sockets.iter().filter(|it| it.is_placeholder).count();
    let is_member = |it: &&&Socket| it.group.is_some() && !it.is_placeholder;
    let members = sockets.iter().filter(is_member);
    let processes = members.clone().filter_map(|it| it.process.as_ref());
    let programs: BTreeSet<&str> = processes.map(|it| it.program.as_str()).collect();
    let programs: Vec<&str> = programs.into_iter().collect();
    let founder = shown::founder(sockets).map(|it| format!("founded by {}", shown::name(it)));
    let told = Some(programs.join(", ")).filter(|it| !it.is_empty());
    let told: Vec<String> = told.into_iter().chain(founder).collect();
    vec![
        device.map_or_else(String::new, |it| it.name.clone()),
        number.to_string(),
        shown::mode(sockets),
        members.count().to_string(),
        gone.to_string(),
        told.join("; "),
    ]
}
