//! Finds steering functions that select no member, because a later steering function always selects
//! another one. The steering program is correct, but does not do what it seems to say.

use std::collections::BTreeMap;

use crate::ast::{Chain, Definition, Expression, Form, Module, Span};
use crate::error::quote;
use crate::parser::{self, MAIN};
use crate::table::{self, Entry};
use crate::{Error, lexer};

/// Steering functions that never drop a packet. If another function overrides them, they have no
/// effect at all.
const NEVER_DROP: [&str; 6] = [
    "steer_to",
    "steer_rrobin",
    "steer_rnd",
    "steer_cpu",
    "steer_rss",
    "broadcast",
];

/// A warning about a correct steering program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overridden {
    /// The steering function that is always overridden, as the source has it.
    pub call: String,
    /// Where it is, and what it does.
    pub warning: Error,
}

/// The steering functions of a correct steering program that are always overridden, in the order of
/// the source.
pub fn overridden(source: &str) -> Vec<Overridden> {
    let module = lexer::tokens(source).and_then(|tokens| parser::module(source, tokens));
    let Ok(module) = module else {
        return Vec::new();
    };
    let mut search = Search {
        module: &module,
        found: BTreeMap::new(),
    };
    if let Some(main) = search.definition(MAIN) {
        search.function(&main.body, &Vec::new(), None);
    }
    let found = search.found.into_iter();
    found
        .filter_map(|((start, end), use_)| Some(warning(source, start..end, &use_?)))
        .collect()
}

/// A steering function that is overridden.
struct Use {
    /// Its name in the table.
    name: &'static str,
    /// The function that overrides it.
    by: String,
}

fn warning(source: &str, mut span: Span, Use { name, by }: &Use) -> Overridden {
    let bytes = source.as_bytes();
    while bytes.get(span.start) == Some(&b'(') && span.len() > 2 {
        span = span.start + 1..span.end - 1;
    }
    let text = source.get(span.clone()).unwrap_or(name).trim();
    let message = match NEVER_DROP.contains(name) {
        true => format!("{} has no effect: {by} follows", quote(text)),
        false => format!(
            "{} only drops packets here: {by} follows, which selects the member",
            quote(text)
        ),
    };
    Overridden {
        call: text.to_owned(),
        warning: Error::new(span, message).hint("for some packets only: 'if p then f else g'"),
    }
}

/// The arguments of the definition whose body is walked: expressions with their own arguments.
type Locals<'p, 'a> = Vec<Local<'p, 'a>>;

#[derive(Clone)]
struct Local<'p, 'a> {
    name: &'a str,
    value: &'p Expression<'a>,
    locals: Locals<'p, 'a>,
}

struct Search<'p, 'a> {
    module: &'p Module<'a>,
    /// The steering functions by their places in the source; `None` for one that selects a member
    /// at least once, as a definition may be used at several places.
    found: BTreeMap<(usize, usize), Option<Use>>,
}

impl<'p, 'a> Search<'p, 'a> {
    fn definition(&self, name: &str) -> Option<&'p Definition<'a>> {
        self.module.definitions.iter().find(|it| it.name == name)
    }

    /// Walks an expression that is a function. `later` is the function behind it that overrides it.
    /// Returns the function in the expression that selects the member of each packet that passes.
    fn function(
        &mut self,
        expression: &'p Expression<'a>,
        locals: &Locals<'p, 'a>,
        later: Option<&str>,
    ) -> Option<String> {
        match &expression.node {
            Form::Chain(Chain::Sequence, parts) => {
                let mut last: Option<String> = None;
                for part in parts.iter().rev() {
                    let behind = last.as_deref().or(later).map(str::to_owned);
                    let own = self.function(part, locals, behind.as_deref());
                    last = last.or(own);
                }
                last
            }
            Form::Apply(head, arguments) => self.call(head, arguments, expression, locals, later),
            Form::Name(_) | Form::Own(_) => self.call(expression, &[], expression, locals, later),
            Form::Number(_)
            | Form::Text(_)
            | Form::List(_)
            | Form::Range(..)
            | Form::Tuple(_)
            | Form::Chain(..) => None,
        }
    }

    /// Walks the call of `head` with these arguments. `whole` is the call.
    fn call(
        &mut self,
        head: &'p Expression<'a>,
        arguments: &'p [Expression<'a>],
        whole: &'p Expression<'a>,
        locals: &Locals<'p, 'a>,
        later: Option<&str>,
    ) -> Option<String> {
        let name = match head.node {
            Form::Own(name) => {
                return self.entry(table::find(name)?, arguments, whole, locals, later);
            }
            Form::Name(name) => name,
            Form::Number(_)
            | Form::Text(_)
            | Form::List(_)
            | Form::Range(..)
            | Form::Tuple(_)
            | Form::Apply(..)
            | Form::Chain(..) => return None,
        };
        if let Some(local) = locals.iter().find(|it| it.name == name) {
            let is_plain = arguments.is_empty();
            return is_plain
                .then(|| self.function(local.value, &local.locals, later))
                .flatten();
        }
        let Some(definition) = self.definition(name) else {
            return self.entry(table::find(name)?, arguments, whole, locals, later);
        };
        if definition.parameters.len() != arguments.len() {
            return None;
        }
        let bound = definition.parameters.iter().zip(arguments);
        let inner = bound.map(|(name, value)| Local {
            name,
            value,
            locals: locals.clone(),
        });
        self.function(&definition.body, &inner.collect(), later)
    }

    /// Walks the call of a function of the table.
    fn entry(
        &mut self,
        entry: &'static Entry,
        arguments: &'p [Expression<'a>],
        whole: &'p Expression<'a>,
        locals: &Locals<'p, 'a>,
        later: Option<&str>,
    ) -> Option<String> {
        let mut each = |at: usize| {
            let argument = arguments.get(at)?;
            self.function(argument, locals, later)
        };
        match entry.name {
            "when" | "unless" => {
                each(1);
                None
            }
            "conditional" => {
                let (then, otherwise) = (each(1), each(2));
                then.and(otherwise)
            }
            "inner" | "src" | "dst" => each(0),
            name if name.starts_with("par") => {
                let all: Vec<_> = (0..arguments.len()).map(each).collect();
                let all: Option<Vec<String>> = all.into_iter().collect();
                all.and_then(|all| all.into_iter().next_back())
            }
            "drop" => Some("drop".to_owned()),
            name if name == "broadcast" || table::is_steering(entry) => {
                let place = (whole.span.start, whole.span.end);
                let by = later.map(str::to_owned).map(|by| Use { name, by });
                let known = self.found.remove(&place);
                let is_selecting = by.is_none() || matches!(known, Some(None));
                self.found.insert(place, by.filter(|_| !is_selecting));
                Some(name.to_owned())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warned(source: &str) -> Vec<String> {
        let told = overridden(source);
        let line = |it: &Overridden| {
            let (line, column) = it.warning.position(source);
            format!("{line}:{column}: {}", it.warning.message)
        };
        told.iter().map(line).collect()
    }

    #[test]
    fn what_is_overridden_is_named_with_its_place() {
        for (source, told) in [
            (
                "main = do\n  when (has_port 53) (steer_to 0)\n  steer_flow",
                "2:23: 'steer_to 0' has no effect: steer_flow follows",
            ),
            (
                "main = when (has_port 53) (steer_to 0) >-> steer_flow",
                "1:28: 'steer_to 0' has no effect: steer_flow follows",
            ),
            (
                "dns f = when (has_port 53) f\nmain = dns (steer_to 0) >-> inc 1 >-> steer_flow",
                "2:13: 'steer_to 0' has no effect: steer_flow follows",
            ),
            (
                "first = steer_rrobin\nmain = ip >-> first >-> par steer_flow steer_link",
                "1:9: 'steer_rrobin' has no effect: steer_link follows",
            ),
            (
                "main = steer_flow >-> steer_to 1",
                "1:8: 'steer_flow' only drops packets here: steer_to follows, which selects the member",
            ),
            (
                "main = steer_to 1 >-> if is_tcp then steer_flow else steer_link",
                "1:8: 'steer_to 1' has no effect: steer_link follows",
            ),
            (
                "main = when is_broadcast broadcast >-> steer_flow",
                "1:26: 'broadcast' has no effect: steer_flow follows",
            ),
        ] {
            assert_eq!(warned(source), [told], "{source}");
        }
    }

    #[test]
    fn what_selects_the_member_of_some_packets_is_right() {
        for source in [
            "main = steer_flow",
            "main = if has_port 53 then steer_to 0 else steer_flow",
            "main = steer_flow >-> when (has_port 53) (steer_to 0)",
            "main = par3 steer_flow steer_link (steer_to 0)",
            "main = when (has_port 53) (classify 2) >-> steer_flow",
            "main = steer_to 1 >-> par steer_flow unit",
            "f = steer_to 1\nmain = when is_tcp (f >-> steer_flow) >-> when is_udp f",
            "main = inv steer_flow >-> steer_link",
            "main = steer_flow >-> filter (has_port 53)",
            "main = >->",
        ] {
            assert!(warned(source).is_empty(), "{source}: {:?}", warned(source));
        }
    }

    #[test]
    fn the_list_has_each_function_that_never_drops() {
        let steering = table::entries().filter(|entry| table::is_steering(entry));
        for entry in steering {
            let arguments = entry.example.split(entry.name).nth(1).unwrap_or_default();
            let source = format!("main = {}{arguments}", entry.name);
            let tree = crate::tree(&source, &|_| Err(String::new())).unwrap();
            let drops = crate::parts::may_drop(&tree.main);
            assert_eq!(NEVER_DROP.contains(&entry.name), !drops, "{source}");
        }
    }
}
