//! The text of a setting and its place, so that error messages can show the place.

use crate::report::{Fault, Place, Report};

/// The longest steering program, in bytes.
pub const PROGRAM_MAX: usize = 64 * 1024;

/// A text with its place. Two sources are equal if their texts are equal, even if their places
/// differ.
#[derive(Clone, Debug, Default)]
pub struct Source {
    text: String,
    /// The surrounding text: lines of a file, a variable with its name, or an argument.
    whole: String,
    /// The beginning of each piece of the text, as a position in the text and a position in
    /// `whole`.
    pieces: Vec<(usize, usize)>,
    /// The name of the place in error messages.
    name: String,
    /// The number of the first line of `whole`.
    line: usize,
    /// Whether messages must not show the text.
    is_withheld: bool,
}

impl PartialEq for Source {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Source {}

impl Source {
    /// The `len` bytes of `whole` from byte `at` on. `whole` begins in line `line` of the place
    /// `name`.
    pub(crate) fn within(name: &str, line: usize, whole: &str, at: usize, len: usize) -> Self {
        Self {
            text: whole[at..at + len].to_owned(),
            whole: whole.to_owned(),
            pieces: vec![(0, at)],
            name: name.to_owned(),
            line,
            is_withheld: false,
        }
    }

    /// A text that is the whole content of the place `name`.
    pub fn new(name: &str, text: &str) -> Self {
        Self::within(name, 1, text, 0, text.len())
    }

    /// The same text. Messages show its lines only if `is_shown`.
    pub(crate) fn shown(self, is_shown: bool) -> Self {
        Self {
            is_withheld: !is_shown,
            ..self
        }
    }

    /// An empty text, to which lines are added. The first line has the number `line`.
    pub(crate) fn lines_from(name: &str, line: usize) -> Self {
        Self {
            name: name.to_owned(),
            line,
            ..Self::default()
        }
    }

    /// Adds the next line. The part from byte `at` on belongs to the text.
    pub(crate) fn push_line(&mut self, line: &str, at: usize) {
        self.pieces.push((self.text.len(), self.whole.len() + at));
        for (to, from) in [(&mut self.text, &line[at..]), (&mut self.whole, line)] {
            to.push_str(from);
            to.push('\n');
        }
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The place of the text's byte `offset`. If this byte is after the last word, the place of the
    /// end of that word.
    fn place(&self, offset: usize) -> Place {
        let offset = offset.min(self.text.trim_end().len());
        let piece = self.pieces.iter().rev().find(|(from, _)| *from <= offset);
        let (from, at) = piece.copied().unwrap_or_default();
        let at = (at + offset - from).min(self.whole.len());
        let before = &self.whole.as_bytes()[..at];
        let newline = |&byte: &u8| byte == b'\n';
        let begin = before.iter().rposition(newline).map_or(0, |end| end + 1);
        let line = self.line + before.iter().filter(|byte| newline(byte)).count();
        let shown = self.whole[begin..].lines().next().unwrap_or_default();
        Place::new(&self.name, line, shown, at - begin)
    }

    pub(crate) fn blame(&self, fault: Fault) -> Report {
        let place = self.place(fault.offset);
        let report = fault.report(place);
        match self.is_withheld {
            true => report.withheld(),
            false => report,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(source: &Source, word: &str) -> (usize, usize, String) {
        let place = source.place(source.text.find(word).unwrap());
        (place.line, place.column, place.text)
    }

    #[test]
    fn lines_of_a_file_are_found_with_what_stands_before_them() {
        let mut source = Source::lines_from("pcap.conf", 3);
        source.push_line("> main = do", 1);
        source.push_line("  >   tpc", 3);
        source.push_line(">  steer_flow", 1);
        assert_eq!(source.text(), " main = do\n   tpc\n  steer_flow\n");
        assert_eq!(seen(&source, "main"), (3, 3, "> main = do".to_owned()));
        assert_eq!(seen(&source, "tpc"), (4, 7, "  >   tpc".to_owned()));
        let end = source.place(source.text().len());
        assert_eq!((end.line, end.column), (5, 14), "behind the last word");
    }

    #[test]
    fn a_variable_may_have_lines() {
        let whole = "PCAP_FANOUT=main = do\n tpc\n steer_flow";
        let source = Source::within("environment", 1, whole, 12, whole.len() - 12);
        assert_eq!(seen(&source, "main").1, 13);
        assert_eq!(seen(&source, "tpc"), (2, 2, " tpc".to_owned()));
        assert_eq!(Source::default().place(7).column, 1);
    }

    #[test]
    fn what_says_the_same_is_equal() {
        let one = Source::within("a", 7, "x = tcp", 4, 3);
        assert_eq!(one, Source::new("b", "tcp"));
        assert_ne!(one, Source::new("b", "udp"));
    }
}
