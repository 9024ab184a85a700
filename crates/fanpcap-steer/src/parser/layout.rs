//! Layout: definitions begin at the margin, and the lines of a `do` block begin in one column.

use super::{Parser, operator};
use crate::lexer::{Lexeme, Token};

/// A construct that has begun and not ended. The innermost such construct decides what the
/// beginning of a line means.
#[derive(Clone, Copy, Debug)]
pub(super) enum Context {
    /// A block of items that begin in column `indent`. The last item begins at token `item`.
    Block { indent: u32, item: usize },
    /// Braces: line breaks have no meaning.
    Braces,
    /// Parentheses or brackets: only a definition at the margin ends them.
    Free,
}

/// The meaning of the next token's position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Boundary {
    /// The construct continues.
    No,
    /// An item of the innermost block begins.
    Item,
    /// The innermost block ends.
    End,
}

impl Parser<'_> {
    pub(super) fn goes_on(&self) -> bool {
        self.boundary() == Boundary::No
    }

    pub(super) fn boundary(&self) -> Boundary {
        let token = self.token();
        if matches!(token.kind, Lexeme::End) {
            return Boundary::End;
        }
        let Some(context) = self.contexts.last() else {
            return Boundary::No;
        };
        if !token.first {
            return Boundary::No;
        }
        let is_outermost = self.contexts.len() == 1;
        let defines = || token.column <= self.margin && self.defines(self.at);
        match *context {
            Context::Braces => Boundary::No,
            Context::Block { item, .. } if item == self.at => Boundary::No,
            Context::Block { .. } if is_outermost && defines() => Boundary::Item,
            Context::Block { .. } | Context::Free if defines() => Boundary::End,
            Context::Free => Boundary::No,
            Context::Block { indent, .. } if token.column < indent => Boundary::End,
            Context::Block { indent, .. } => {
                if token.column == indent && begins_item(&token.kind) {
                    Boundary::Item
                } else {
                    Boundary::No
                }
            }
        }
    }

    /// Whether a definition or a signature begins at this token: a name, parameters on its line,
    /// then `=` or `::`.
    pub(super) fn defines(&self, at: usize) -> bool {
        let is_name = |at: usize, token: &Token<'_>| {
            let is_word = matches!(token.kind, Lexeme::Name(name) if !operator::is_keyword(name));
            is_word && (at == 0 || !token.first)
        };
        let tokens = &self.tokens[at..];
        let head = tokens.iter().take(NAMES_MAX).enumerate();
        let names = head.take_while(|(at, token)| is_name(*at, token)).count();
        match tokens.get(names).map(|token| &token.kind) {
            Some(Lexeme::Symbol("=")) => names > 0,
            Some(Lexeme::Symbol("::")) => names == 1,
            // `a, b :: T`
            Some(Lexeme::Mark(',')) => names == 1 && self.declares(at),
            _ => false,
        }
    }

    /// Whether names separated by commas and followed by `::` begin at this token.
    fn declares(&self, at: usize) -> bool {
        let mut tokens = self.tokens[at..].iter().map(|token| &token.kind);
        for _ in 0..NAMES_MAX {
            match (tokens.next(), tokens.next()) {
                (Some(Lexeme::Name(_)), Some(Lexeme::Mark(','))) => {}
                (Some(Lexeme::Name(_)), Some(Lexeme::Symbol("::"))) => return true,
                _ => return false,
            }
        }
        false
    }

    /// The column to the right of which a block's items must begin.
    pub(super) fn enclosing(&self) -> u32 {
        let enclosing = self
            .contexts
            .iter()
            .rev()
            .find_map(|context| match context {
                Context::Block { indent, .. } => Some(*indent),
                Context::Braces => Some(0),
                Context::Free => None,
            });
        enclosing.unwrap_or(0)
    }

    pub(super) fn within<T>(&mut self, context: Context, read: impl FnOnce(&mut Self) -> T) -> T {
        self.contexts.push(context);
        let read = read(self);
        self.contexts.pop();
        read
    }

    /// Records that the block's next item begins here.
    pub(super) fn begin_item(&mut self) {
        let at = self.at;
        if let Some(Context::Block { item, .. }) = self.contexts.last_mut() {
            *item = at;
        }
    }
}

/// Whether a line that begins with this token is a new item, and not a continuation.
pub(super) fn begins_item(kind: &Lexeme<'_>) -> bool {
    match kind {
        Lexeme::Name(name) => !matches!(*name, "then" | "else"),
        Lexeme::Number(_) | Lexeme::Text(_) | Lexeme::Address(_) => true,
        Lexeme::Mark(mark) => matches!(mark, '(' | '['),
        Lexeme::Symbol(_) | Lexeme::End => false,
    }
}

/// Maximum number of names in the search. It is more than a signature or definition may have, so
/// that the parser reports the excess names and not a missing definition.
const NAMES_MAX: usize = 64;
