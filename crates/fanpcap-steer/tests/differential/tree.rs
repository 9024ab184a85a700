//! Walks over a program's tree.

use fanpcap_steer::ir::{Function, Predicate};

/// Calls `on` for each function, those within before the one that has them.
pub(crate) fn each(function: &mut Function, on: &mut dyn FnMut(&mut Function)) {
    match function {
        Function::Sequence(parts) | Function::First(parts) => {
            parts.iter_mut().for_each(|part| each(part, on));
        }
        Function::If(_, then, otherwise) => {
            each(then, on);
            each(otherwise, on);
        }
        Function::Inverse(part) | Function::Inner(part) => each(part, on),
        Function::Pass
        | Function::Drop
        | Function::Steer(_)
        | Function::Broadcast
        | Function::Classify(_)
        | Function::Host(_)
        | Function::Mark(_)
        | Function::Count(..)
        | Function::SetState(_)
        | Function::Sample { .. } => {}
    }
    on(function);
}

/// Calls `on` for each predicate, those within before the one that has them.
pub(crate) fn each_predicate(function: &mut Function, on: &mut dyn FnMut(&mut Predicate)) {
    each(function, &mut |function| {
        if let Function::If(predicate, ..) = function {
            within(predicate, on);
        }
    });
}

fn within(predicate: &mut Predicate, on: &mut dyn FnMut(&mut Predicate)) {
    match predicate {
        Predicate::Not(part) => within(part, on),
        Predicate::And(a, b) | Predicate::Or(a, b) | Predicate::Xor(a, b) => {
            within(a, on);
            within(b, on);
        }
        Predicate::Constant(_)
        | Predicate::Compare(..)
        | Predicate::Member(..)
        | Predicate::Has(_)
        | Predicate::Address(..)
        | Predicate::AddressIn { .. }
        | Predicate::Port(..)
        | Predicate::Pcap(_)
        | Predicate::Share { .. }
        | Predicate::Rtp
        | Predicate::Rtcp => {}
    }
    on(predicate);
}

/// Functions and predicates.
pub(crate) fn nodes(function: &Function) -> usize {
    let mut count = 0;
    let mut function = function.clone();
    each(&mut function, &mut |_| count += 1);
    each_predicate(&mut function, &mut |_| count += 1);
    count
}
