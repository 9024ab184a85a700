//! `fanpcap metrics`: counters of groups and members for Prometheus.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use fanpcap_config::report::harmless_text;
use fanpcap_snapshot::Source;
use fanpcap_terminal::{DeviceArgument, exposition, server, streams, textfile};

mod families;

/// Prints the counters of groups and members for Prometheus
///
/// The text, in Prometheus' format 0.0.4, covers the devices of this network namespace that have
/// packet sockets, their fan-out groups, and the members that use this library.
#[derive(Args, Debug)]
#[command(mut_arg("device", |it| it.help("This device only; 'any' for sockets on all devices")))]
pub(crate) struct Arguments {
    #[command(flatten)]
    device: DeviceArgument,
    /// Serve the metrics by HTTP at /metrics; without ADDR, only to this machine
    #[arg(long, value_name = "[ADDR:]PORT", value_parser = server::address, conflicts_with = "write")]
    listen: Option<std::net::SocketAddr>,
    /// Write the metrics to a file, which is replaced atomically: for node_exporter's textfile
    /// collector
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

/// Runs `fanpcap metrics`.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let mut source = Source::new(arguments.device.name())?;
    if let Some(address) = arguments.listen {
        return server::serve(address, || now(&mut source));
    }
    let text = now(&mut source)?;
    if let Some(path) = &arguments.write {
        textfile::write(path, &text).with_context(|| format!("writing {}", path.display()))?;
        return Ok(ExitCode::SUCCESS);
    }
    // On a terminal, replace the characters of device names that act on the terminal. A pipe gets
    // the text unchanged.
    let text = match io::stdout().is_terminal() {
        true => text
            .split('\n')
            .map(harmless_text)
            .collect::<Vec<_>>()
            .join("\n"),
        false => text,
    };
    streams::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// The present metrics.
fn now(source: &mut Source) -> Result<String> {
    Ok(exposition::text(&families::of(&source.take()?)))
}
