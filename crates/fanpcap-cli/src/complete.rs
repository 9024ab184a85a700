//! `fanpcap complete`: what a word of the command's line may be; the shells' completions ask it.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Arg, Args, Command, CommandFactory, ValueHint};
use fanpcap_config::mode::Kind;
use fanpcap_group::roster;
use fanpcap_linux::interface;

use crate::snapshot::ANY;
use crate::streams;

/// What is said where files are meant: the shell knows these best.
const FILES: &str = ":files";

/// Prints what the last word may be, a line for each
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// The words behind the command's name, up to the one that is being written
    #[arg(last = true)]
    words: Vec<String>,
}

/// Does it.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let mut command = super::Arguments::command().disable_help_subcommand(true);
    command.build();
    let mut text = of(&command, &arguments.words).join("\n");
    text.push('\n');
    streams::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// What the last of the words may be.
fn of(command: &Command, words: &[String]) -> Vec<String> {
    let Some((last, before)) = words.split_last() else {
        return Vec::new();
    };
    let mut command = command;
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
        Some(option) => values(option),
        None if last.starts_with('-') => options(command),
        None => {
            let mut found = subcommands(command);
            found.extend(positionals.next().map(values).unwrap_or_default());
            found
        }
    };
    found
        .into_iter()
        .filter(|it| it.starts_with(last.as_str()) || it == FILES)
        .collect()
}

/// The option of that name that takes a value.
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

/// What follows is the line of another command.
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

/// What an argument may be, by the words that clap knows, else by what its help calls the value.
fn values(argument: &Arg) -> Vec<String> {
    let known = argument.get_possible_values();
    if !known.is_empty() {
        let shown = known.iter().filter(|value| !value.is_hide_set());
        return shown.map(|value| value.get_name().to_owned()).collect();
    }
    let name = argument.get_value_names().and_then(|names| names.first());
    match name.map(|name| name.as_str()).unwrap_or_default() {
        "DEV" | "DEVICE" => devices(),
        "MODE" => modes(),
        "ROW" => fanpcap_bench::rows().map(str::to_owned).collect(),
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
    let kernels = Kind::ALL.iter().map(|kind| kind.name().to_owned());
    kernels.chain(["flow".to_owned()]).collect()
}

/// The numbers of the groups that have members just now.
fn running() -> Vec<String> {
    let seen = roster::entries().unwrap_or_default();
    let groups = seen.iter().filter_map(|seen| Some(seen.socket.fanout?.id));
    let groups: std::collections::BTreeSet<u16> = groups.collect();
    groups.into_iter().map(|group| group.to_string()).collect()
}

/// The shells' scripts, with the files that they are installed as.
pub(crate) const SCRIPTS: [(&str, &str); 3] = [
    (
        "bash-completion/completions/fanpcap",
        include_str!("../completions/fanpcap.bash"),
    ),
    (
        "zsh/site-functions/_fanpcap",
        include_str!("../completions/fanpcap.zsh"),
    ),
    (
        "fish/vendor_completions.d/fanpcap.fish",
        include_str!("../completions/fanpcap.fish"),
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn told(line: &str) -> Vec<String> {
        let mut command = crate::Arguments::command().disable_help_subcommand(true);
        command.build();
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        of(&command, &words)
    }

    #[test]
    fn each_word_has_what_belongs_there() {
        assert_eq!(told("ca"), ["capture"]);
        assert_eq!(told("bench li"), ["list"]);
        assert!(told("bench steer").contains(&"steering".to_owned()));
        assert_eq!(told("capture --fanout ro"), ["rollover"]);
        assert_eq!(told("run --fanout fl"), ["flow"]);
        assert_eq!(told("top --sort drops"), ["drops"]);
        assert_eq!(told("top --js"), ["--json"]);
        for line in [
            "top l",
            "gen -i l",
            "capture --interface l",
            "config l",
            "metrics l",
            "run --device l",
        ] {
            assert!(
                told(line).contains(&"lo".to_owned()),
                "{line}: {:?}",
                told(line)
            );
        }
        assert_eq!(told("top lo l"), Vec::<String>::new());
        for line in [
            "lang check x",
            "bench compare before x",
            "gen --replay ",
            "run -- ",
            "run -n 4 tcpdump -n ",
            "run tcpdump -w",
            "capture --write ",
        ] {
            assert_eq!(told(line), [FILES], "{line}");
        }
    }

    #[test]
    fn what_is_hidden_is_not_offered() {
        for line in ["", "bench ", "bench --", "gen --", "lang "] {
            for hidden in ["manual", "complete", "generate", "compiler", "--stray"] {
                assert!(!told(line).contains(&hidden.to_owned()), "{line}: {hidden}");
            }
        }
    }
}
