//! Values of expressions, before they become a part of the tree.

use crate::ast::Span;
use crate::ir::{Function, Key, Net, Predicate, Property};
use crate::measure::Measure;
use crate::table::{Built, Entry, Kind, Type};
use std::borrow::Cow;

#[derive(Clone, Debug)]
pub(super) enum Value<'a> {
    Predicate(Predicate),
    Property(Property),
    Function(Function),
    Key(Key),
    Net(Net),
    Number(i128),
    Text(Cow<'a, str>),
    List(Vec<(Value<'a>, Span)>),
    Tuple(Vec<(Value<'a>, Span)>),
    /// A function that lacks arguments.
    Partial(Partial<'a>),
}

/// A function with some of its arguments.
#[derive(Clone, Debug)]
pub(super) struct Partial<'a> {
    pub(super) callee: Callee,
    pub(super) given: Vec<(Value<'a>, Span)>,
}

/// A function of the table, or a definition with parameters.
#[derive(Clone, Copy, Debug)]
pub(super) enum Callee {
    Entry(&'static Entry),
    /// The definition at this index.
    Definition(usize),
}

/// The kind that an expression must have, and the parameter that requires this kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Want {
    pub(super) kind: Kind,
    /// The parameter and the function that require this kind.
    pub(super) role: Option<(&'static str, &'static str)>,
}

impl From<Kind> for Want {
    fn from(kind: Kind) -> Want {
        Want { kind, role: None }
    }
}

impl Want {
    /// The kind of value that parameter `at` of an entry expects.
    pub(super) fn parameter(entry: &'static Entry, at: usize) -> Option<Want> {
        let parameter = entry.takes.get(at)?;
        Some(Want {
            kind: parameter.kind,
            role: Some((parameter.name, entry.name)),
        })
    }

    pub(super) fn expected(self) -> String {
        let kind = self.kind.expected();
        match self.role {
            Some((parameter, of)) => format!("{kind} as '{parameter}' of '{of}'"),
            None => kind.trim_end_matches(',').to_owned(),
        }
    }
}

impl<'a> Value<'a> {
    /// The type of the value. If the value is a function that lacks arguments, the type of the
    /// function's result.
    pub(super) fn gives(&self) -> Option<Type> {
        match self {
            Value::Predicate(_) => Some(Type::Predicate),
            Value::Property(_) => Some(Type::Property),
            Value::Function(_) => Some(Type::Function),
            Value::Key(_) => Some(Type::Key),
            Value::Net(_) => Some(Type::Net),
            Value::Number(_) => Some(Type::Number),
            Value::Partial(partial) => match partial.callee {
                Callee::Entry(entry) => Some(entry.gives),
                Callee::Definition(_) => None,
            },
            Value::Text(_) | Value::List(_) | Value::Tuple(_) => None,
        }
    }

    pub(super) fn measure(&self) -> Measure {
        match self {
            Value::Predicate(predicate) => Measure::predicate(predicate),
            Value::Function(function) => Measure::function(function),
            Value::Property(_)
            | Value::Key(_)
            | Value::Net(_)
            | Value::Number(_)
            | Value::Text(_)
            | Value::List(_)
            | Value::Tuple(_)
            | Value::Partial(_) => Measure::default(),
        }
    }

    /// Nesting depth of lists, pairs and collected arguments.
    pub(super) fn depth(&self) -> usize {
        let below = |values: &[(Value<'a>, Span)]| {
            let depths = values.iter().map(|(value, _)| value.depth());
            1 + depths.max().unwrap_or(0)
        };
        match self {
            Value::List(values) | Value::Tuple(values) => below(values),
            Value::Partial(partial) => below(&partial.given),
            Value::Predicate(_)
            | Value::Property(_)
            | Value::Function(_)
            | Value::Key(_)
            | Value::Net(_)
            | Value::Number(_)
            | Value::Text(_) => 0,
        }
    }

    /// The cost of copying the value, in steps of the expansion.
    pub(super) fn size(&self) -> usize {
        let all = |values: &[(Value<'a>, Span)]| -> usize {
            values.iter().map(|(value, _)| value.size()).sum()
        };
        match self {
            Value::List(values) | Value::Tuple(values) => 1 + all(values),
            Value::Partial(partial) => 1 + all(&partial.given),
            Value::Text(text) => 1 + text.len() / TEXT_PER_STEP,
            Value::Predicate(_) | Value::Function(_) => self.measure().nodes,
            Value::Property(_) | Value::Key(_) | Value::Net(_) | Value::Number(_) => 1,
        }
    }
}

impl From<Built> for Value<'_> {
    fn from(made: Built) -> Self {
        match made {
            Built::Predicate(predicate) => Value::Predicate(predicate),
            Built::Property(property) => Value::Property(property),
            Built::Function(function) => Value::Function(function),
            Built::Key(key) => Value::Key(key),
            Built::Net(net) => Value::Net(net),
            Built::Number(number) => Value::Number(number),
        }
    }
}

/// Bytes of text that count as one step.
const TEXT_PER_STEP: usize = 64;
