//! `fanpcap lang check`: finds errors in steering programs.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use fanpcap_linux::packet::optmem::NoRoom;
use fanpcap_steer::Compiled;
use fanpcap_steer::ebpf::EbpfError;
use fanpcap_steer::ir::{Function, Node, Steer, Tree};
use fanpcap_terminal::streams;

use super::source::Source;

/// Reports the errors of steering programs: line, column, and what was expected there
///
/// For a correct program, the command prints a line with the number of definitions, and the number
/// of members that `steer_to` needs. It warns of steering functions that
/// have no effect, and notes if a group on packet sockets refuses the program. The exit status is
/// 1 if a program is wrong, is too large for this machine's sockets, or can't be read.
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
        // What is wrong in a file begins with its place, as compilers write it, so that editors
        // find the place.
        let told = match source {
            Ok(source) => checked(&source).map_err(|error| format!("{error:#}\n")),
            Err(error) => Err(format!("fanpcap: {error:#}\n")),
        };
        match told {
            Ok((line, note)) => {
                streams::note(&note);
                streams::print(&line)?;
            }
            Err(wrong) => {
                streams::note(&wrong);
                code = ExitCode::FAILURE;
            }
        }
    }
    Ok(code)
}

/// The line about a correct steering program, and the text of [`note`].
fn checked(source: &Source) -> Result<(String, String)> {
    let (tree, definitions) = (source.tree()?, source.definitions()?);
    let note = note(source, &tree)?;
    let mut line = format!(
        "{}: ok: {}",
        source.name(),
        counted(definitions.len(), "definition")
    );
    if let Some(rank) = highest_rank(&tree) {
        let members = counted(rank as usize + 1, "member");
        line += &format!(", steer_to needs {members}");
    }
    Ok((line + "\n", note))
}

/// The highest rank of a member that a `steer_to` names.
fn highest_rank(tree: &Tree) -> Option<u32> {
    let mut highest = None;
    tree.main.walk(&mut |node| {
        if let Node::Function(Function::Steer(Steer::To(rank))) = node {
            highest = highest.max(Some(*rank));
        }
    });
    highest
}

fn counted(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// The text about a correct steering program: its steering functions that later ones override, and
/// why a kernel group refuses it. Empty if there is nothing to say. A steering program that is too
/// large is an error.
fn note(source: &Source, tree: &Tree) -> Result<String> {
    let name = source.name();
    let mut text = source.warnings();
    match Compiled::of(tree) {
        Err(EbpfError::Unfit(why)) => {
            text += &format!("{name}: note: a group on packet sockets refuses it: {why}\n");
        }
        Err(why) => bail!("{name}: {why}"),
        Ok(compiled) => {
            if let Some(why) = compiled.filter().and_then(NoRoom::of) {
                bail!("{name}: {why}");
            }
        }
    }
    Ok(text)
}
