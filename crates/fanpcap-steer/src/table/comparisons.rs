//! Comparisons of a property with a number.

use super::build::{parameter, predicate};
use super::{Described, Group, Kind, Parameter};
use crate::ir::{Comparison, Predicate};

pub(super) const GROUP: Group = Group {
    title: "COMPARISONS",
    about: "Predicates that compare a property with a number, both unsigned. Operators with the property on the left: .< .<= .== ./= .> .>= \
            (ip_ttl .< 64). Operators with the number on the left: <. <=. ==. /=. >. >=. (64 >. ip_ttl). A comparison's name can also be \
            used: between the two in back quotes (ip_ttl `less` 64), or before both (less ip_ttl 64).",
    entries: &ENTRIES,
};

const TAKES: [Parameter; 2] = [
    parameter("property", Kind::Property),
    parameter("value", Kind::Number(0, u64::MAX as i128)),
];

macro_rules! comparisons {
    ($($name:literal, $is:ident, $meaning:literal, $example:literal;)*) => {
        static ENTRIES: [Described; [$($name),*].len()] = [
            $(predicate($name, &TAKES, $meaning, $example, |given| {
                Ok(Predicate::Compare(given.property()?, Comparison::$is, given.number()?).into())
            })),*
        ];
    };
}

comparisons! {
    "less", Less, "Less: .< and >.", "filter (ip_ttl .< 64)";
    "less_eq", LessEqual, "Less or equal: .<= and >=.", "filter (ip_ttl .<= 64)";
    "equal", Equal, "Equal: .== and ==.", "filter (ip_ttl .== 64)";
    "not_equal", NotEqual, "Not equal: ./= and /=.", "filter (ip_ttl ./= 64)";
    "greater", Greater, "Greater: .> and <.", "filter (64 <. ip_ttl)";
    "greater_eq", GreaterEqual, "Greater or equal: .>= and <=.", "filter (greater_eq ip_ttl 64)";
    "any_bit", AnyBit, "At least one of the value's bits is set.", "filter (ip_id `any_bit` 0xff)";
    "all_bit", AllBits, "All of the value's bits are set.", "filter (ip_tos `all_bit` 0xb8)";
}
