//! A program as it is written, operators and layout resolved.

use std::borrow::Cow;
use std::ops::Range;

/// Bytes of the source.
pub(crate) type Span = Range<usize>;

/// A program: its definitions, one of which is `main`.
#[derive(Debug)]
pub(crate) struct Module<'a> {
    pub(crate) definitions: Vec<Definition<'a>>,
    /// What is not PFQ's own among the imported modules.
    pub(crate) modules: Vec<&'a str>,
    /// The whole program.
    pub(crate) span: Span,
}

/// `name parameters = body`.
#[derive(Debug)]
pub(crate) struct Definition<'a> {
    pub(crate) name: &'a str,
    /// Of the name.
    pub(crate) span: Span,
    pub(crate) parameters: Vec<&'a str>,
    pub(crate) body: Expression<'a>,
}

/// An expression and where it stands.
#[derive(Debug)]
pub(crate) struct Expression<'a> {
    pub(crate) node: Form<'a>,
    pub(crate) span: Span,
}

/// What an expression is.
#[derive(Debug)]
pub(crate) enum Form<'a> {
    /// The name of a definition, a parameter or a function of the table.
    Name(&'a str),
    /// The table's function that a comparison or `if` stands for, whatever the program itself calls
    /// by that name.
    Own(&'static str),
    Number(i128),
    /// A string, or an address without quotes.
    Text(Cow<'a, str>),
    List(Vec<Expression<'a>>),
    /// `from..to`, in a list only.
    Range(Box<Expression<'a>>, Box<Expression<'a>>),
    /// `(a, b)`
    Tuple(Vec<Expression<'a>>),
    Apply(Box<Expression<'a>>, Vec<Expression<'a>>),
    /// Two and more operands of an operator that is associative; a `do` block too.
    Chain(Chain, Vec<Expression<'a>>),
}

/// An operator that is associative.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chain {
    /// `>->`
    Sequence,
    /// `.||.`
    Or,
    /// `.^^.`
    Xor,
    /// `.&&.`
    And,
    /// `<>`, `.|.`: keys of both.
    Join,
}
