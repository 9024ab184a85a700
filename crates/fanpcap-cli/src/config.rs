//! `fanpcap config`: the settings that apply to a device, and the settings that have no effect.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use fanpcap::overview::Overview;
use fanpcap_config::driver::Driver;
use fanpcap_config::settings::{Group, GroupChoice, Plan};
use fanpcap_doctor::doctor::other_library;
use fanpcap_pcap::compile_expression;
use fanpcap_snapshot::{Source, unreachable};
use fanpcap_terminal::{DeviceArgument, streams};

mod json;
mod text;

/// Shows the settings that apply to a device, and where each is set
///
/// The command reads the environment and the config file as the library does in an application that
/// is started from here. It shows group, mode, snapshot length and driver, each with the variable
/// or the line that sets it. For a group without a mode setting, it shows the mode that a new
/// member gets, and why. It also shows the settings that have no effect. It changes nothing, and
/// opens no device. The exit status is 1 if a setting is wrong and the library would refuse a
/// handle because of it.
#[derive(Args, Debug)]
#[command(mut_arg("device", |it| it.help("The device, as an application names it; by default all devices")))]
pub(crate) struct Arguments {
    #[command(flatten)]
    device: DeviceArgument,
    /// Print one JSON object (docs/config-json.md)
    #[arg(long)]
    json: bool,
}

/// Runs `fanpcap config`.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let device = arguments.device.name();
    let told = Overview::read(device, awaited, &compile_expression);
    streams::print_as(arguments.json, &json::object(&told), || {
        text::page(&told, other_library)
    })?;
    Ok(streams::status(told.errors().is_empty()))
}

/// The devices that are gone and for which members wait.
fn awaited() -> Vec<String> {
    let seen = Source::new(None).and_then(|mut source| source.take());
    seen.map_or_else(|_| Vec::new(), |it| it.waiting.into_keys().collect())
}

/// The size in bytes of the ring, as the engine makes it on this machine.
fn ring(plan: &Plan) -> Option<u64> {
    let asked = plan
        .buffer_size()
        .and_then(|bytes| u32::try_from(bytes).ok());
    if let Some(polled) = &plan.polled {
        let engine = fanpcap_engines::polled(polled.engine.name());
        return engine.and_then(|it| it.pool_bytes(asked));
    }
    let engine = plan.on_engine.as_ref();
    let engine = engine.and_then(|it| fanpcap_engines::named(it.engine.name()));
    let made = engine.and_then(|engine| engine.ring_bytes(asked));
    made.or(asked.map(u64::from))
}

/// The process of the poller that serves a device on an engine.
///
/// # Errors
/// Why this process can't use the poller, and what to do.
fn poller(engine: Driver, device: &str) -> Result<u32, String> {
    let socket = format!("{engine}:{device}");
    fanpcap_snapshot::poller(engine.name(), device)
        .map_err(|error| unreachable(&socket, &error).to_string())
}

fn group(joined: &GroupChoice) -> String {
    match joined.group {
        Group::Number(number) => number.to_string(),
        Group::New => "new".to_owned(),
    }
}
