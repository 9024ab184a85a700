//! Parses blocks, which begin with `do` or `if`.

use super::Parser;
use super::layout::{Boundary, Context, begins_item};
use crate::Error;
use crate::ast::{Chain, Expression, Form};
use crate::lexer::Lexeme;

impl<'a> Parser<'a> {
    /// A block, which begins with `do` or `if`.
    pub(super) fn block(&mut self) -> Result<Expression<'a>, Error> {
        if self.is_word("if") {
            self.condition()
        } else {
            self.lines()
        }
    }

    /// `if p then f else g`
    fn condition(&mut self) -> Result<Expression<'a>, Error> {
        let start = self.token().span.start;
        let function = self.meaning("conditional");
        let mut arguments = vec![self.expression()?];
        for word in ["then", "else"] {
            let separated = self.peek() == Some(&Lexeme::Mark(';'));
            if separated
                && matches!(self.tokens[self.at + 1].kind, Lexeme::Name(name) if name == word)
            {
                self.take();
            }
            if !self.is_word(word) {
                return Err(self.expected(&format!("an operator or '{word}'")));
            }
            self.take();
            arguments.push(self.expression()?);
        }
        let span = self.since(start);
        let node = Form::Apply(Box::new(function), arguments);
        Ok(Expression { node, span })
    }

    /// Reads `do` and its lines, which are below each other or between braces.
    fn lines(&mut self) -> Result<Expression<'a>, Error> {
        let start = self.token().span.start;
        self.take();
        let lines = if self.peek() == Some(&Lexeme::Mark('{')) {
            self.take();
            self.within(Context::Braces, Self::items_in_braces)?
        } else {
            let indent = self.indent()?;
            let item = self.at;
            self.within(Context::Block { indent, item }, Self::items)?
        };
        let span = self.since(start);
        let node = Form::Chain(Chain::Sequence, lines);
        Ok(Expression { node, span })
    }

    /// The column of a block's first line. The outermost block of the steering program may begin at
    /// the margin, as in configuration files.
    fn indent(&self) -> Result<u32, Error> {
        let token = self.token();
        let is_outermost = self.contexts.len() == 1;
        let least = self.enclosing() + u32::from(!is_outermost);
        let is_deep = token.column >= least && token.kind != Lexeme::End;
        // To the right of the margin, `f :: T` is an expression with its type, not a signature.
        let is_typed = token.column > self.margin
            && self.tokens.get(self.at + 1).map(|next| &next.kind) == Some(&Lexeme::Symbol("::"));
        if is_deep && (!token.first || is_typed || !self.defines(self.at)) {
            return Ok(token.column);
        }
        let error = self.expected("the block's first line");
        Err(error.or_hint(
            "begin the lines of a 'do' block in one column, right of the line around the block",
        ))
    }

    /// Reads items, which are below each other or have semicolons between them.
    fn items(&mut self) -> Result<Vec<Expression<'a>>, Error> {
        let mut items = Vec::new();
        loop {
            self.begin_item();
            items.push(self.expression()?);
            if !self.separated() {
                return Ok(items);
            }
        }
    }

    /// Skips the separator between two items. Returns false after the last item.
    fn separated(&mut self) -> bool {
        let mut semicolon = false;
        loop {
            match self.boundary() {
                Boundary::Item => return true,
                Boundary::End => return false,
                Boundary::No => {}
            }
            if self.token().kind != Lexeme::Mark(';') {
                return semicolon && begins_item(&self.token().kind);
            }
            if self.defines(self.at + 1) {
                return false;
            }
            self.take();
            semicolon = true;
        }
    }

    fn items_in_braces(&mut self) -> Result<Vec<Expression<'a>>, Error> {
        let mut items = Vec::new();
        loop {
            while self.taken(';') {}
            if !items.is_empty() && self.taken('}') {
                return Ok(items);
            }
            items.push(self.expression()?);
            let next = &self.token().kind;
            if ![Lexeme::Mark(';'), Lexeme::Mark('}')].contains(next) {
                return Err(self.expected("an operator, ';' or '}'"));
            }
        }
    }
}
