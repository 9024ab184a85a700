//! The syntax tree of a steering program, with operators and layout resolved.

use std::borrow::Cow;
use std::ops::Range;

/// A range of bytes in the source.
pub(crate) type Span = Range<usize>;

/// A steering program's definitions, one of which is `main`.
#[derive(Debug)]
pub(crate) struct Module<'a> {
    pub(crate) definitions: Vec<Definition<'a>>,
    /// Imported modules other than PFQ's.
    pub(crate) modules: Vec<&'a str>,
    pub(crate) span: Span,
}

/// `name parameters = body`.
#[derive(Debug)]
pub(crate) struct Definition<'a> {
    pub(crate) name: &'a str,
    /// Span of the name.
    pub(crate) span: Span,
    pub(crate) parameters: Vec<&'a str>,
    pub(crate) body: Expression<'a>,
}

#[derive(Debug)]
pub(crate) struct Expression<'a> {
    pub(crate) node: Form<'a>,
    pub(crate) span: Span,
}

#[derive(Debug)]
pub(crate) enum Form<'a> {
    /// The name of a definition, a parameter or a function of the table.
    Name(&'a str),
    /// A function of the table that stands for a comparison or for `if`. A definition of the same
    /// name in the steering program does not replace the function.
    Own(&'static str),
    Number(i128),
    /// A string, or an address without quotes.
    Text(Cow<'a, str>),
    List(Vec<Expression<'a>>),
    /// `from..to`, which is allowed only in a list.
    Range(Box<Expression<'a>>, Box<Expression<'a>>),
    /// `(a, b)`
    Tuple(Vec<Expression<'a>>),
    Apply(Box<Expression<'a>>, Vec<Expression<'a>>),
    /// Two or more operands of an associative operator, or the lines of a `do` block.
    Chain(Chain, Vec<Expression<'a>>),
}

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
    /// `<>`, `.|.`: a key with the fields of both keys.
    Join,
}
