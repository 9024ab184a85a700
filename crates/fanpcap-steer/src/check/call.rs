//! Applies functions of the table and definitions to arguments.

use super::value::{Callee, Partial, Value, Want};
use super::{Checker, Local, Locals, place};
use crate::Error;
use crate::ast::{Expression, Form, Span};
use crate::error::quote;
use crate::ir::Function;
use crate::table::{self, Entry, Given, Type};
use std::mem;

impl<'p, 'a> Checker<'p, 'a> {
    pub(super) fn apply(
        &mut self,
        callee: Value<'a>,
        head: &'p Expression<'a>,
        arguments: &'p [Expression<'a>],
        span: &Span,
        locals: &Locals<'a>,
    ) -> Result<Value<'a>, Error> {
        let mut value = callee;
        for (at, argument) in arguments.iter().enumerate() {
            let Value::Partial(mut partial) = value else {
                return Err(self.too_many(&value, head, at, arguments));
            };
            let want = partial.want();
            let given = self.value(argument, want, locals)?;
            partial.given.push((given, place(argument, locals)));
            value = if partial.given.len() == self.arity(partial.callee) {
                self.call(partial, span)?
            } else {
                Value::Partial(partial)
            };
        }
        Ok(value)
    }

    pub(super) fn arity(&self, callee: Callee) -> usize {
        match callee {
            Callee::Entry(entry) => entry.takes.len(),
            Callee::Definition(at) => self.program.definitions[at].parameters.len(),
        }
    }

    fn call(&mut self, partial: Partial<'a>, span: &Span) -> Result<Value<'a>, Error> {
        match partial.callee {
            Callee::Entry(entry) => self.make(entry, partial.given, span),
            Callee::Definition(at) => {
                let definition = &self.program.definitions[at];
                let parameters = definition.parameters.iter().copied();
                let local = |(name, (value, span))| Local { name, value, span };
                let locals: Vec<_> = parameters.zip(partial.given).map(local).collect();
                self.value(&definition.body, None, &locals)
            }
        }
    }

    pub(super) fn make(
        &mut self,
        entry: &'static Entry,
        mut given: Vec<(Value<'a>, Span)>,
        span: &Span,
    ) -> Result<Value<'a>, Error> {
        let mut arguments = Vec::with_capacity(given.len());
        for (at, (value, span)) in given.iter_mut().enumerate() {
            if let Some(want) = Want::parameter(entry, at) {
                let value = mem::replace(value, Value::Number(0));
                arguments.push(self.argument(value, span, want)?);
            }
        }
        let made = (entry.make)(&mut Given::new(arguments, &mut self.sets)).map_err(|wrong| {
            let argument = given.get(wrong.argument).map(|(_, span)| span);
            let at = argument.unwrap_or(span).clone();
            Error::new(at, wrong.message).hint(format!("as in '{}'", entry.example))
        })?;
        let value = Value::from(made);
        if matches!(value, Value::Function(Function::Sample { .. })) {
            self.sample = span.clone();
        }
        self.measured(value, span)
    }

    fn too_many(
        &self,
        value: &Value<'a>,
        head: &Expression<'a>,
        taken: usize,
        arguments: &[Expression<'a>],
    ) -> Error {
        let at = arguments[taken].span.clone();
        let name = quote(&self.source[head.span.clone()]);
        let found = quote(&self.source[at.clone()]);
        let message = match taken {
            0 => format!(
                "expected no argument for {}, found {found}",
                self.describe(value, &head.span)
            ),
            1 => format!("expected 1 argument of {name}, found a second argument, {found}"),
            _ => format!("expected {taken} arguments of {name}, found one argument more, {found}"),
        };
        let error = Error::new(at, message);
        if let Some(meant) = longer(head, arguments.len()) {
            return error.hint(format!("did you mean '{meant}'?"));
        }
        error.hinted(match value.gives() {
            Some(Type::Function) => Some("'>->' runs one function after the other".to_owned()),
            Some(Type::Predicate) => Some("'.&&.' and '.||.' join predicates".to_owned()),
            Some(Type::Property) => Some("'.==', '.<' and others compare a property".to_owned()),
            Some(Type::Key | Type::Net | Type::Number) | None => None,
        })
    }
}

/// If `head` is `par`, the name of its variant for `count` arguments, such as `par3` for three.
/// `None` if `head` is another function.
fn longer(head: &Expression<'_>, count: usize) -> Option<&'static str> {
    let Form::Name(name) = &head.node else {
        return None;
    };
    let given = name.strip_prefix("par")?;
    let entry = table::find(&format!("par{count}"))?;
    let is_par = given.bytes().all(|byte| byte.is_ascii_digit());
    is_par.then_some(entry.name)
}

impl Partial<'_> {
    /// The kind that the next argument must have.
    fn want(&self) -> Option<Want> {
        match self.callee {
            Callee::Entry(entry) => Want::parameter(entry, self.given.len()),
            Callee::Definition(_) => None,
        }
    }
}
