//! The text of a steering program and where it stands, so that what is wrong with it is shown
//! there.

use crate::report::{Fault, Place, Report};

/// The longest program, bytes.
pub(crate) const PROGRAM_MAX: usize = 64 * 1024;

/// A text, and the place that it was taken from. Two are equal when they say the same, wherever
/// they stand.
#[derive(Clone, Debug, Default)]
pub struct Source {
    text: String,
    /// What the text is of: lines of a file, a variable with its name, an argument.
    whole: String,
    /// Where each piece of the text begins, in it and in the whole.
    pieces: Vec<(usize, usize)>,
    /// What errors call the place.
    name: String,
    /// The number of the whole's first line.
    line: usize,
}

impl PartialEq for Source {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Source {}

impl Source {
    /// The `len` bytes from `at` on of `whole`, which begins in line `line` of what errors call
    /// `name`.
    pub(crate) fn within(name: &str, line: usize, whole: &str, at: usize, len: usize) -> Self {
        Self {
            text: whole[at..at + len].to_owned(),
            whole: whole.to_owned(),
            pieces: vec![(0, at)],
            name: name.to_owned(),
            line,
        }
    }

    /// A whole text.
    pub fn new(name: &str, text: &str) -> Self {
        Self::within(name, 1, text, 0, text.len())
    }

    /// Nothing yet, to which lines are added from line `line` on.
    pub(crate) fn lines_from(name: &str, line: usize) -> Self {
        Self {
            name: name.to_owned(),
            line,
            ..Self::default()
        }
    }

    /// Adds the next line, of which the part from byte `at` on is the text's.
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

    /// Where the text's byte `offset` stands; at most behind its last word.
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

    /// The report of what is wrong at a byte of the text.
    pub(crate) fn blame(&self, fault: Fault) -> Report {
        let place = self.place(fault.offset);
        fault.report(place)
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
