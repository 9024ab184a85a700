//! Errors in a steering program, with their positions.

use std::fmt;
use std::ops::Range;

/// The reason why a steering program was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The wrong text in the source, as a range of bytes. The range is empty if something is
    /// missing.
    pub span: Range<usize>,
    /// What was expected, and what was found.
    pub message: String,
    /// Advice for the user.
    pub hint: Option<String>,
}

impl Error {
    pub(crate) fn new(span: Range<usize>, message: impl Into<String>) -> Error {
        Error {
            span,
            message: message.into(),
            hint: None,
        }
    }

    pub(crate) fn hint(self, hint: impl Into<String>) -> Error {
        Error {
            hint: Some(hint.into()),
            ..self
        }
    }

    pub(crate) fn or_hint(self, hint: &str) -> Error {
        let hint = self.hint.or_else(|| Some(hint.to_owned()));
        Error { hint, ..self }
    }

    pub(crate) fn hinted(self, hint: Option<String>) -> Error {
        Error { hint, ..self }
    }

    /// Line and column of the error, both counted from 1. Columns are in characters.
    pub fn position(&self, source: &str) -> (usize, usize) {
        let before = up_to(source, self.span.start);
        let line = before.matches('\n').count() + 1;
        let start = before.rfind('\n').map_or(0, |at| at + 1);
        (line, before[start..].chars().count() + 1)
    }

    /// The error as text, with its line and a caret below the mistake:
    ///
    /// ```text
    /// 1:8: expected a function, found the unknown name 'tpc'; did you mean 'tcp'?
    /// main = tpc >-> steer_flow
    ///        ^
    /// ```
    pub fn render(&self, source: &str) -> String {
        let (line, column) = self.position(source);
        let text = source.split('\n').nth(line - 1).unwrap_or_default();
        let text: Vec<char> = text.trim_end_matches('\r').chars().map(harmless).collect();
        let caret = (column - 1).min(text.len());
        let from = caret.saturating_sub(EXCERPT / 2);
        let from = from.min(text.len().saturating_sub(EXCERPT));
        let to = (from + EXCERPT).min(text.len());
        let head = if from > 0 { ELLIPSIS } else { "" };
        let tail = if to < text.len() { ELLIPSIS } else { "" };
        let shown: String = text[from..to].iter().collect();
        let under = head.len() + caret - from + 1;
        format!(
            "{line}:{column}: {self}\n{head}{shown}{tail}\n{:>under$}",
            '^'
        )
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hint = self.hint.iter().flat_map(|hint| ["; ", hint.as_str()]);
        let parts = [self.message.as_str()].into_iter().chain(hint);
        let text: String = parts.flat_map(str::chars).map(harmless).collect();
        f.write_str(&text)
    }
}

impl std::error::Error for Error {}

/// The source up to byte `at`. If `at` is within a character, the text ends before this character.
fn up_to(source: &str, mut at: usize) -> &str {
    at = at.min(source.len());
    while !source.is_char_boundary(at) {
        at -= 1;
    }
    &source[..at]
}

/// A text of the user, for a message: in quotes, and shortened if the text is long.
pub fn quote(text: &str) -> String {
    match text.char_indices().nth(QUOTE_MAX) {
        Some((end, _)) => format!("'{}{ELLIPSIS}'", &text[..end]),
        None => format!("'{text}'"),
    }
}

/// The character itself, or a replacement of one column if the character controls a terminal or is
/// invisible.
fn harmless(c: char) -> char {
    match c {
        '\t' | '\n' => ' ',
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' => '?',
        '\u{feff}' => '?',
        c if c.is_control() => '?',
        c => c,
    }
}

const ELLIPSIS: &str = "...";
const QUOTE_MAX: usize = 32;
/// Maximum number of characters of a line that are shown around the mistake.
const EXCERPT: usize = 72;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_is_counted_in_characters() {
        let source = "main = do\n\tü tpc\n";
        let at = source.find("tpc").unwrap();
        let error = Error::new(at..at + 3, "no").hint("yes");
        assert_eq!(error.position(source), (2, 4));
        assert_eq!(error.render(source), "2:4: no; yes\n ü tpc\n   ^");
    }

    #[test]
    fn a_long_line_is_cut_around_the_place() {
        let source = format!("{} tpc {}", "é".repeat(500), "ü".repeat(500));
        let at = source.find("tpc").unwrap();
        let rendered = Error::new(at..at + 3, "no").render(&source);
        let lines: Vec<&str> = rendered.lines().collect();
        assert!(lines[1].starts_with("...é") && lines[1].ends_with("ü..."));
        let caret = lines[2].chars().count() - 1;
        assert_eq!(lines[1].chars().nth(caret), Some('t'));
    }

    #[test]
    fn terminals_are_not_attacked() {
        let rendered = Error::new(0..0, "odd \u{1b}[2J").render("a\u{202e}\u{9b}b");
        assert_eq!(rendered, "1:1: odd ?[2J\na??b\n^");
    }

    #[test]
    fn any_place_is_shown() {
        for source in ["", "\n", "a\n", "\r\n", "\u{1f980}"] {
            for at in 0..6 {
                let error = Error::new(at..at, "x");
                assert!(error.render(source).ends_with('^'), "{source:?} {at}");
            }
        }
    }
}
