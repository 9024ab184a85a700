//! Writes text to standard output and standard error. It is no error if the reader closes its pipe
//! early, like `head`. Names of devices and programs may contain characters that control a
//! terminal. The functions write `?` instead of these characters.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Context, Result};
use serde::Serialize;

/// Whether the reader of a stream is still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// The reader got the text.
    Reads,
    /// The reader has closed the pipe.
    Gone,
}

/// Writes a text to standard output, unbuffered.
///
/// # Errors
/// The write failed for another reason than a closed pipe.
pub fn print(text: &str) -> Result<Reader> {
    write(&mut io::stdout().lock(), text).context("writing to standard output")
}

/// Prints a value as a line of JSON, or as text.
///
/// # Errors
/// As for [`print`].
pub fn print_as(
    is_json: bool,
    value: &impl Serialize,
    text: impl FnOnce() -> String,
) -> Result<Reader> {
    match is_json {
        true => print(&(serde_json::to_string(value).context("writing JSON")? + "\n")),
        false => print(&text()),
    }
}

/// The exit status of a command: success if `is_done`, failure if a part of its work failed.
pub fn status(is_done: bool) -> ExitCode {
    match is_done {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// Writes a text to standard error. Ignores errors, because they can't be reported.
pub fn note(text: &str) {
    let _ = write(&mut io::stderr().lock(), text);
}

/// A command's exit status. Prints an error to standard error.
pub fn ended(done: Result<ExitCode>) -> ExitCode {
    done.unwrap_or_else(|error| {
        note(&format!("fanpcap: {}\n", words(&error)));
        ExitCode::FAILURE
    })
}

/// An error with its causes. A cause is left out if the message already contains its text.
pub fn words(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text += ": ";
            text += &cause;
        }
    }
    text
}

fn write(out: &mut impl Write, text: &str) -> io::Result<Reader> {
    let text = text.replace(acts, "?");
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Reader::Gone),
        written => written.map(|()| Reader::Reads),
    }
}

/// Whether a character controls a terminal. The line end and the tabulator are allowed.
fn acts(letter: char) -> bool {
    letter.is_control() && !matches!(letter, '\n' | '\t')
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;

    #[test]
    fn a_cause_is_said_once() {
        let error = anyhow::Error::new(io::Error::from_raw_os_error(1));
        let error = error.context("socket: Operation not permitted (os error 1)");
        let error = error.context("sending");
        let said = "sending: socket: Operation not permitted (os error 1)";
        assert_eq!(words(&error), said);
    }

    #[test]
    fn nothing_that_acts_on_a_terminal_is_written() {
        let mut out = Vec::new();
        write(&mut out, "eth\u{1b}[2J\u{9b}1m\ta\rb\n").unwrap();
        assert_eq!(out, "eth?[2J?1m\ta?b\n".as_bytes());
    }

    #[test]
    fn only_a_closed_pipe_is_no_error() {
        let (reader, mut writer) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(write(&mut writer, "x").unwrap(), Reader::Reads);
        // A child of another test may have a copy of the reader, so a close would not be enough.
        reader.shutdown(std::net::Shutdown::Both).unwrap();
        assert_eq!(write(&mut writer, "x").unwrap(), Reader::Gone);
        let mut full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        write(&mut full, "x").unwrap_err();
    }
}
