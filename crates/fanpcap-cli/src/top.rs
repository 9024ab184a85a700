//! `fanpcap top`: shows live which applications capture how many packets.

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use fanpcap_config::report::harmless_text;
use fanpcap_snapshot::Source;
use fanpcap_terminal::streams::{self, Reader};
use fanpcap_terminal::{DeviceArgument, seconds};

use order::Column;
use rates::Rates;
use state::State;
use view::View;

pub(crate) mod figure;
#[cfg(test)]
pub(crate) mod fixture;
mod view;
mod order;
#[cfg(test)]
#[path = "../tests/pages/json.rs"]
mod json_page;
mod rates;
mod table;
mod state;
mod headline;
mod screen;
mod display;
mod terminal;

/// Shows groups and their members: rates, shares, drops
///
/// The screen shows each device of this network namespace that has packet sockets, its fan-out
/// groups, and their members. Programs that use this library publish their counters. Of other
/// programs, only the membership is known. The last line shows the keys.
#[derive(Args, Debug)]
#[command(mut_arg("device", |it| it.help("Show only this device; 'any' means the sockets on all devices")))]
pub(crate) struct Arguments {
    #[command(flatten)]
    device: DeviceArgument,
    /// Seconds between two updates
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = |text: &str| seconds(text, &(0.1..=3600.0)))]
    interval: Duration,
    /// Print one interval and end; no terminal is needed
    #[arg(long)]
    once: bool,
    /// Print each interval as a JSON object on a line (docs/top-json.md)
    #[arg(long)]
    json: bool,
    /// Sort members and groups by this column
    #[arg(long, value_name = "COLUMN", value_enum, default_value_t)]
    sort: Column,
    /// Reverse the order
    #[arg(long)]
    reverse: bool,
    /// Show only rows whose name contains this text: eth0, 'group 7', tcpdump, a pid
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
}

/// Runs `fanpcap top`.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let mut source = Source::new(arguments.device.name())?;
    let state = State {
        device: arguments.device.name().map(str::to_owned),
        sort: arguments.sort,
        reverse: arguments.reverse,
        filter: arguments.filter.clone().unwrap_or_default(),
        ..State::default()
    };
    if !arguments.once && !arguments.json {
        ensure!(
            io::stdout().is_terminal() && io::stdin().is_terminal(),
            "this is no terminal: add --once for one table, or --json for other programs"
        );
        return terminal::run(&mut source, arguments.interval, state);
    }
    print(arguments, &mut source, &state)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints one interval, or intervals until the process ends.
fn print(arguments: &Arguments, source: &mut Source, state: &State) -> Result<()> {
    let mut rates = Rates::default();
    rates.next(source.take()?);
    loop {
        thread::sleep(arguments.interval);
        let view = rates.next(source.take()?);
        let text = if arguments.json {
            json(view, state)?
        } else {
            text(&view, state)
        };
        let reader = streams::print(&format!("{text}\n"))?;
        if arguments.once || reader == Reader::Gone {
            return Ok(());
        }
    }
}

/// An interval as a line of JSON.
fn json(view: View, state: &State) -> Result<String> {
    let mut view = order::filter(view, &state.filter);
    order::sort(&mut view, state.sort, state.reverse);
    serde_json::to_string(&view).context("writing JSON")
}

/// An interval as a table. The table is as wide as the terminal, or has all columns if standard
/// output is no terminal.
fn text(view: &View, state: &State) -> String {
    let width = terminal::width().map_or(WIDE, usize::from);
    let rows = screen::rows(view, state, width);
    let head = [
        headline::title(view, state, width),
        headline::devices(view, width),
    ];
    if rows.is_empty() {
        let head = head.map(|line| harmless_text(&line)).join("\n");
        return format!("{}\n{}", head.trim_end(), screen::nothing(state));
    }
    let table = std::iter::once(table::head(width)).chain(rows);
    let lines = head.into_iter().chain(table.map(|row| row.text));
    let lines: Vec<String> = lines.map(|line| harmless_text(line.trim_end())).collect();
    lines.join("\n")
}

/// Width without a terminal: all columns fit.
const WIDE: usize = 132;

#[cfg(test)]
mod tests {
    use super::*;
    const PAGE: &str = include_str!("../../../docs/top-json.md");

    #[test]
    fn json_has_the_documented_fields_and_no_other() {
        let mut after = fixture::after_on_xdp();
        let gone = fixture::device(u32::MAX, "gone", [0; 4]);
        after.devices.push(gone);
        after.waiting = [("eth7".to_owned(), 2)].into();
        let view = fixture::between(&fixture::before(), &after);
        let awaited = view.devices.last().unwrap().awaited_device.as_deref();
        assert_eq!(awaited, Some("eth7"));
        let line = json(view, &State::default()).unwrap();
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        let found = json_page::check(PAGE, &value).unwrap();
        // The fixture has an object of each kind, so the JSON must have each documented field.
        let mut missing = json_page::documented(PAGE);
        missing.retain(|path, _| !found.contains(path));
        assert!(
            missing.is_empty(),
            "documented fields that the JSON lacks: {missing:?}"
        );
    }

    #[test]
    fn a_field_of_another_type_or_name_is_noticed() {
        let line = json(fixture::view(), &State::default()).unwrap();
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        let changed = |change: fn(&mut serde_json::Value)| {
            let mut changed = value.clone();
            change(&mut changed["devices"][0]["groups"][0]);
            json_page::check(PAGE, &changed)
        };
        changed(|_| {}).unwrap();
        changed(|group| group["group"] = "7".into()).unwrap_err();
        changed(|group| group["group"] = serde_json::Value::Null).unwrap_err();
        changed(|group| group["mood"] = 1.into()).unwrap_err();
        changed(|group| drop(group.as_object_mut().unwrap().remove("skew"))).unwrap_err();
    }

    #[test]
    fn a_table_has_a_line_for_each_member() {
        let text = text(&fixture::view(), &State::default());
        for pid in [4711, 4712, 4713, 4714, 5000] {
            assert!(text.contains(&format!("  {pid} ")), "{pid} in:\n{text}");
        }
    }
}
