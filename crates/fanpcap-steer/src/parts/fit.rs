//! Checks that a kernel group can run a steering program. Each packet must go to one member, and no
//! sampler may decide which member gets a packet.

use super::{Unfit, has};
use crate::ir::{Function, Predicate, Steer};

/// Possible decisions about packets that are not dropped.
#[derive(Clone, Copy, Default)]
pub(crate) struct Outcomes {
    /// Some packets go to all members of a class.
    pub(crate) copy: bool,
    /// Some packets go to all members of all classes except 63.
    pub(crate) broadcast: bool,
    /// Some packets go to two members.
    pub(crate) double: bool,
}

impl Outcomes {
    fn or(self, other: Outcomes) -> Outcomes {
        Outcomes {
            copy: self.copy || other.copy,
            broadcast: self.broadcast || other.broadcast,
            double: self.double || other.double,
        }
    }
}

/// Checks that a kernel group can run the whole steering program.
///
/// # Errors
/// The error names the first function that a kernel group can't run.
pub(super) fn check(main: &Function) -> Result<(), Unfit> {
    each_fits(main, false)?;
    let ends = outcomes(main);
    if ends.broadcast {
        return refuse("`broadcast` gives a packet to all members");
    }
    if ends.double {
        return refuse("`double_steer_...` gives a packet to two members");
    }
    if ends.copy {
        return Err(Unfit {
            what: "packets that no steering function has steered go to all members, which a kernel group can't do: \
                   end each path that does not drop with one, as in `>-> steer_flow`, or set PCAP_DRIVER=xdp"
                .to_owned(),
        });
    }
    Ok(())
}

/// Possible decisions of the whole steering program.
pub(crate) fn outcomes(main: &Function) -> Outcomes {
    let begin = Outcomes {
        copy: true,
        ..Outcomes::default()
    };
    ends(main, begin).unwrap_or_default()
}

fn refuse(what: &str) -> Result<(), Unfit> {
    Err(Unfit {
        what: format!(
            "{what}, which a kernel group can't do, but the XDP engine can: set PCAP_DRIVER=xdp"
        ),
    })
}

/// Checks a function of the tree. `is_told` says that another function runs if this function drops
/// the packet.
fn each_fits(function: &Function, is_told: bool) -> Result<(), Unfit> {
    match (function, is_told) {
        (Function::Classify(_), _) => refuse("`classify` chooses among classes of members"),
        (Function::Host(_), _) => Err(Unfit {
            what: "`kernel` and `detour` decide what the host gets, which a kernel group can't do, but the XDP engine can: \
                   leave them out, or set PCAP_DRIVER=xdp"
                .to_owned(),
        }),
        (Function::Mark(_), _) => refuse("`mark` marks a packet"),
        (Function::Sample { keep, of, .. }, true) if keep < of => Err(Unfit {
            what: "with `sample` within `par` or `inv`, each member's filter would decide by what the group is steered: \
                   put `sample` before or after `par` or `inv`"
                .to_owned(),
        }),
        _ => {
            let told = told(function);
            let mut children = function.children().enumerate();
            children.try_for_each(|(at, child)| each_fits(child, is_told || at < told))
        }
    }
}

/// If one of the function's first children drops the packet, another function runs. Returns the
/// number of these children.
pub(super) fn told(function: &Function) -> usize {
    match (function, function.children().count()) {
        (Function::Inverse(_), count) => count,
        (Function::First(_), count) => count.saturating_sub(1),
        _ => 0,
    }
}

/// Possible decisions after the function, if `before` are those before the function. `None` if the
/// function drops every packet.
fn ends(function: &Function, before: Outcomes) -> Option<Outcomes> {
    match function {
        Function::Drop => None,
        Function::If(predicate, then, otherwise) => {
            one_of(ways(predicate, then, otherwise), before)
        }
        Function::First(alternatives) => one_of(tried(alternatives), before),
        Function::Inverse(function) => may_drop(function).then_some(before),
        Function::Steer(Steer::DoubleLink | Steer::DoubleIp | Steer::DoubleField(..)) => {
            Some(Outcomes {
                double: true,
                ..Outcomes::default()
            })
        }
        Function::Steer(_) => Some(Outcomes::default()),
        Function::Broadcast => Some(Outcomes {
            broadcast: true,
            ..Outcomes::default()
        }),
        Function::Pass
        | Function::Sequence(_)
        | Function::Inner(_)
        | Function::Classify(_)
        | Function::Host(_)
        | Function::Mark(_)
        | Function::Count(..)
        | Function::SetState(_)
        | Function::Sample { .. } => {
            let mut children = function.children();
            children.try_fold(before, |before, each| ends(each, before))
        }
    }
}

fn one_of<'f>(functions: impl Iterator<Item = &'f Function>, before: Outcomes) -> Option<Outcomes> {
    functions
        .filter_map(|each| ends(each, before))
        .reduce(Outcomes::or)
}

fn ways<'f>(
    predicate: &Predicate,
    then: &'f Function,
    otherwise: &'f Function,
) -> impl Iterator<Item = &'f Function> {
    let may = |way: bool| *predicate != Predicate::Constant(!way);
    let ways = [(may(true), then), (may(false), otherwise)];
    ways.into_iter()
        .filter_map(|(may, branch)| may.then_some(branch))
}

/// The alternatives up to the first that never drops a packet. The alternatives after it never run.
fn tried(alternatives: &[Function]) -> impl Iterator<Item = &Function> {
    let sure = alternatives.iter().position(|each| !may_drop(each));
    alternatives
        .iter()
        .take(sure.map_or(alternatives.len(), |at| at + 1))
}

pub(crate) fn may_drop(function: &Function) -> bool {
    match function {
        Function::Drop | Function::Host(true) => true,
        Function::If(predicate, then, otherwise) => ways(predicate, then, otherwise).any(may_drop),
        Function::First(alternatives) => alternatives.iter().all(may_drop),
        Function::Inverse(function) => **function != Function::Drop,
        // No predicate tests whether a packet has these bytes.
        Function::Steer(Steer::Field(_) | Steer::Fields(..)) => true,
        Function::Steer(steer) => has(steer) != Function::Pass,
        Function::Sample { keep, of, .. } => keep < of,
        Function::Pass
        | Function::Sequence(_)
        | Function::Inner(_)
        | Function::Broadcast
        | Function::Classify(_)
        | Function::Host(false)
        | Function::Mark(_)
        | Function::Count(..)
        | Function::SetState(_) => function.children().any(may_drop),
    }
}

pub(super) fn counts(function: &Function) -> bool {
    matches!(function, Function::Count(..)) || function.children().any(counts)
}
