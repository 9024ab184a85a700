//! A steering program's text, from a file or standard input.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use anyhow::{Context, Result, anyhow, ensure};
use fanpcap_pcap::compile_expression;
use fanpcap_steer::ir::Tree;
use fanpcap_steer::{Definition, Error, Overridden, SOURCE_MAX, definitions, overridden, tree};

/// A steering program's text and its name.
pub(super) struct Source {
    name: String,
    text: String,
}

impl Source {
    /// Reads a file, or standard input for `-`.
    pub(super) fn read(file: &Path) -> Result<Source> {
        let (name, text) = if file == Path::new("-") {
            ("standard input".to_owned(), read(io::stdin()))
        } else {
            (file.display().to_string(), File::open(file).and_then(read))
        };
        let is_text = |name: &str| ["=", ">->", " "].iter().any(|part| name.contains(part));
        let text = text.with_context(|| match is_text(&name) {
            true => format!("reading {name} (a program's text follows -e)"),
            false => format!("reading {name}"),
        })?;
        ensure!(
            !CAPTURES.iter().any(|magic| text.starts_with(magic)),
            "{name} is a capture file, not a steering program: the steering program comes first"
        );
        Ok(Source { name, text })
    }

    /// The name: for a file, its path.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// A text that is not in a file.
    pub(super) fn new(name: &str, text: &str) -> Source {
        let [name, text] = [name, text].map(str::to_owned);
        Source { name, text }
    }

    /// The text of the option `--text`.
    pub(super) fn of_text(text: &str) -> Source {
        Source::new("--text", text)
    }

    /// Compiles the text. An error message has the line, the column and a caret.
    pub(super) fn tree(&self) -> Result<Tree> {
        tree(&self.text, &compile_expression).map_err(|error| self.wrong(&error))
    }

    /// The definitions of the text. Errors are those of [`Source::tree`].
    pub(super) fn definitions(&self) -> Result<Vec<Definition>> {
        definitions(&self.text, &compile_expression).map_err(|error| self.wrong(&error))
    }

    /// The warnings about the text, which must be correct, a line each with an excerpt.
    pub(super) fn warnings(&self) -> String {
        let told = overridden(&self.text).into_iter();
        let line = |it: Overridden| {
            let message = format!("warning: {}", it.warning.message);
            let warning = Error {
                message,
                ..it.warning
            };
            format!("{}:{}\n", self.name, warning.render(&self.text))
        };
        told.map(line).collect()
    }

    fn wrong(&self, error: &Error) -> anyhow::Error {
        anyhow!("{}:{}", self.name, error.render(&self.text))
    }
}

/// How capture files begin, as [`read`] returns it: pcapng, and pcap of either byte order and
/// resolution.
const CAPTURES: [&str; 5] = [
    "\n\r\r\n",
    "\u{fffd}\u{fffd}\u{fffd}\u{fffd}",
    "\u{fffd}\u{f2}\u{fffd}",
    "M<\u{fffd}\u{fffd}",
    "\u{fffd}\u{fffd}<M",
];

/// Reads a text. If it is too long, reads just enough for the compiler to refuse it. Bytes that are
/// not UTF-8 become U+FFFD, which the compiler refuses everywhere except in comments.
fn read(from: impl Read) -> io::Result<String> {
    let mut bytes = Vec::new();
    let most = u64::try_from(SOURCE_MAX).unwrap_or(u64::MAX);
    from.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use fanpcap_testkit::Scratch;

    use super::*;

    #[test]
    fn a_capture_file_is_no_program() {
        let scratch = Scratch::new().unwrap();
        for magic in [
            b"\n\r\r\n",
            b"\xa1\xb2\xc3\xd4",
            b"\xd4\xc3\xb2\xa1",
            b"\xa1\xb2\x3c\x4d",
            b"\x4d\x3c\xb2\xa1",
        ] {
            let file = scratch.file("capture");
            std::fs::write(&file, magic).unwrap();
            let said = Source::read(&file).map(drop).unwrap_err().to_string();
            assert!(said.contains("is a capture file"), "{magic:x?}: {said}");
        }
        let said = Source::read(Path::new("main=steer_flow")).map(drop);
        assert!(said.unwrap_err().to_string().contains("follows -e"));
    }
}
