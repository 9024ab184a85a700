//! Error messages: what was expected, what was found, and what to write instead.

use super::Checker;
use super::value::{Callee, Partial, Value, Want};
use crate::Error;
use crate::ast::{Expression, Form, Span};
use crate::error::quote;
use crate::lexer::is_of_word;
use crate::table::{self, Kind, Type};

impl<'a> Checker<'_, 'a> {
    /// The error for a value of another kind than `want`.
    pub(super) fn mismatch(&self, value: &Value<'a>, span: &Span, want: Want) -> Error {
        let found = self.describe(value, span);
        let message = format!("expected {} found {found}", want.expected_before_found());
        Error::new(span.clone(), message).hinted(self.advice(value, span, want))
    }

    pub(super) fn describe(&self, value: &Value<'a>, span: &Span) -> String {
        let text = quote(self.source[span.clone()].trim_end());
        match value {
            Value::Partial(partial) => self.needs(partial, &text),
            Value::Text(_) => format!("the string {text}"),
            Value::List(_) => format!("the list {text}"),
            Value::Tuple(_) => format!("the pair {text}"),
            Value::Predicate(_)
            | Value::Property(_)
            | Value::Function(_)
            | Value::Key(_)
            | Value::Net(_)
            | Value::Number(_) => {
                let word = value.gives().map_or("value", Type::word);
                format!("the {word} {text}")
            }
        }
    }

    fn needs(&self, partial: &Partial<'a>, text: &str) -> String {
        let left = self.arity(partial.callee) - partial.given.len();
        let parameters: Vec<&str> = match partial.callee {
            Callee::Entry(entry) => entry.takes.iter().map(|takes| takes.name).collect(),
            Callee::Definition(at) => self.program.definitions[at].parameters.clone(),
        };
        let names = parameters[parameters.len() - left..].join("', '");
        let noun = if left == 1 { "argument" } else { "arguments" };
        format!("{text}, which still lacks the {noun} '{names}'")
    }

    fn advice(&self, value: &Value<'a>, span: &Span, want: Want) -> Option<String> {
        let text = self.source[span.clone()].trim_end();
        let near = |name: String| format!("did you mean '{name}'?");
        let is_word = text.chars().all(is_of_word);
        let bare = |gives| move |it: &table::Entry| it.gives == gives && it.takes.is_empty();
        match (value, want.kind) {
            (Value::Function(_) | Value::Partial(_), Kind::Predicate)
                if want.role.is_none() && !is_word =>
            {
                let head = text.split(|c| !is_of_word(c)).next();
                head.filter(|head| !head.is_empty()).map(|head| {
                    format!("put an argument with operators in parentheses: '{head} (is_tcp .&&. is_ip)'")
                })
            }
            (
                Value::Partial(Partial {
                    callee: Callee::Entry(entry),
                    ..
                }),
                _,
            ) => Some(format!("as in '{}'", entry.example)),
            (Value::Predicate(_), Kind::Function) => {
                if self.source[..span.start].trim_end().ends_with('$') {
                    let hint =
                        "'$' applies to everything after it, also to '>->': write 'filter (...)'";
                    return Some(hint.to_owned());
                }
                let write = if is_word { text } else { "(...)" };
                Some(
                    twin(text, bare(Type::Function))
                        .map_or(format!("write 'filter {write}'"), near),
                )
            }
            (Value::Function(_), Kind::Predicate) => twin(text, bare(Type::Predicate)).map(near),
            (Value::Property(_), Kind::Predicate | Kind::Function) => {
                Some("compare it with a number: 'ip_ttl .< 64'".to_owned())
            }
            (Value::Number(_), Kind::Property) => Some(
                "'.<' takes the number on its right, '<.' takes the number on its left".to_owned(),
            ),
            (Value::Text(_), Kind::Function) => {
                Some("a pcap expression is a predicate: write 'filter \"tcp\"'".to_owned())
            }
            (Value::Number(_) | Value::Text(_), Kind::Numbers(..) | Kind::Hosts) => {
                Some(format!("a list of one element is '[{text}]'"))
            }
            _ => None,
        }
    }
}

impl Want {
    /// The expected kind, as the text before the word `found` in a message.
    pub(super) fn expected_before_found(self) -> String {
        let expected = self.expected();
        if expected.ends_with(',') {
            expected
        } else {
            format!("{expected},")
        }
    }
}

/// For a predicate's name, the function of the table with a similar name (`is_tcp` and `tcp`), if
/// it `fits`; for a function's name, the predicate.
fn twin(name: &str, fits: impl Fn(&table::Entry) -> bool) -> Option<String> {
    let stripped = ["is_", "has_"]
        .iter()
        .filter_map(|prefix| name.strip_prefix(prefix));
    let longer = ["is_", "has_"]
        .iter()
        .map(|prefix| format!("{prefix}{name}"));
    let mut names = stripped.map(str::to_owned).chain(longer);
    names.find(|name| table::find(name).is_some_and(&fits))
}

/// The hint about an unknown name that is similar to `near`, a function of the table with another
/// type than the expected one. Proposes the twin of `near` that has the expected type and takes the
/// same arguments, as `port` for `has_port`.
pub(super) fn of_other_type(near: &str, want: Kind) -> Option<String> {
    let entry = table::find(near)?;
    let fits = |it: &table::Entry| want.fits(it.gives) && it.takes == entry.takes;
    if let Some(twin) = twin(near, fits) {
        return Some(format!("did you mean '{twin}'?"));
    }
    let (word, example) = (entry.gives.word(), entry.example);
    let example = match example {
        "" => String::new(),
        example => format!(", as in '{example}'"),
    };
    Some(format!("did you mean the {word} '{near}'{example}?"))
}

/// Whether the expression is a `filter` whose pcap expression lacks quotes, as on tcpdump's command
/// line: `filter tcp port 80`.
pub(super) fn is_unquoted(head: &Expression<'_>, arguments: &[Expression<'_>]) -> bool {
    let [first, _, ..] = arguments else {
        return false;
    };
    let begins = |word: &&str| PRIMITIVES.contains(word);
    matches!(head.node, Form::Name("filter"))
        && matches!(&first.node, Form::Name(word) if begins(word))
}

/// Words at the beginning of pcap expressions that are not predicates of this language.
const PRIMITIVES: [&str; 19] = [
    "arp",
    "dst",
    "ether",
    "geneve",
    "gre",
    "host",
    "icmp",
    "icmp6",
    "ip",
    "ip6",
    "mpls",
    "net",
    "port",
    "portrange",
    "proto",
    "sctp",
    "src",
    "tcp",
    "udp",
];
