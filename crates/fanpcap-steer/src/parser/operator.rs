//! The operators: their meanings and precedences, and hints for the spellings of other languages.

use super::Parser;
use crate::ast::Chain;
use crate::lexer::Lexeme;

/// An operator between two expressions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Infix {
    /// An associative operator.
    Chain(Chain),
    /// A comparison: the name of its function in the table, and whether the property is on the
    /// right.
    Compare(&'static str, bool),
    /// A function between back quotes.
    Named,
}

/// Precedence: a greater number binds tighter. Comparisons bind tighter than in PFQ, where
/// comparisons need parentheses.
pub(super) const LOOSEST: u8 = 1;
/// Precedence on the right of a function between back quotes.
pub(super) const TIGHTEST: u8 = 8;

impl Infix {
    pub(super) fn power(self) -> u8 {
        match self {
            Infix::Chain(Chain::Sequence) => LOOSEST,
            Infix::Chain(Chain::Or) => 2,
            Infix::Chain(Chain::Xor) => 3,
            Infix::Chain(Chain::And) => 4,
            Infix::Chain(Chain::Join) => 5,
            Infix::Compare(..) => 6,
            Infix::Named => 7,
        }
    }
}

impl Parser<'_> {
    pub(super) fn infix(&self) -> Option<Infix> {
        match self.peek()? {
            Lexeme::Symbol(symbol) => infix(symbol),
            Lexeme::Mark('`') => Some(Infix::Named),
            Lexeme::Mark(_)
            | Lexeme::Name(_)
            | Lexeme::Number(_)
            | Lexeme::Text(_)
            | Lexeme::Address(_)
            | Lexeme::End => None,
        }
    }
}

fn infix(symbol: &str) -> Option<Infix> {
    Some(match symbol {
        ">->" => Infix::Chain(Chain::Sequence),
        ".||." => Infix::Chain(Chain::Or),
        ".^^." => Infix::Chain(Chain::Xor),
        ".&&." => Infix::Chain(Chain::And),
        "<>" | ".|." => Infix::Chain(Chain::Join),
        ".<" => Infix::Compare("less", false),
        ".<=" => Infix::Compare("less_eq", false),
        ".==" => Infix::Compare("equal", false),
        "./=" => Infix::Compare("not_equal", false),
        ".>" => Infix::Compare("greater", false),
        ".>=" => Infix::Compare("greater_eq", false),
        "<." => Infix::Compare("greater", true),
        "<=." => Infix::Compare("greater_eq", true),
        "==." => Infix::Compare("equal", true),
        "/=." => Infix::Compare("not_equal", true),
        ">." => Infix::Compare("less", true),
        ">=." => Infix::Compare("less_eq", true),
        _ => return None,
    })
}

/// A hint for an operator of another language, or for a mistyped operator.
pub(super) fn meant(symbol: &str) -> Option<String> {
    let operator = match symbol {
        ">>" | ">=>" | "->" | ">-" | "->-" | ">->>" | ">-->" | "-->" | "=>" => ">->",
        "&&" | "&" | ".&." | ".&&" | "&&." => ".&&.",
        "||" | "|" | ".||" | "||." => ".||.",
        "^" | "^^" | ".^." | ".^^" | "^^." => ".^^.",
        "==" | ".=" | "=." => ".==",
        "!=" | "/=" | ".!=" => "./=",
        "<" => ".<",
        "<=" | "=<" => ".<=",
        ">=" => ".>=",
        "+" | "++" => "<>",
        ">" => return Some("'>->' joins functions, '.>' compares".to_owned()),
        "!" => return Some("did you mean 'not'?".to_owned()),
        "#" | "//" | "/*" => return Some("a comment begins with '--'".to_owned()),
        ">>=" | "<-" => {
            return Some(
                "functions of this language have no results: join them by '>->'".to_owned(),
            );
        }
        "\\" => return Some("write a definition with parameters: 'web p = has_port p'".to_owned()),
        _ if symbol.starts_with("--") => {
            return Some("write a blank after the '--' of a comment".to_owned());
        }
        _ => return None,
    };
    Some(format!("did you mean '{operator}'?"))
}

pub(super) fn is_keyword(name: &str) -> bool {
    matches!(name, "do" | "if" | "then" | "else")
}
