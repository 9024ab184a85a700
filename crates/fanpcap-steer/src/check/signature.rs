//! The types of a steering program's definitions, as text.

use super::value::{Callee, Partial, Value};
use super::{Checker, Constant};
use crate::ast::{Chain, Expression, Form};
use crate::table::{self, Kind, Type};

/// A definition of a steering program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// Name.
    pub name: String,
    /// Type in the form of the manual page, such as `number -> predicate`. A definition with
    /// parameters is expanded at each use, and itself has no type. So the text has, for each
    /// parameter, the type that the parameter's use in the body requires, or `any` if the body
    /// requires no type.
    pub signature: String,
}

const ANY: &str = "any";
/// Maximum number of definitions that the search for a type follows from one to the next.
const STEPS_MAX: usize = 16;

impl<'a> Checker<'_, 'a> {
    pub(super) fn definitions(&self) -> Vec<Definition> {
        let definitions = self.program.definitions.iter().enumerate();
        definitions
            .map(|(at, definition)| Definition {
                name: definition.name.to_owned(),
                signature: self.signature(Callee::Definition(at), 0, STEPS_MAX),
            })
            .collect()
    }

    /// The type of a callee that already has `given` arguments.
    fn signature(&self, callee: Callee, given: usize, steps: usize) -> String {
        let arity = self.arity(callee);
        let takes = (given..arity).map(|at| self.parameter(callee, at, steps));
        let parts: Vec<String> = takes.chain([self.result(callee, steps)]).collect();
        parts.join(" -> ")
    }

    fn parameter(&self, callee: Callee, at: usize, steps: usize) -> String {
        let kind = self.kind(callee, at, Some(steps));
        kind.unwrap_or(ANY).to_owned()
    }

    fn kind(&self, callee: Callee, at: usize, steps: Option<usize>) -> Option<&'static str> {
        match callee {
            Callee::Entry(entry) => entry.takes.get(at).map(|parameter| parameter.kind.word()),
            Callee::Definition(place) => {
                let definition = &self.program.definitions[place];
                let name = definition.parameters.get(at)?;
                self.used(name, &definition.body, None, steps?)
            }
        }
    }

    /// The type that the uses of a name in an expression require, if the expression must have a
    /// given type.
    fn used(
        &self,
        name: &str,
        expression: &Expression<'a>,
        want: Option<&'static str>,
        steps: usize,
    ) -> Option<&'static str> {
        let all = |parts: &[Expression<'a>], want| {
            parts
                .iter()
                .find_map(|part| self.used(name, part, want, steps))
        };
        match &expression.node {
            Form::Name(known) if *known == name => want,
            Form::Name(_) | Form::Own(_) | Form::Number(_) | Form::Text(_) => None,
            Form::List(parts) | Form::Tuple(parts) => all(parts, None),
            Form::Range(first, last) => {
                let number = Some(Type::Number.word());
                [first, last]
                    .into_iter()
                    .find_map(|end| self.used(name, end, number, steps))
            }
            Form::Chain(chain, parts) => all(parts, Some(joined(*chain).word())),
            Form::Apply(head, arguments) => {
                let kinds = self.kinds(head, arguments.len(), steps);
                let mut both = arguments.iter().zip(kinds);
                both.find_map(|(argument, want)| self.used(name, argument, want, steps))
                    .or_else(|| self.used(name, head, None, steps))
            }
        }
    }

    fn kinds(
        &self,
        head: &Expression<'a>,
        arguments: usize,
        steps: usize,
    ) -> Vec<Option<&'static str>> {
        let kind = |at| self.kind(self.callee(head)?, at, steps.checked_sub(1));
        (0..arguments).map(kind).collect()
    }

    /// The function or definition that a name means.
    fn callee(&self, head: &Expression<'a>) -> Option<Callee> {
        if let Form::Own(name) = head.node {
            return table::find(name).map(Callee::Entry);
        }
        let Form::Name(name) = &head.node else {
            return None;
        };
        let own = self.places.get(name).map(|at| Callee::Definition(*at));
        own.or_else(|| table::find(name).map(Callee::Entry))
    }

    fn result(&self, callee: Callee, steps: usize) -> String {
        let place = match callee {
            Callee::Entry(entry) => return entry.gives.word().to_owned(),
            Callee::Definition(place) => place,
        };
        if let Constant::Known(value) = &self.constants[place] {
            return self.value_word(value, steps);
        }
        let body = &self.program.definitions[place].body;
        self.made(body, steps).unwrap_or(ANY).to_owned()
    }

    /// The type of an expression; `None` if its outermost operator or function does not decide the
    /// type.
    fn made(&self, expression: &Expression<'a>, steps: usize) -> Option<&'static str> {
        let head = match &expression.node {
            Form::Chain(chain, _) => return Some(joined(*chain).word()),
            Form::Number(_) => return Some(Type::Number.word()),
            Form::Text(_) => return Some(STRING),
            Form::Apply(head, _) => head,
            Form::Name(_) | Form::Own(_) => expression,
            Form::List(_) | Form::Tuple(_) | Form::Range(..) => return None,
        };
        match self.callee(head)? {
            Callee::Entry(entry) => Some(entry.gives.word()),
            Callee::Definition(place) => {
                self.made(&self.program.definitions[place].body, steps.checked_sub(1)?)
            }
        }
    }

    fn value_word(&self, value: &Value<'a>, steps: usize) -> String {
        match (value, value.gives()) {
            (Value::Partial(Partial { callee, given }), _) => match steps.checked_sub(1) {
                Some(steps) => self.signature(*callee, given.len(), steps),
                None => ANY.to_owned(),
            },
            (Value::List(elements), _) => match elements.first() {
                Some((first, _)) => format!("[{}]", self.value_word(first, 0)),
                None => format!("[{ANY}]"),
            },
            (Value::Tuple(parts), _) => {
                let parts = parts.iter().map(|(part, _)| self.value_word(part, 0));
                format!("({})", parts.collect::<Vec<_>>().join(", "))
            }
            (_, Some(gives)) => gives.word().to_owned(),
            (_, None) => STRING.to_owned(),
        }
    }
}

const STRING: &str = Kind::Pcap.word();

fn joined(chain: Chain) -> Type {
    match chain {
        Chain::Sequence => Type::Function,
        Chain::Or | Chain::Xor | Chain::And => Type::Predicate,
        Chain::Join => Type::Key,
    }
}
