//! Reads a command line by clap, and says more about what is wrong with one.

use std::ffi::OsString;
use std::num::ParseIntError;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, CommandFactory, Error, FromArgMatches};
use fanpcap_steer::nearest::nearest;

/// The arguments in `words`, which begin with the command's name. Prints the help, or what is
/// wrong, and ends the process if the line has no arguments to return.
pub fn parse<Arguments: CommandFactory + FromArgMatches>(
    command: Command,
    words: &[OsString],
) -> Arguments {
    try_parse(command, words).unwrap_or_else(|error| error.exit())
}

fn try_parse<Arguments: CommandFactory + FromArgMatches>(
    command: Command,
    words: &[OsString],
) -> Result<Arguments, Error> {
    let mut command = with_negatives(command);
    let matches = command.try_get_matches_from_mut(words);
    let read = matches.and_then(|mut matches| Arguments::from_arg_matches_mut(&mut matches));
    read.map_err(|error| {
        // clap builds only the subcommands that it has come to.
        command.build();
        hinted(
            error.with_cmd(&Arguments::command()),
            named(&command, words),
        )
    })
}

/// The subcommand that the words name; if it is `help`, its parent.
fn named<'a>(command: &'a Command, words: &[OsString]) -> &'a Command {
    let mut subcommand = command;
    for word in words.iter().skip(1) {
        let next = subcommand.find_subcommand(word);
        let next = next.filter(|next| next.get_name() != "help");
        subcommand = next.unwrap_or(subcommand);
    }
    subcommand
}

/// Lets values be negative numbers, so that the message on `-1` is about the value, not about an
/// option `-1`. In a command with an option such as `-4` only values of options may be negative.
fn with_negatives(command: Command) -> Command {
    let is_digit = |arg: &Arg| arg.get_short().is_some_and(|it| it.is_ascii_digit());
    let has_digits = command.get_arguments().any(is_digit);
    let command = command.mut_args(|arg| {
        let may_be = arg.get_action().takes_values() && !(has_digits && arg.is_positional());
        match may_be {
            true => arg.allow_negative_numbers(true),
            false => arg,
        }
    });
    command.mut_subcommands(with_negatives)
}

/// The error with advice where clap has none, or none that helps.
#[allow(
    clippy::wildcard_enum_match_arm,
    reason = "clap's own texts on other mistakes suffice"
)]
fn hinted(error: Error, command: &Command) -> Error {
    let wrong = wrong(&error);
    let mut error = error;
    let is_similar_argument = error.get(ContextKind::SuggestedArg).is_some();
    let advice = match error.kind() {
        ErrorKind::MissingRequiredArgument => missing(&wrong, command),
        ErrorKind::UnknownArgument if wrong.contains("undrain") => Some(OPPOSITE.to_owned()),
        ErrorKind::UnknownArgument if is_similar_argument => {
            // clap also proposes to pass a misspelt option as a value.
            error.remove(ContextKind::Suggested);
            None
        }
        ErrorKind::UnknownArgument => Some(unknown(&wrong, command).to_owned()),
        ErrorKind::InvalidSubcommand if wrong == "undrain" => Some(OPPOSITE.to_owned()),
        ErrorKind::InvalidSubcommand if error.get(ContextKind::SuggestedSubcommand).is_none() => {
            similar(&wrong, command)
        }
        ErrorKind::ValueValidation => number(&error),
        _ => None,
    };
    let Some(advice) = advice else {
        return error;
    };
    if error.kind() == ErrorKind::ValueValidation {
        error = without_source(&error).with_cmd(command);
    }
    let advice = vec![StyledStr::from(advice)];
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(advice));
    error
}

const OPPOSITE: &str = "drain with --undo gives the shares back";

/// The argument or subcommand that is wrong; empty if the error names none.
fn wrong(error: &Error) -> String {
    let kinds = [ContextKind::InvalidArg, ContextKind::InvalidSubcommand];
    match kinds.iter().find_map(|kind| error.get(*kind)) {
        Some(ContextValue::String(text)) => text.clone(),
        Some(ContextValue::Strings(all)) => all.first().cloned().unwrap_or_default(),
        Some(_) | None => String::new(),
    }
}

/// What a missing argument is.
fn missing(name: &str, command: &Command) -> Option<String> {
    if name == "<DEV>" {
        return Some("DEV is a network device: 'ip link' lists them".to_owned());
    }
    // clap writes a positional argument in square brackets if other arguments can replace it.
    let bare = |text: &str| text.replace(['<', '>', '[', ']'], "");
    let is_missing = |arg: &&Arg| bare(&arg.to_string()) == bare(name);
    let help = command.get_arguments().find(is_missing)?.get_help()?;
    let help = help.to_string();
    let first = help.split(". ").next().unwrap_or_default();
    Some(format!("{name}: {first}"))
}

/// What to do about an argument that the command does not have.
fn unknown(word: &str, command: &Command) -> &'static str {
    let has_config = command.get_arguments().any(|it| it.get_id() == "config");
    if word.starts_with('-') {
        "the help lists the options"
    } else if has_config && word.ends_with(".conf") {
        "the file with the settings follows --config"
    } else {
        "it is one word too many, or the option before it takes no value"
    }
}

/// The subcommand that a misspelt one may mean, if clap does not find it: clap has no measure for
/// transposed letters.
fn similar(word: &str, command: &Command) -> Option<String> {
    let near = nearest(word, command.get_subcommands().map(Command::get_name))?;
    Some(format!("a similar subcommand exists: '{near}'"))
}

/// What to write instead of a value that is no number, or is out of range. clap's own texts are
/// "invalid digit found in string" and "0 is not in 1..=64".
fn number(error: &Error) -> Option<String> {
    let source = std::error::Error::source(error)?;
    if source.is::<ParseIntError>() {
        return Some("write a whole number, without sign or unit".to_owned());
    }
    let text = source.to_string();
    let (least, most) = text.split_once(" is not in ")?.1.split_once("..")?;
    Some(match most.trim_start_matches('=') {
        "" | LARGEST_32 | LARGEST_I64 | LARGEST_U64 => {
            format!("write a whole number of at least {least}")
        }
        most => format!("write a whole number from {least} to {most}"),
    })
}

/// Bounds that only the type of a number has.
const LARGEST_32: &str = "4294967295";
const LARGEST_I64: &str = "9223372036854775807";
const LARGEST_U64: &str = "18446744073709551615";

/// The same error about a value, without the reason of the parser.
fn without_source(error: &Error) -> Error {
    let mut without = Error::new(error.kind());
    for (kind, value) in error.context() {
        without.insert(kind, value.clone());
    }
    without
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    #[command(name = "x", mut_arg("device", |it| it.required(true)))]
    struct Line {
        #[command(flatten)]
        device: crate::DeviceArgument,
        #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
        count: Option<u16>,
        #[arg(long)]
        size: Option<u64>,
        #[arg(long)]
        config: Option<String>,
    }

    #[derive(Debug, Parser)]
    #[command(name = "x")]
    enum Tool {
        #[command(subcommand)]
        Do(Action),
    }

    #[derive(Debug, clap::Subcommand)]
    enum Action {
        Run {
            /// The node
            node: String,
        },
    }

    fn refused<T: CommandFactory + FromArgMatches>(line: &str) -> String {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let read = try_parse::<T>(T::command(), &words);
        read.err()
            .map(|error| error.to_string())
            .unwrap_or_default()
    }

    fn wrong(line: &str) -> String {
        refused::<Line>(line)
    }

    #[test]
    fn advice_stands_below_what_is_wrong() {
        assert!(wrong("x").contains("tip: DEV is a network device: 'ip link' lists them"));
        assert!(wrong("x a --count -1").contains("tip: write a whole number from 1 to 65535"));
        assert!(wrong("x a --count -1").contains("try '--help'"));
        assert!(wrong("x a --cuont 1").contains("'--count'"));
        assert!(wrong("x a --undo").contains("tip: the help lists the options"));
        assert!(wrong("x a b").contains("tip: it is one word too many"));
        assert!(wrong("x a --size -1").contains("tip: write a whole number, without sign"));
        assert!(!wrong("x a --size x").contains("digit"));
        assert!(wrong("x a y.conf").contains("tip: the file with the settings follows --config"));
    }

    #[test]
    fn subcommands_have_advice_of_their_own() {
        let wrong = refused::<Tool>;
        let tip = "tip: a similar subcommand exists: 'run'";
        for line in ["x do rnu", "x do runs", "x do help rnu"] {
            assert_eq!(wrong(line).matches(tip).count(), 1, "{line}");
        }
        assert!(wrong("x do run").contains("tip: <NODE>: The node"));
        assert!(wrong("x do run 1 --undrain").contains("tip: drain with --undo"));
    }
}
