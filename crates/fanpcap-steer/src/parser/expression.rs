//! Expressions: operators, application, and operands.

use super::layout::Context;
use super::operator::{Infix, LOOSEST, TIGHTEST};
use super::{Parser, module, operator};
use crate::Error;
use crate::ast::{Chain, Expression, Form};
use crate::lexer::Lexeme;
use crate::limits::DEPTH_MAX;
use std::borrow::Cow;
use std::mem;

impl<'a> Parser<'a> {
    pub(super) fn expression(&mut self) -> Result<Expression<'a>, Error> {
        self.nested(|parser| parser.operators(LOOSEST))
    }

    /// Reads an expression whose operators bind at least as tightly as `least`.
    fn operators(&mut self, least: u8) -> Result<Expression<'a>, Error> {
        let start = self.token().span.start;
        let beside = mem::take(&mut self.named);
        let mut left = self.operand()?;
        while let Some(infix) = self.infix().filter(|infix| infix.power() >= least) {
            let node = match infix {
                Infix::Chain(chain) => self.chain(chain, left)?,
                Infix::Compare(name, flipped) => self.comparison(name, flipped, left)?,
                Infix::Named => self.named(left)?,
            };
            let span = self.since(start);
            left = Expression { node, span };
        }
        self.named = self.named.max(beside);
        Ok(left)
    }

    fn chain(&mut self, chain: Chain, first: Expression<'a>) -> Result<Form<'a>, Error> {
        let mut operands = vec![first];
        let infix = Infix::Chain(chain);
        while self.infix() == Some(infix) {
            self.take();
            operands.push(self.operators(infix.power() + 1)?);
        }
        Ok(Form::Chain(chain, operands))
    }

    fn comparison(
        &mut self,
        name: &'static str,
        flipped: bool,
        left: Expression<'a>,
    ) -> Result<Form<'a>, Error> {
        let function = self.meaning(name);
        let power = Infix::Compare(name, flipped).power();
        let right = self.operators(power + 1)?;
        if matches!(self.infix(), Some(Infix::Compare(..))) {
            let error = self.expected("one comparison");
            return Err(error.hint("join two comparisons by '.&&.'"));
        }
        let arguments = if flipped {
            vec![right, left]
        } else {
            vec![left, right]
        };
        Ok(Form::Apply(Box::new(function), arguments))
    }

    /// Reads a function between back quotes and its right operand. Such functions nest to the left.
    fn named(&mut self, left: Expression<'a>) -> Result<Form<'a>, Error> {
        if self.named == DEPTH_MAX {
            let what = format!("at most {DEPTH_MAX} functions between back quotes");
            return Err(self.expected(&what));
        }
        self.take();
        let function = match self.peek() {
            Some(Lexeme::Name(name)) => {
                let name = *name;
                self.name(name)
            }
            _ => return Err(self.expected("a function's name after the back quote")),
        };
        if !self.taken('`') {
            return Err(self.expected("a back quote after the function's name"));
        }
        let right = self.operators(TIGHTEST)?;
        self.named += 1;
        Ok(Form::Apply(Box::new(function), vec![left, right]))
    }

    /// Reads the next token as this name.
    fn name(&mut self, name: &'a str) -> Expression<'a> {
        let span = self.token().span.clone();
        self.take();
        let node = Form::Name(name);
        Expression { node, span }
    }

    /// Reads the next token as this function of the table, whatever the token is.
    pub(super) fn meaning(&mut self, name: &'static str) -> Expression<'a> {
        let span = self.token().span.clone();
        self.take();
        let node = Form::Own(name);
        Expression { node, span }
    }

    fn operand(&mut self) -> Result<Expression<'a>, Error> {
        let operand = if self.is_word("do") || self.is_word("if") {
            self.block()?
        } else {
            self.application()?
        };
        self.annotation()?;
        Ok(operand)
    }

    /// Reads a function and its arguments. The last argument may be a block, or everything after
    /// `$`.
    fn application(&mut self) -> Result<Expression<'a>, Error> {
        let start = self.token().span.start;
        let head = self.atom("a predicate, a function or a value")?;
        let mut arguments = Vec::new();
        loop {
            if self.is_word("do") || self.is_word("if") {
                arguments.push(self.block()?);
                break;
            }
            if self.is_symbol("$") {
                self.take();
                arguments.push(self.expression()?);
                break;
            }
            if !self.begins_atom() {
                break;
            }
            arguments.push(self.atom("an argument")?);
        }
        if arguments.is_empty() {
            return Ok(head);
        }
        let span = self.since(start);
        let node = Form::Apply(Box::new(head), arguments);
        Ok(Expression { node, span })
    }

    fn begins_atom(&self) -> bool {
        match self.peek() {
            Some(Lexeme::Name(name)) => !module::is_reserved(name),
            Some(Lexeme::Number(_) | Lexeme::Text(_) | Lexeme::Address(_)) => true,
            Some(Lexeme::Mark(mark)) => matches!(mark, '(' | '['),
            Some(Lexeme::Symbol(symbol)) => *symbol == "-",
            Some(Lexeme::End) | None => false,
        }
    }

    fn atom(&mut self, what: &str) -> Result<Expression<'a>, Error> {
        let span = self.token().span.clone();
        if !self.begins_atom() {
            return Err(self.expected(what));
        }
        let node = match self.token().kind.clone() {
            Lexeme::Name(name) => Form::Name(name),
            Lexeme::Number(number) => Form::Number(number.into()),
            Lexeme::Text(text) => Form::Text(text),
            Lexeme::Address(text) => Form::Text(Cow::Borrowed(text)),
            Lexeme::Mark('(') => return self.parentheses(),
            Lexeme::Mark(_) => return self.list(),
            Lexeme::Symbol(_) | Lexeme::End => return self.negative(),
        };
        self.take();
        Ok(Expression { node, span })
    }

    fn negative(&mut self) -> Result<Expression<'a>, Error> {
        let start = self.token().span.start;
        self.take();
        let Some(Lexeme::Number(number)) = self.peek() else {
            return Err(self.expected("a number after '-'"));
        };
        let node = Form::Number(-i128::from(*number));
        self.take();
        let span = self.since(start);
        Ok(Expression { node, span })
    }

    /// `(a)`, or `(a, b)`.
    fn parentheses(&mut self) -> Result<Expression<'a>, Error> {
        let start = self.token().span.start;
        self.take();
        let mut parts = self.within(Context::Free, |parser| parser.parts(start, ')'))?;
        let span = self.since(start);
        let node = match parts.pop() {
            Some(part) if parts.is_empty() => part.node,
            last => {
                parts.extend(last);
                Form::Tuple(parts)
            }
        };
        Ok(Expression { node, span })
    }

    /// Reads expressions that are separated by commas, and the closing bracket.
    fn parts(&mut self, start: usize, close: char) -> Result<Vec<Expression<'a>>, Error> {
        let mut parts = Vec::new();
        loop {
            parts.push(self.expression()?);
            if self.taken(close) {
                return Ok(parts);
            }
            if !self.taken(',') {
                let error = self.expected(&format!("an operator, ',' or '{close}'"));
                return Err(self.unclosed(error, start));
            }
        }
    }

    /// Adds a hint to an error that a missing closing bracket may have caused.
    fn unclosed(&self, error: Error, start: usize) -> Error {
        if error.hint.is_some() {
            return error;
        }
        let open = Error::new(start..start + 1, "");
        let (line, column) = open.position(self.source);
        let bracket = &self.source[start..start + 1];
        error.hint(format!(
            "'{bracket}' is open from line {line}, column {column}"
        ))
    }

    /// Skips `:: Type`, which the checker does not need. The type ends at an operator, a comma, or
    /// the next line.
    fn annotation(&mut self) -> Result<(), Error> {
        if !self.is_symbol("::") {
            return Ok(());
        }
        self.take();
        let (start, mut open) = (self.at, 0_usize);
        while let Some(kind) = self.peek() {
            match kind {
                Lexeme::Mark('(' | '[') => open += 1,
                Lexeme::Mark(')' | ']') if open > 0 => open -= 1,
                Lexeme::Mark(',') if open > 0 => {}
                Lexeme::Symbol("->" | "=>") => {}
                Lexeme::Name(name) if !operator::is_keyword(name) => {}
                Lexeme::Name(_) | Lexeme::Number(_) | Lexeme::Text(_) | Lexeme::Address(_) => break,
                Lexeme::Symbol(_) | Lexeme::Mark(_) | Lexeme::End => break,
            }
            self.take();
        }
        if self.at == start || open > 0 {
            let error = self.expected("a type after '::'");
            return Err(error.or_hint("write the address '::' in quotes: 'addr \"::\"'"));
        }
        Ok(())
    }

    /// `[a, b]`, `[a..b]`, `[]`.
    fn list(&mut self) -> Result<Expression<'a>, Error> {
        let start = self.token().span.start;
        self.take();
        let elements = self.within(Context::Free, |parser| parser.elements(start))?;
        let span = self.since(start);
        let node = Form::List(elements);
        Ok(Expression { node, span })
    }

    fn elements(&mut self, start: usize) -> Result<Vec<Expression<'a>>, Error> {
        let mut elements = Vec::new();
        if self.taken(']') {
            return Ok(elements);
        }
        loop {
            elements.push(self.element()?);
            if self.taken(']') {
                return Ok(elements);
            }
            if !self.taken(',') {
                let error = self.expected("an operator, ',', '..' or ']'");
                return Err(self.unclosed(error, start));
            }
        }
    }

    /// `a`, or `a..b`.
    fn element(&mut self) -> Result<Expression<'a>, Error> {
        let first = self.expression()?;
        if !self.is_symbol("..") {
            return Ok(first);
        }
        self.take();
        let last = self.expression()?;
        let span = first.span.start..last.span.end;
        let node = Form::Range(Box::new(first), Box::new(last));
        Ok(Expression { node, span })
    }
}
