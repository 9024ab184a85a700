//! Reads a command line by clap, and says more about what is wrong with one.

use std::ffi::OsString;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, CommandFactory, Error, FromArgMatches};

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
    let matches = with_negatives(command).try_get_matches_from(words);
    let read = matches.and_then(|mut matches| Arguments::from_arg_matches_mut(&mut matches));
    read.map_err(|error| hinted(error.with_cmd(&Arguments::command())))
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
fn hinted(mut error: Error) -> Error {
    if let Some(advice) = advice(&error) {
        let advice = vec![StyledStr::from(advice)];
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(advice));
    }
    error
}

fn advice(error: &Error) -> Option<&'static str> {
    let named = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(text)) => text.as_str(),
        Some(ContextValue::Strings(all)) => all.first().map_or("", String::as_str),
        Some(_) | None => "",
    };
    let source = std::error::Error::source(error);
    let is_number = source.is_some_and(|it| it.to_string().contains("invalid digit"));
    let kind = error.kind();
    if kind == ErrorKind::MissingRequiredArgument && named == "<DEV>" {
        return Some("DEV is a network device: 'ip link' lists them");
    }
    if kind == ErrorKind::UnknownArgument && !named.starts_with('-') {
        return Some("it is one word too many, or the option before it takes no value");
    }
    if kind == ErrorKind::UnknownArgument && error.get(ContextKind::SuggestedArg).is_none() {
        return Some("the help lists the options");
    }
    let is_no_number = kind == ErrorKind::ValueValidation && is_number;
    is_no_number.then_some("write a whole number, without sign or unit")
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
    }

    fn wrong(line: &str) -> String {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let read = try_parse::<Line>(Line::command(), &words);
        read.unwrap_err().to_string()
    }

    #[test]
    fn advice_stands_below_what_is_wrong() {
        assert!(wrong("x").contains("tip: DEV is a network device: 'ip link' lists them"));
        assert!(wrong("x a --count -1").contains("-1 is not in 1..=65535"));
        assert!(wrong("x a --cuont 1").contains("'--count'"));
        assert!(wrong("x a --undo").contains("tip: the help lists the options"));
        assert!(wrong("x a b").contains("tip: it is one word too many"));
        assert!(wrong("x a --size -1").contains("tip: write a whole number"));
    }
}
