//! `fanpcap cluster check`: says what is wrong with a cluster.conf.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use fanpcap_cli::streams;
use fanpcap_select::Key;

use super::doctor;
use crate::conf::{Conf, Mode, PATH, Role};

/// Says what is wrong with a cluster.conf, and with the keys and certificates that it names
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// The file
    #[arg(value_name = "FILE", default_value = PATH)]
    file: PathBuf,
    /// Tells what is wrong at this machine, as JSON for `fanpcap doctor`
    #[arg(long, hide = true)]
    doctor: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    if arguments.doctor {
        streams::print(&format!("{}\n", doctor::json(&arguments.file)?))?;
        return Ok(ExitCode::SUCCESS);
    }
    let conf = Conf::load(&arguments.file)?;
    conf.check_files(Role::Node)?;
    let (file, cluster) = (arguments.file.display(), &conf.cluster);
    let in_turn = conf.selection.key == Key::RoundRobin;
    if in_turn && conf.beacon.is_none() && conf.mode == Mode::Distribution {
        bail!(
            "{file}: 'select = round_robin' needs beacons: write 'beacon = DEVICE' in the file of \
             each coordinator"
        );
    }
    let selects = selects(conf.selection.key);
    streams::print(&format!(
        "{file}: no mistakes; cluster {cluster}; {selects}\n"
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// What each node gets, and for whom that is right.
fn selects(key: Key) -> &'static str {
    match key {
        Key::Flow => "each connection whole at one node, as Suricata and Zeek need it",
        Key::Packet => "packets spread alone: connections are split among nodes",
        Key::RoundRobin => "packets in turn: connections are split among nodes",
        Key::Identification | Key::Sequence => {
            "packets by a number in their headers: connections are split among nodes"
        }
    }
}
