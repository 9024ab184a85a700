//! Checks a steering program: names, types, and the expansion of definitions.
//!
//! The checker evaluates each expression, and replaces the name of a definition by the value of the
//! definition's body. A value is a subtree of the tree, a number, or another `Value`. The type of
//! an expression is the type of its value.

mod finish;
mod value;
mod argument;
mod call;
mod list;
mod message;
mod names;
mod signature;

use crate::Error;
use crate::ast::{Chain, Expression, Form, Module, Span};
use crate::ir::{self, Filter, Function, Key, Predicate};
use crate::limits::{CALLS_MAX, DEPTH_MAX, INNER_MAX, NODES_MAX, WORK_MAX};
use crate::measure::Measure;
use crate::parser::MAIN;
use crate::table::Kind;
use fanpcap_bpf::Classic;
use message::is_unquoted;
use std::collections::HashMap;
use value::{Value, Want};

pub use signature::Definition;

/// Compiles a pcap expression for Ethernet, or returns the error message.
pub type PcapCompiler<'a> = &'a dyn Fn(&str) -> Result<Vec<Classic>, String>;

pub(crate) fn check(
    source: &str,
    program: &Module<'_>,
    pcap: PcapCompiler<'_>,
) -> Result<ir::Tree, Error> {
    let mut checker = Checker::new(source, program, pcap);
    let main = checker.main()?;
    checker.others()?;
    checker.finish(main)
}

pub(crate) fn definitions(
    source: &str,
    program: &Module<'_>,
    pcap: PcapCompiler<'_>,
) -> Result<Vec<Definition>, Error> {
    let mut checker = Checker::new(source, program, pcap);
    checker.main()?;
    checker.others()?;
    Ok(checker.definitions())
}

struct Checker<'p, 'a> {
    source: &'p str,
    program: &'p Module<'a>,
    /// Indices of the definitions by name.
    places: HashMap<&'a str, usize>,
    /// Values of the definitions without parameters.
    constants: Vec<Constant<'a>>,
    pcap: PcapCompiler<'p>,
    sets: Vec<Vec<u128>>,
    filters: Vec<Filter>,
    work: usize,
    depth: usize,
    /// The last use of `sample`, for the error if there are too many.
    sample: Span,
}

#[derive(Clone, Debug)]
enum Constant<'a> {
    Unseen,
    /// The definition is being evaluated.
    Open,
    Known(Value<'a>),
}

/// Parameters of the definition that is being evaluated.
type Locals<'a> = [Local<'a>];

struct Local<'a> {
    name: &'a str,
    value: Value<'a>,
    /// Span of the argument in the call.
    span: Span,
}

/// The span to show for an expression. If the expression is a parameter, this is the span of the
/// argument in the call.
fn place(expression: &Expression<'_>, locals: &Locals<'_>) -> Span {
    let is_it =
        |local: &&Local<'_>| matches!(expression.node, Form::Name(name) if name == local.name);
    let local = locals.iter().find(is_it);
    local.map_or(&expression.span, |local| &local.span).clone()
}

impl<'p, 'a> Checker<'p, 'a> {
    fn new(source: &'p str, program: &'p Module<'a>, pcap: PcapCompiler<'p>) -> Self {
        let definitions = program.definitions.iter();
        Checker {
            source,
            program,
            places: definitions
                .clone()
                .enumerate()
                .map(|(at, it)| (it.name, at))
                .collect(),
            constants: definitions.map(|_| Constant::Unseen).collect(),
            pcap,
            sets: Vec::new(),
            filters: Vec::new(),
            work: 0,
            depth: 0,
            sample: 0..0,
        }
    }

    fn main(&mut self) -> Result<Function, Error> {
        let Some(&at) = self.places.get(MAIN) else {
            return Err(self.without_main());
        };
        let definition = &self.program.definitions[at];
        if !definition.parameters.is_empty() {
            let message = "expected 'main' without parameters, found 'main' with parameters";
            return Err(Error::new(definition.span.clone(), message));
        }
        let want = Want::from(Kind::Function);
        let value = self.evaluated(at, Some(want))?;
        self.function(value, &definition.body.span, want)
    }

    fn others(&mut self) -> Result<(), Error> {
        for at in 0..self.program.definitions.len() {
            let definition = &self.program.definitions[at];
            if !definition.parameters.is_empty() {
                self.known(&definition.body, &definition.parameters)?;
            } else if definition.name != MAIN {
                self.constant(at, None)?;
            }
        }
        Ok(())
    }

    /// The value of a definition without parameters, evaluated at its first use.
    fn constant(&mut self, at: usize, want: Option<Want>) -> Result<Value<'a>, Error> {
        if let Constant::Known(value) = &self.constants[at] {
            let value = value.clone();
            self.spend(value.size(), &self.program.definitions[at].span)?;
            return Ok(value);
        }
        let value = self.evaluated(at, want)?;
        self.constants[at] = Constant::Known(value.clone());
        Ok(value)
    }

    fn evaluated(&mut self, at: usize, want: Option<Want>) -> Result<Value<'a>, Error> {
        let definition = &self.program.definitions[at];
        if matches!(self.constants[at], Constant::Open) {
            let name = definition.name;
            let message = format!(
                "expected a definition of '{name}' without '{name}' in it, found recursion"
            );
            return Err(Error::new(definition.span.clone(), message));
        }
        self.constants[at] = Constant::Open;
        let value = self.value(&definition.body, want, &[])?;
        self.constants[at] = Constant::Unseen;
        Ok(value)
    }

    fn value(
        &mut self,
        expression: &'p Expression<'a>,
        want: Option<Want>,
        locals: &Locals<'a>,
    ) -> Result<Value<'a>, Error> {
        self.spend(1, &expression.span)?;
        if self.depth == CALLS_MAX {
            let message = format!(
                "expected at most {CALLS_MAX} nested expressions after definitions are expanded, found one more"
            );
            let error = Error::new(expression.span.clone(), message);
            return Err(error.hint("write definitions without recursion"));
        }
        self.depth += 1;
        let value = self.node(expression, want, locals);
        self.depth -= 1;
        let value = value?;
        if value.depth() > DEPTH_MAX {
            let message = format!("expected at most {DEPTH_MAX} nested values, found one more");
            return Err(Error::new(expression.span.clone(), message));
        }
        Ok(value)
    }

    fn node(
        &mut self,
        expression: &'p Expression<'a>,
        want: Option<Want>,
        locals: &Locals<'a>,
    ) -> Result<Value<'a>, Error> {
        let span = &expression.span;
        match &expression.node {
            Form::Name(name) => self.named(name, span, want, locals),
            Form::Own(name) => self.own(name, span, want),
            Form::Number(number) => Ok(Value::Number(*number)),
            Form::Text(text) => Ok(Value::Text(text.clone())),
            Form::List(elements) => Ok(Value::List(self.elements(elements, locals)?)),
            Form::Tuple(parts) => {
                let parts = parts.iter().map(|part| {
                    let value = self.value(part, None, locals)?;
                    Ok((value, place(part, locals)))
                });
                Ok(Value::Tuple(parts.collect::<Result<_, Error>>()?))
            }
            Form::Range(..) => {
                let message = "expected a list around this range, found none";
                Err(Error::new(span.clone(), message))
            }
            Form::Apply(head, arguments) => {
                let callee = self.value(head, want, locals)?;
                let applied = self.apply(callee, head, arguments, span, locals);
                applied.map_err(|error| match is_unquoted(head, arguments) {
                    true => error.hint("a pcap expression is in quotes: 'filter \"tcp port 80\"'"),
                    false => error,
                })
            }
            Form::Chain(chain, operands) => self.chain(*chain, operands, span, locals),
        }
    }

    fn chain(
        &mut self,
        chain: Chain,
        operands: &'p [Expression<'a>],
        span: &Span,
        locals: &Locals<'a>,
    ) -> Result<Value<'a>, Error> {
        let want = Want::from(match chain {
            Chain::Sequence => Kind::Function,
            Chain::Or | Chain::Xor | Chain::And => Kind::Predicate,
            Chain::Join => Kind::Key,
        });
        let join = match chain {
            Chain::Sequence => {
                let functions = self.all(operands, want, locals, Self::function)?;
                return self.measured(Value::Function(sequence(functions)), span);
            }
            Chain::Join => {
                let keys = self.all(operands, want, locals, Self::key)?;
                return Ok(Value::Key(keys.into_iter().fold(Key(0), Key::and)));
            }
            Chain::Or => Predicate::Or,
            Chain::Xor => Predicate::Xor,
            Chain::And => Predicate::And,
        };
        let predicates = self.all(operands, want, locals, Self::predicate)?;
        let joined = balanced(predicates, join).unwrap_or(Predicate::Constant(true));
        self.measured(Value::Predicate(joined), span)
    }

    fn all<T>(
        &mut self,
        operands: &'p [Expression<'a>],
        want: Want,
        locals: &Locals<'a>,
        convert: fn(&mut Self, Value<'a>, &Span, Want) -> Result<T, Error>,
    ) -> Result<Vec<T>, Error> {
        let operands = operands.iter().map(|operand| {
            let value = self.value(operand, Some(want), locals)?;
            convert(self, value, &place(operand, locals), want)
        });
        operands.collect()
    }

    /// Returns `value`, which is a subtree of the tree, if its size and depth are within the
    /// limits.
    fn measured(&mut self, value: Value<'a>, span: &Span) -> Result<Value<'a>, Error> {
        let measure = value.measure();
        self.spend(measure.nodes, span)?;
        let Measure {
            nodes,
            depth,
            inner,
        } = measure;
        for (found, most, what) in [
            (nodes, NODES_MAX, "functions and predicates in a program"),
            (depth, DEPTH_MAX, "nested functions and predicates"),
            (inner, INNER_MAX, "nested 'inner'"),
        ] {
            if found > most {
                let message = format!("expected at most {most} {what}, found {found}");
                return Err(Error::new(span.clone(), message));
            }
        }
        Ok(value)
    }

    /// Counts steps of the evaluation. Fails after [`WORK_MAX`] steps, so that the evaluation of
    /// every steering program ends soon.
    fn spend(&mut self, steps: usize, span: &Span) -> Result<(), Error> {
        self.work = self.work.saturating_add(steps);
        if self.work <= WORK_MAX {
            return Ok(());
        }
        let message = format!(
            "expected a program whose definitions expand in at most {WORK_MAX} steps, found more"
        );
        Err(Error::new(span.clone(), message))
    }
}

/// Makes one function that runs these functions in order. Flattens nested sequences.
fn sequence(functions: Vec<Function>) -> Function {
    let is_sequence = |part: &Function| matches!(part, Function::Sequence(_));
    if functions.len() > 1 && !functions.iter().any(is_sequence) {
        return Function::Sequence(functions);
    }
    let mut parts = Vec::with_capacity(functions.len());
    for function in functions {
        if let Function::Sequence(inner) = function {
            parts.extend(inner);
        } else {
            parts.push(function);
        }
    }
    match parts.pop() {
        Some(only) if parts.is_empty() => only,
        last => {
            parts.extend(last);
            Function::Sequence(parts)
        }
    }
}

/// Joins the operands in order, as a balanced tree.
fn balanced(
    mut predicates: Vec<Predicate>,
    join: fn(Box<Predicate>, Box<Predicate>) -> Predicate,
) -> Option<Predicate> {
    if predicates.len() < 2 {
        return predicates.pop();
    }
    let right = predicates.split_off(predicates.len().div_ceil(2));
    let (left, right) = (balanced(predicates, join)?, balanced(right, join)?);
    Some(join(left.into(), right.into()))
}
