//! Turns tokens into a [`Module`], by recursive descent. Precedence decides how operators bind, and
//! layout decides where a block ends.

mod operator;
mod layout;
mod block;
mod module;
mod expression;

pub(crate) use module::MAIN;

use crate::Error;
use crate::ast::{Module, Span};
use crate::error::quote;
use crate::lexer::{Lexeme, Token};
use crate::limits::DEPTH_MAX;
use layout::Context;

pub(crate) fn module<'a>(source: &'a str, tokens: Vec<Token<'a>>) -> Result<Module<'a>, Error> {
    let mut parser = Parser {
        source,
        tokens,
        at: 0,
        contexts: Vec::new(),
        margin: 1,
        depth: 0,
        named: 0,
    };
    parser.module()
}

struct Parser<'a> {
    source: &'a str,
    /// The last token is [`Lexeme::End`].
    tokens: Vec<Token<'a>>,
    at: usize,
    /// Open contexts, the innermost last.
    contexts: Vec<Context>,
    /// The column in which definitions begin.
    margin: u32,
    depth: usize,
    /// Nesting depth of functions between back quotes in the last operand. Such functions nest to
    /// the left.
    named: usize,
}

impl<'a> Parser<'a> {
    fn token(&self) -> &Token<'a> {
        &self.tokens[self.at]
    }

    /// The next token, unless the layout ends the current construct here.
    fn peek(&self) -> Option<&Lexeme<'a>> {
        self.goes_on().then(|| &self.token().kind)
    }

    /// Skips a token. At the end of the source, skips nothing.
    fn take(&mut self) {
        self.at = (self.at + 1).min(self.tokens.len() - 1);
    }

    /// Skips `mark` and returns true, if `mark` is the next token.
    fn taken(&mut self, mark: char) -> bool {
        let is_next = self.peek() == Some(&Lexeme::Mark(mark));
        if is_next {
            self.take();
        }
        is_next
    }

    fn is_symbol(&self, symbol: &str) -> bool {
        self.peek() == Some(&Lexeme::Symbol(symbol))
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), Some(Lexeme::Name(name)) if *name == word)
    }

    /// Span from a token's beginning to the end of the last skipped token.
    fn since(&self, start: usize) -> Span {
        let last = self.tokens[..self.at].last();
        start..last.map_or(start, |token| token.span.end).max(start)
    }

    fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        if self.depth == DEPTH_MAX {
            let message =
                format!("expected at most {DEPTH_MAX} nested expressions, found one more");
            let error = Error::new(self.token().span.clone(), message);
            return Err(error.hint("name parts of it by separate definitions: 'web = has_port 80'"));
        }
        self.depth += 1;
        let read = read(self);
        self.depth -= 1;
        read
    }

    /// The error if the next token is not `what`.
    fn expected(&self, what: &str) -> Error {
        let token = self.token();
        let found = match &token.kind {
            Lexeme::End => "the end of the program".to_owned(),
            _ if !self.goes_on() => format!("the next line, {}", self.quoted()),
            Lexeme::Number(_) => format!("the number {}", self.quoted()),
            Lexeme::Text(_) => format!("the string {}", self.quoted()),
            Lexeme::Address(_) => format!("the address {}", self.quoted()),
            Lexeme::Name(_) | Lexeme::Symbol(_) | Lexeme::Mark(_) => self.quoted(),
        };
        let message = format!("expected {what}, found {found}");
        let error = Error::new(token.span.clone(), message);
        match &token.kind {
            Lexeme::Symbol(symbol) => error.hinted(operator::meant(symbol)),
            Lexeme::Name(name) => error.hinted(module::foreign(name)),
            Lexeme::Number(_)
            | Lexeme::Text(_)
            | Lexeme::Address(_)
            | Lexeme::Mark(_)
            | Lexeme::End => error,
        }
    }

    fn quoted(&self) -> String {
        quote(&self.source[self.token().span.clone()])
    }
}
