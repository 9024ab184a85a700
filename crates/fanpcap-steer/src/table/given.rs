//! The arguments and the results of the functions that make the tree of a call (makers).

use crate::ir::{Function, Key, Net, Predicate, Property};
use std::net::IpAddr;
use std::vec;

/// An argument of a call. The checker has checked the argument's kind.
#[derive(Clone, Debug)]
pub(crate) enum Argument {
    Number(i128),
    Numbers(Vec<i128>),
    Net(Net),
    Host(IpAddr),
    Hosts(Vec<IpAddr>),
    Ethernet([u8; 6]),
    Predicate(Predicate),
    Property(Property),
    Function(Function),
    Key(Key),
}

/// The arguments in order, and the sets that the steering program has so far.
#[derive(Debug)]
pub(crate) struct Given<'a> {
    arguments: vec::IntoIter<Argument>,
    sets: &'a mut Vec<Vec<u128>>,
}

/// The result of a maker: a part of the tree, or another value.
#[derive(Clone, Debug)]
pub(crate) enum Built {
    Predicate(Predicate),
    Property(Property),
    Function(Function),
    Key(Key),
    Net(Net),
    Number(i128),
}

/// The error of a maker that refuses arguments although their kinds are right.
#[derive(Clone, Debug)]
pub(crate) struct Wrong {
    /// Index of the argument.
    pub(crate) argument: usize,
    /// What was expected and what was found.
    pub(crate) message: String,
}

impl Wrong {
    pub(super) fn new(argument: usize, message: impl Into<String>) -> Wrong {
        let message = message.into();
        Wrong { argument, message }
    }

    /// The error if a maker reads other arguments than its entry declares, which is a mistake in
    /// the table.
    fn mismatch() -> Wrong {
        Wrong::new(
            0,
            "expected other arguments: the function's entry in the table is wrong",
        )
    }
}

macro_rules! getters {
    ($($(#[$doc:meta])* $name:ident: $variant:ident, $type:ty;)*) => {
        $($(#[$doc])* pub(super) fn $name(&mut self) -> Result<$type, Wrong> {
            match self.arguments.next() {
                Some(Argument::$variant(value)) => Ok(value),
                _ => Err(Wrong::mismatch()),
            }
        })*
    };
}

impl<'a> Given<'a> {
    pub(crate) fn new(arguments: Vec<Argument>, sets: &'a mut Vec<Vec<u128>>) -> Given<'a> {
        let arguments = arguments.into_iter();
        Given { arguments, sets }
    }

    getters! {
        numbers: Numbers, Vec<i128>;
        net: Net, Net;
        host: Host, IpAddr;
        hosts: Hosts, Vec<IpAddr>;
        ethernet: Ethernet, [u8; 6];
        predicate: Predicate, Predicate;
        property: Property, Property;
        function: Function, Function;
        key: Key, Key;
    }

    /// The next argument, a number. The parameter's range ensures that the number fits into `T`.
    pub(super) fn number<T: TryFrom<i128>>(&mut self) -> Result<T, Wrong> {
        match self.arguments.next() {
            Some(Argument::Number(value)) => T::try_from(value).map_err(|_| Wrong::mismatch()),
            _ => Err(Wrong::mismatch()),
        }
    }

    /// All remaining arguments, which are functions.
    pub(super) fn functions(&mut self) -> Result<Vec<Function>, Wrong> {
        let mut functions = Vec::with_capacity(self.arguments.len());
        while self.arguments.len() > 0 {
            functions.push(self.function()?);
        }
        Ok(functions)
    }

    /// Adds a set of these values, and returns the index of the set.
    pub(super) fn set(&mut self, mut values: Vec<u128>) -> usize {
        values.sort_unstable();
        values.dedup();
        self.sets.push(values);
        self.sets.len() - 1
    }
}

impl From<Predicate> for Built {
    fn from(made: Predicate) -> Built {
        Built::Predicate(made)
    }
}

impl From<Function> for Built {
    fn from(made: Function) -> Built {
        Built::Function(made)
    }
}
