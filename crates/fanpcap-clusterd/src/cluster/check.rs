//! `fanpcap cluster check`: says what is wrong with a cluster.conf.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use fanpcap_cli::streams;

use super::doctor;
use crate::conf::{Conf, PATH, Role};

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
    streams::print(&format!("{file}: no mistakes; cluster {cluster}\n"))?;
    Ok(ExitCode::SUCCESS)
}
