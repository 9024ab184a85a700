//! Candidates for a word of a program's command line, for the completions of shells.

use anyhow::Result;
use clap::{Arg, Args, Command, ValueHint};
use fanpcap_config::device::ANY;
use fanpcap_config::mode::ModeKind;
use fanpcap_group::roster;
use fanpcap_linux::interface;

use crate::streams;

/// The candidate that means a file name: the shell completes file names itself.
pub const FILES: &str = ":files";

/// Prints what the last word may be, a line for each
#[derive(Args, Debug)]
pub struct Arguments {
    /// The words after the command's name, up to the word that is being written
    #[arg(last = true)]
    pub words: Vec<String>,
}

/// The possible values of options that clap has no values for. Each entry has the value's name in
/// the help text, and the values.
pub type Known<'a> = [(&'a str, Vec<String>)];

/// Prints the candidates for the last word of a command line, one a line.
///
/// # Errors
/// Standard output can't be written.
pub fn print(command: Command, words: &[String], known: &Known<'_>) -> Result<()> {
    let mut text = candidates(command, words, known).join("\n");
    text.push('\n');
    streams::print(&text)?;
    Ok(())
}

/// The candidates for the last word of a command line.
pub fn candidates(command: Command, words: &[String], known: &Known<'_>) -> Vec<String> {
    let Some((last, before)) = words.split_last() else {
        return Vec::new();
    };
    let mut whole = command.disable_help_subcommand(true);
    whole.build();
    let mut command = &whole;
    let mut positionals = command.get_positionals().peekable();
    let mut option: Option<&Arg> = None;
    for word in before {
        if option.take().is_some() {
            continue;
        }
        if word == "--" {
            return vec![FILES.to_owned()];
        }
        if let Some(inner) = command.find_subcommand(word) {
            command = inner;
            positionals = command.get_positionals().peekable();
        } else if word.starts_with('-') {
            option = option_of(command, word).filter(|_| !word.contains('='));
        } else if positionals.peek().is_some_and(|it| is_command(it)) {
            return vec![FILES.to_owned()];
        } else if positionals.peek().is_some_and(|it| !takes_many(it)) {
            positionals.next();
        }
    }
    let found = match option {
        Some(option) => values(option, known),
        None if last.starts_with('-') => options(command),
        None => {
            let next = positionals.next().map(|it| values(it, known));
            let mut found = subcommands(command);
            found.extend(next.unwrap_or_default());
            found
        }
    };
    found
        .into_iter()
        .filter(|it| it.starts_with(last.as_str()) || it == FILES)
        .collect()
}

/// The option that `word` names, if the option takes a value.
fn option_of<'c>(command: &'c Command, word: &str) -> Option<&'c Arg> {
    let is_it = |option: &&Arg| {
        let long = option
            .get_long()
            .is_some_and(|long| word.strip_prefix("--") == Some(long));
        let short = option
            .get_short()
            .is_some_and(|short| word == format!("-{short}"));
        (long || short) && option.get_action().takes_values()
    };
    command.get_opts().find(is_it)
}

/// Whether the words from `positional` on are the command line of another command.
fn is_command(positional: &Arg) -> bool {
    positional.is_trailing_var_arg_set()
}

fn takes_many(positional: &Arg) -> bool {
    positional
        .get_num_args()
        .is_some_and(|number| number.max_values() > 1)
        || matches!(positional.get_action(), clap::ArgAction::Append)
}

fn options(command: &Command) -> Vec<String> {
    let shown = command
        .get_arguments()
        .filter(|option| !option.is_hide_set());
    shown
        .filter_map(|option| Some(format!("--{}", option.get_long()?)))
        .collect()
}

fn subcommands(command: &Command) -> Vec<String> {
    let shown = command.get_subcommands().filter(|it| !it.is_hide_set());
    shown.map(|it| it.get_name().to_owned()).collect()
}

/// The candidates for a value: the values that clap knows, or else the values in `known` for the
/// value's name in the help. If neither has values, the name decides whether the candidates are
/// devices, modes, groups, files or none.
fn values(argument: &Arg, known: &Known<'_>) -> Vec<String> {
    let possible = argument.get_possible_values();
    if !possible.is_empty() {
        let shown = possible.iter().filter(|value| !value.is_hide_set());
        return shown.map(|value| value.get_name().to_owned()).collect();
    }
    let name = argument.get_value_names().and_then(|names| names.first());
    let name = name.map(|name| name.as_str()).unwrap_or_default();
    if let Some((_, values)) = known.iter().find(|(of, _)| *of == name) {
        return values.clone();
    }
    match name {
        "DEV" | "DEVICE" => devices(),
        "MODE" => modes(),
        _ if argument.get_id() == "group" => running(),
        "FILE" | "DIR" | "DIRECTORY" | "PROGRAM" | "COMMAND" | "PATH" => vec![FILES.to_owned()],
        _ if argument.get_value_hint() == ValueHint::AnyPath => vec![FILES.to_owned()],
        _ => Vec::new(),
    }
}

fn devices() -> Vec<String> {
    let mut devices = interface::names();
    devices.push(ANY.to_owned());
    devices
}

fn modes() -> Vec<String> {
    let kernels = ModeKind::ALL.iter().map(|kind| kind.name().to_owned());
    kernels.chain(["flow".to_owned()]).collect()
}

/// The numbers of the groups that have members now.
fn running() -> Vec<String> {
    let seen = roster::entries().unwrap_or_default();
    let groups = seen.iter().filter_map(|seen| Some(seen.socket.fanout?.id));
    let groups: std::collections::BTreeSet<u16> = groups.collect();
    groups.into_iter().map(|group| group.to_string()).collect()
}
