//! `fanpcap lang check`: finds errors in steering programs.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use fanpcap_linux::packet::optmem::NoRoom;
use fanpcap_steer::Compiled;
use fanpcap_steer::ebpf::EbpfError;
use fanpcap_terminal::streams;

use super::source::Source;

/// Reports the errors of steering programs: line, column, and what was expected there
///
/// For a correct program, the command prints only a note if a group on packet sockets refuses the
/// program, and otherwise nothing. The exit status is 1 if a program is wrong, is too large for
/// this machine's sockets, or can't be read.
#[derive(Args, Debug)]
pub(super) struct Arguments {
    /// The files of the steering programs; `-` is standard input
    #[arg(required_unless_present = "text", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The text of the program
    #[arg(short = 'e', long, value_name = "TEXT", conflicts_with = "files")]
    text: Option<String>,
}

/// Runs `fanpcap lang check`.
pub(super) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let mut code = ExitCode::SUCCESS;
    let given = arguments.text.iter().map(|text| Ok(Source::of_text(text)));
    let read = arguments.files.iter().map(|file| Source::read(file));
    for source in given.chain(read) {
        match source.and_then(|source| note(&source)) {
            Ok(note) => streams::note(&note),
            Err(error) => {
                streams::note(&format!("{error:#}\n"));
                code = ExitCode::FAILURE;
            }
        }
    }
    Ok(code)
}

/// The note about a correct steering program: why a kernel group refuses the steering program;
/// empty if a kernel group accepts it. A steering program that is too large is an error.
fn note(source: &Source) -> Result<String> {
    let (tree, name) = (source.tree()?, source.name());
    match Compiled::of(&tree) {
        Err(EbpfError::Unfit(why)) => Ok(format!(
            "{name}: note: a group on packet sockets refuses it: {why}\n"
        )),
        Err(why) => bail!("{name}: {why}"),
        Ok(compiled) => {
            let refused = compiled.filter().and_then(NoRoom::of);
            refused.map_or_else(|| Ok(String::new()), |why| bail!("{name}: {why}"))
        }
    }
}
