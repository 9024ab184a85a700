//! Turns source text into tokens: words, numbers, strings, addresses and symbols. Skips blanks and
//! comments.

mod literal;

use crate::Error;
use crate::error::quote;
use crate::limits::SOURCE_MAX;
use std::borrow::Cow;
use std::ops::Range;

#[derive(Clone, Debug)]
pub(crate) struct Token<'a> {
    pub(crate) kind: Lexeme<'a>,
    /// Range of bytes in the source.
    pub(crate) span: Range<usize>,
    /// Column of the first character, counted from 1. Tab stops are 8 columns apart.
    pub(crate) column: u32,
    /// The token is the first one on its line.
    pub(crate) first: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Lexeme<'a> {
    /// A word. Of a qualified word such as `P.filter`, the token has only the last part.
    Name(&'a str),
    Number(u64),
    /// A string, without its quotes.
    Text(Cow<'a, str>),
    /// An address or prefix without quotes.
    Address(&'a str),
    /// Symbol characters without blanks between them: an operator, `=`, `::`, `..`, `$` or `-`.
    Symbol(&'a str),
    /// One of `( ) [ ] { } , ; `` ` ``.
    Mark(char),
    End,
}

/// The tokens of a source; the last one is [`Lexeme::End`].
pub(crate) fn tokens(source: &str) -> Result<Vec<Token<'_>>, Error> {
    if source.len() > SOURCE_MAX {
        let message = format!(
            "expected at most {SOURCE_MAX} bytes, found {}",
            source.len()
        );
        return Err(Error::new(0..0, message));
    }
    let mut lexer = Lexer {
        source,
        at: 0,
        column: 1,
        first: true,
        tokens: Vec::with_capacity(source.len() / 4 + 1),
    };
    while lexer.blanks()? {
        lexer.token()?;
    }
    lexer.push(Lexeme::End, 0);
    Ok(lexer.tokens)
}

struct Lexer<'a> {
    source: &'a str,
    at: usize,
    column: u32,
    first: bool,
    tokens: Vec<Token<'a>>,
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        &self.source[self.at..]
    }

    fn advance(&mut self, bytes: usize) {
        for c in self.rest()[..bytes].chars() {
            match c {
                '\n' => (self.column, self.first) = (1, true),
                '\t' => self.column = (self.column - 1) / TAB * TAB + TAB + 1,
                _ => self.column += 1,
            }
        }
        self.at += bytes;
    }

    fn push(&mut self, kind: Lexeme<'a>, bytes: usize) {
        self.tokens.push(Token {
            kind,
            span: self.at..self.at + bytes,
            column: self.column,
            first: self.first,
        });
        self.advance(bytes);
        self.first = false;
    }

    /// Skips blanks and comments. Returns false at the end of the source.
    fn blanks(&mut self) -> Result<bool, Error> {
        loop {
            let rest = self.rest();
            let blank = rest.len() - rest.trim_start_matches([' ', '\t', '\n', '\r']).len();
            if blank > 0 {
                self.advance(blank);
            } else if is_comment(rest) {
                self.advance(rest.find('\n').unwrap_or(rest.len()));
            } else if rest.starts_with("{-") {
                let bytes = self.comment()?;
                self.advance(bytes);
            } else {
                return Ok(!rest.is_empty());
            }
        }
    }

    /// Length of the comment that begins here. Comments nest.
    fn comment(&self) -> Result<usize, Error> {
        let rest = self.rest().as_bytes();
        let (mut at, mut open) = (0, 0);
        while let Some(pair) = rest.get(at..at + 2) {
            match pair {
                b"{-" => (open, at) = (open + 1, at + 2),
                b"-}" => (open, at) = (open - 1, at + 2),
                _ => at += 1,
            }
            if open == 0 {
                return Ok(at);
            }
        }
        let message = "expected '-}' at this comment's end, found the end of the program";
        Err(Error::new(self.at..self.at + 2, message))
    }

    fn token(&mut self) -> Result<(), Error> {
        let rest = self.rest();
        let Some(c) = rest.chars().next() else {
            return Ok(());
        };
        if let Some(bytes) = literal::address(rest) {
            self.push(Lexeme::Address(&rest[..bytes]), bytes);
            return Ok(());
        }
        match c {
            '(' | ')' | '[' | ']' | '{' | '}' | ',' | ';' | '`' => self.push(Lexeme::Mark(c), 1),
            '"' => {
                let (text, bytes) = literal::text(rest).map_err(|error| self.shifted(error))?;
                self.push(Lexeme::Text(text), bytes);
            }
            '0'..='9' => {
                let (number, bytes) = literal::number(rest).map_err(|error| self.shifted(error))?;
                self.push(Lexeme::Number(number), bytes);
            }
            c if is_letter(c) => {
                let (name, bytes) = word(rest);
                self.push(Lexeme::Name(name), bytes);
            }
            c if is_symbol(c) => {
                let bytes = symbol(rest);
                self.push(Lexeme::Symbol(&rest[..bytes]), bytes);
            }
            c => return Err(self.unknown(c)),
        }
        Ok(())
    }

    /// Converts an error's span, which counts from the beginning of this token, to offsets in the
    /// source.
    fn shifted(&self, error: Error) -> Error {
        let span = error.span.start + self.at..error.span.end + self.at;
        Error { span, ..error }
    }

    fn unknown(&self, c: char) -> Error {
        let message = format!(
            "expected a word, a number, a string or an operator, found {}",
            quote(c.encode_utf8(&mut [0; 4]))
        );
        let error = Error::new(self.at..self.at + c.len_utf8(), message);
        match c {
            '\u{201c}' | '\u{201d}' | '\u{2018}' | '\u{2019}' | '\'' => {
                error.hint("write strings in \"straight double quotes\"")
            }
            char::REPLACEMENT_CHARACTER => error.hint("save the text as UTF-8"),
            '\u{feff}' => error.hint("save the text without a byte order mark"),
            c if c.is_whitespace() => {
                error.hint("this character only looks like a blank: write a blank")
            }
            _ => error,
        }
    }
}

/// The next word and its length. For `Q.when`, the length includes the module's name.
fn word(rest: &str) -> (&str, usize) {
    let mut from = 0;
    loop {
        let part = &rest[from..];
        let end = part.find(|c| !is_of_word(c)).unwrap_or(part.len());
        let mut after = part[end..].chars();
        let is_module = part.starts_with(|c: char| c.is_ascii_uppercase());
        let goes_on = after.next() == Some('.') && after.next().is_some_and(is_letter);
        if !(is_module && goes_on) {
            return (&part[..end], from + end);
        }
        from += end + 1;
    }
}

/// Whether a comment begins here: two or more dashes without another symbol character after them.
/// `-->` is an operator.
fn is_comment(rest: &str) -> bool {
    rest.starts_with("--") && !rest.trim_start_matches('-').starts_with(is_symbol)
}

/// Length of a symbol: all symbol characters before a comment.
fn symbol(rest: &str) -> usize {
    let end = rest.find(|c| !is_symbol(c)).unwrap_or(rest.len());
    let comment = rest[..end].find("--").filter(|at| is_comment(&rest[*at..]));
    comment.unwrap_or(end)
}

fn is_symbol(c: char) -> bool {
    SYMBOLS.contains(c)
}

fn is_letter(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_'
}

pub(crate) fn is_of_word(c: char) -> bool {
    is_letter(c) || c.is_ascii_digit() || c == '\''
}

const SYMBOLS: &str = "!#$%&*+./<=>?@\\^|-~:";
/// Columns from one tab stop to the next.
const TAB: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(source: &str) -> Vec<Lexeme<'_>> {
        let mut kinds: Vec<_> = tokens(source)
            .unwrap()
            .into_iter()
            .map(|t| t.kind)
            .collect();
        assert_eq!(kinds.pop(), Some(Lexeme::End));
        kinds
    }

    #[test]
    fn words_numbers_strings_and_symbols() {
        use Lexeme::{Mark, Name, Number, Symbol, Text};
        assert_eq!(
            kinds("main=tcp>->Q.when is_x' 0x1F{-# a {- b -} #-}[1..5] -- end"),
            [
                Name("main"),
                Symbol("="),
                Name("tcp"),
                Symbol(">->"),
                Name("when"),
                Name("is_x'"),
                Number(31),
                Mark('['),
                Number(1),
                Symbol(".."),
                Number(5),
                Mark(']'),
            ]
        );
        assert_eq!(kinds(r#""a \"b\" \\""#), [Text(r#"a "b" \"#.into())]);
    }

    #[test]
    fn addresses_need_no_quotes_and_are_not_operators() {
        use Lexeme::{Address, Name, Number, Symbol};
        for address in [
            "192.168.0.0/16",
            "10.0.0.1",
            "2001:db8::1",
            "::1/128",
            "::/0",
            "fe80::1",
            "cafe::/16",
            "::ffff:1.2.3.4",
            "4c:60:de:86:55:46",
        ] {
            assert_eq!(kinds(address), [Address(address)]);
            let before = format!("{address}.&&.x");
            assert_eq!(kinds(&before)[0], Address(address), "{before}");
        }
        assert_eq!(
            kinds("a :: Net fac::NetFunction 80.||."),
            [
                Name("a"),
                Symbol("::"),
                Name("Net"),
                Name("fac"),
                Symbol("::"),
                Name("NetFunction"),
                Number(80),
                Symbol(".||."),
            ]
        );
    }

    #[test]
    fn dashes_with_a_symbol_behind_them_are_an_operator() {
        use Lexeme::{Name, Symbol};
        assert_eq!(kinds("a --> b"), [Name("a"), Symbol("-->"), Name("b")]);
        assert_eq!(kinds("a >--> b"), [Name("a"), Symbol(">-->"), Name("b")]);
        for source in ["a -- > b", "a --b", "a ----", "a --- | b", "a ---("] {
            assert_eq!(kinds(source), [Name("a")], "{source}");
        }
        assert_eq!(kinds("a >->--b"), [Name("a"), Symbol(">->")]);
    }

    #[test]
    fn columns_count_characters_and_tab_stops() {
        let tokens = tokens("a\n\tb {- é -} c\n").unwrap();
        let places: Vec<_> = tokens.iter().map(|t| (t.column, t.first)).collect();
        assert_eq!(places, [(1, true), (9, true), (19, false), (1, true)]);
    }
}
