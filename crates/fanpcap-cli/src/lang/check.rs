//! `fanpcap lang check`: whether programs are right, and where they are wrong.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use super::source::Source;
use crate::streams;

/// Says where programs are wrong: line, column, and what was expected there
///
/// Nothing is printed for a program that is right. The exit status is 1 if one is wrong or can't be read.
#[derive(Args, Debug)]
pub(super) struct Arguments {
    /// The programs; `-` is standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

/// Does it.
pub(super) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let mut code = ExitCode::SUCCESS;
    for file in &arguments.files {
        let checked = Source::read(file).and_then(|source| source.compile());
        if let Err(error) = checked {
            streams::note(&format!("{error:#}\n"));
            code = ExitCode::FAILURE;
        }
    }
    Ok(code)
}
