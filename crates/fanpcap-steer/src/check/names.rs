//! Resolves names.

use super::value::{Callee, Partial, Value, Want};
use super::{Checker, Locals, message};
use crate::Error;
use crate::ast::{Expression, Form, Span};
use crate::error::quote;
use crate::nearest::nearest;
use crate::parser::MAIN;
use crate::table::{self, Entry, Refused, Type};

impl<'p, 'a> Checker<'p, 'a> {
    /// The value of a name: a parameter, a definition, or a function of the table, in this order.
    pub(super) fn named(
        &mut self,
        name: &'a str,
        span: &Span,
        want: Option<Want>,
        locals: &Locals<'a>,
    ) -> Result<Value<'a>, Error> {
        if let Some(local) = locals.iter().find(|local| local.name == name) {
            self.spend(local.value.size(), span)?;
            return Ok(local.value.clone());
        }
        if let Some(&at) = self.places.get(name) {
            if self.program.definitions[at].parameters.is_empty() {
                return self.constant(at, want);
            }
            let (callee, given) = (Callee::Definition(at), Vec::new());
            return Ok(Value::Partial(Partial { callee, given }));
        }
        if let Some(entry) = table::find(name) {
            return self.entry(entry, span);
        }
        Err(match table::find_refused(name) {
            Some(refused) => refusal(name, refused, span),
            None => self.unknown(name, span, want, locals.iter().map(|local| local.name)),
        })
    }

    /// The value of a function of the table, even if the steering program has a definition of this
    /// name.
    pub(super) fn own(
        &mut self,
        name: &str,
        span: &Span,
        want: Option<Want>,
    ) -> Result<Value<'a>, Error> {
        match table::find(name) {
            Some(entry) => self.entry(entry, span),
            None => Err(self.unknown(name, span, want, [].into_iter())),
        }
    }

    fn entry(&mut self, entry: &'static Entry, span: &Span) -> Result<Value<'a>, Error> {
        let given = Vec::new();
        if entry.takes.is_empty() {
            return self.make(entry, given, span);
        }
        let callee = Callee::Entry(entry);
        Ok(Value::Partial(Partial { callee, given }))
    }

    /// Refuses unknown names in an expression. Called for expressions that are never evaluated,
    /// because evaluation would refuse such names, too.
    pub(super) fn known(
        &self,
        expression: &'p Expression<'a>,
        parameters: &[&'a str],
    ) -> Result<(), Error> {
        let all = |parts: &'p [Expression<'a>]| {
            parts
                .iter()
                .try_for_each(|part| self.known(part, parameters))
        };
        match &expression.node {
            Form::Name(name) => {
                let is_known = parameters.contains(name)
                    || self.places.contains_key(name)
                    || table::find(name).is_some()
                    || table::find_refused(name).is_some();
                if is_known {
                    return Ok(());
                }
                Err(self.unknown(name, &expression.span, None, parameters.iter().copied()))
            }
            Form::Own(_) | Form::Number(_) | Form::Text(_) => Ok(()),
            Form::List(parts) | Form::Tuple(parts) | Form::Chain(_, parts) => all(parts),
            Form::Range(first, last) => {
                self.known(first, parameters)?;
                self.known(last, parameters)
            }
            Form::Apply(head, arguments) => {
                self.known(head, parameters)?;
                all(arguments)
            }
        }
    }

    fn unknown<'n>(
        &self,
        name: &str,
        span: &Span,
        want: Option<Want>,
        locals: impl Iterator<Item = &'n str>,
    ) -> Error
    where
        'a: 'n,
    {
        let expected = want.map_or("a known name".to_owned(), |want| want.expected());
        let message = format!("{expected}, found the unknown name {}", quote(name));
        let error = Error::new(span.clone(), format!("expected {message}"));
        let mut own: Vec<&str> = locals.chain(self.places.keys().copied()).collect();
        own.retain(|own| !own.eq(&MAIN));
        own.sort_unstable();
        let fitting = |gives: Type| want.is_none_or(|want| want.kind.fits(gives));
        let of_type = table::entries().filter(|entry| fitting(entry.gives));
        let of_type = of_type
            .flat_map(table::Entry::names)
            .map(|name| -> &'n str { name });
        let near = nearest(name, own.into_iter().chain(of_type)).map(str::to_owned);
        let other = || {
            let near = nearest(name, table::entries().flat_map(table::Entry::names))?;
            message::of_other_type(near, want?.kind)
        };
        let module = self.program.modules.first();
        error.hinted(
            near.map(|near| format!("did you mean '{near}'?"))
                .or_else(other)
                .or_else(|| {
                    module.map(|module| {
                        format!(
                            "the compiler does not read modules: copy the needed definitions from {}",
                            quote(module)
                        )
                    })
                }),
        )
    }

    /// The error for a steering program without `main`.
    pub(super) fn without_main(&self) -> Error {
        let end = self.program.span.end;
        let Some(last) = self.program.definitions.last() else {
            let error = Error::new(end..end, "expected a program, found nothing");
            return error.hint("as in 'main = steer_flow'");
        };
        let names = self.program.definitions.iter().map(|known| known.name);
        let near = nearest(MAIN, names).and_then(|near| self.places.get(near));
        let (span, found) = match near.map(|at| &self.program.definitions[*at]) {
            Some(near) => (&near.span, near.name),
            None => (&last.span, last.name),
        };
        let message = format!(
            "expected a definition of 'main', found one of {}",
            quote(found)
        );
        let hint = if near.is_some() {
            "did you mean 'main'?"
        } else {
            "write the program itself as 'main = ...'"
        };
        Error::new(span.clone(), message).hint(hint)
    }
}

fn refusal(name: &str, refused: &Refused, span: &Span) -> Error {
    let message = format!(
        "expected a function of this language, found PFQ's '{name}': {}",
        refused.reason
    );
    Error::new(span.clone(), message).hint(refused.instead)
}
