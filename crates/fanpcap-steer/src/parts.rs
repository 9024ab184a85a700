//! Cuts a steering program into its two parts, for a kernel fan-out group.
//!
//! The steering part is the group's BPF program, which selects the member that gets a packet. The
//! filtering part is each member's own filter, which drops and counts packets. The kernel runs the
//! steering part first. The steering part can neither drop nor copy packets.
//!
//! For a packet that the whole program drops, the steering part may select any member. For any
//! other packet, the steering part selects the same member as the whole program. The filtering part
//! drops and counts the same packets as the whole program. In one point the parts differ from the
//! whole program: the steering part's round-robin counter and its fragment table also include
//! packets that the filtering part drops.

mod fit;

pub(crate) use fit::{may_drop, outcomes};

use std::fmt;
use std::mem;

use crate::ir::{Comparison, Function, Header, Predicate, Property, Side, Steer, Tree};
use fanpcap_wire::number;

/// The reason why a kernel group can't run a steering program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfit {
    /// A sentence that names what the kernel group can't do, and advice.
    pub what: String,
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Unfit {}

/// The two parts of a steering program that a kernel group can run.
#[derive(Clone, Debug)]
pub struct Parts {
    steering: Tree,
    filtering: Option<Tree>,
}

impl Parts {
    /// Cuts a steering program into its two parts.
    ///
    /// # Errors
    /// Fails if a kernel group can't run the steering program.
    pub fn of(tree: &Tree) -> Result<Self, Unfit> {
        fit::check(&tree.main)?;
        let part = |main| Tree {
            main,
            ..tree.clone()
        };
        let filtering = filters(tree.main.clone());
        let has_effect = fit::may_drop(&filtering) || fit::counts(&filtering);
        Ok(Self {
            steering: part(steers(tree.main.clone(), OnDrop::EndsAll)),
            filtering: has_effect.then(|| part(filtering)),
        })
    }

    /// The part that selects the member. It has no counters, no samplers, and no filters that only
    /// drop packets.
    pub fn steering(&self) -> &Tree {
        &self.steering
    }

    /// The part that drops and counts packets; `None` if the steering program neither drops nor
    /// counts packets.
    pub fn filtering(&self) -> Option<&Tree> {
        self.filtering.as_ref()
    }

    /// Whether the steering program counts packets.
    pub fn counts(&self) -> bool {
        let filtering = self.filtering.as_ref();
        filtering.is_some_and(|tree| fit::counts(&tree.main))
    }
}

/// The code that runs after a function has dropped the packet.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OnDrop {
    /// No other function runs, so the packet stays dropped.
    EndsAll,
    /// Another function runs, for example the next alternative.
    IsTold,
}

fn steers(mut function: Function, drop: OnDrop) -> Function {
    let counts = matches!(function, Function::Count(..) | Function::Sample { .. });
    // An inverse drops the packet, or passes it with the outcome from before the inverse. So it
    // never changes the member, and the steering part leaves it out.
    let inverse = matches!(function, Function::Inverse(_)) && drop == OnDrop::EndsAll;
    if counts || inverse {
        return Function::Pass;
    }
    let told = fit::told(&function);
    for (at, child) in function.children_mut().enumerate() {
        let drop = if at < told { OnDrop::IsTold } else { drop };
        *child = steers(mem::replace(child, Function::Pass), drop);
    }
    simple(function, drop)
}

fn filters(mut function: Function) -> Function {
    if let Function::Steer(steer) = &function {
        return has(steer);
    }
    let decides = matches!(function, Function::Broadcast | Function::Classify(_));
    if decides || matches!(function, Function::Host(_) | Function::Mark(_)) {
        return Function::Pass;
    }
    for child in function.children_mut() {
        *child = filters(mem::replace(child, Function::Pass));
    }
    simple(function, OnDrop::IsTold)
}

/// Simplifies a function whose children are already simplified. If `drop` is [`OnDrop::EndsAll`],
/// the function may pass a packet that it should drop: the filtering part drops the packet.
fn simple(function: Function, drop: OnDrop) -> Function {
    match (function, drop) {
        (Function::Sequence(all), OnDrop::EndsAll) if all.contains(&Function::Drop) => {
            Function::Drop
        }
        (Function::Sequence(all), _) => sequence(all),
        (Function::If(question, then, otherwise), _) => match (*then, *otherwise) {
            (Function::Drop, other) | (other, Function::Drop) if drop == OnDrop::EndsAll => other,
            (then, otherwise) if then == otherwise => then,
            (then, otherwise) => Function::If(question, then.into(), otherwise.into()),
        },
        (Function::First(all), _) => first(all),
        (Function::Inner(only), _) if matches!(*only, Function::Pass | Function::Drop) => *only,
        (function, _) => function,
    }
}

/// Makes a sequence of these functions, without functions that do nothing, and without the
/// functions after a drop.
fn sequence(functions: Vec<Function>) -> Function {
    let mut kept = Vec::new();
    let functions = functions.into_iter();
    for function in functions.filter(|function| *function != Function::Pass) {
        let ends = function == Function::Drop;
        kept.push(function);
        if ends {
            break;
        }
    }
    if kept.len() > 1 {
        return Function::Sequence(kept);
    }
    kept.pop().unwrap_or(Function::Pass)
}

/// Makes alternatives of these functions. Leaves out functions that always drop the packet, and
/// all functions after the first function that never drops it.
fn first(alternatives: Vec<Function>) -> Function {
    let mut kept = Vec::new();
    let alternatives = alternatives.into_iter();
    for alternative in alternatives.filter(|alternative| *alternative != Function::Drop) {
        let ends = !fit::may_drop(&alternative);
        kept.push(alternative);
        if ends {
            break;
        }
    }
    if kept.len() > 1 {
        return Function::First(kept);
    }
    kept.pop().unwrap_or(Function::Drop)
}

/// Returns a function that drops packets that lack the property by which `steer` selects the
/// member, and passes other packets.
fn has(steer: &Steer) -> Function {
    let udp = |port: u16| {
        let [source, destination] = [Property::UdpSource, Property::UdpDestination]
            .map(|side| Predicate::Compare(side, Comparison::Equal, port.into()));
        source.or(destination)
    };
    let needed = match steer {
        Steer::RoundRobin | Steer::Random | Steer::Cpu | Steer::Rss | Steer::To(_) => {
            return Function::Pass;
        }
        // No predicate tests whether a frame has these bytes. So the steering function itself stays
        // in the filtering part, where only its drop has an effect.
        Steer::Field(_) | Steer::Fields(..) => return Function::Steer(steer.clone()),
        Steer::DoubleField(one, other) => return Function::Steer(Steer::Fields(*one, *other)),
        Steer::Flow(_) | Steer::DoubleIp => Predicate::Has(Header::Ip),
        Steer::Link | Steer::LocalLink(_) | Steer::DoubleLink => Predicate::Has(Header::Link),
        Steer::Vlan => Predicate::Has(Header::Tag),
        Steer::LocalIp(net) | Steer::LocalNet(net, _) => Predicate::Address(Side::Either, *net),
        // Share 0 of 1 contains every packet that has all fields of the key.
        Steer::Key(key) => Predicate::Share {
            index: 0,
            of: 1,
            key: *key,
        },
        Steer::Media => {
            let udp = number::UDP.into();
            let later = Predicate::Has(Header::LaterFragment).and(Predicate::Compare(
                Property::Protocol,
                Comparison::Equal,
                udp,
            ));
            Predicate::Rtp.or(Predicate::Rtcp).or(later)
        }
        Steer::Gtp => udp(number::PORT_GTP_USER)
            .and(Predicate::Has(Header::Inner))
            .or(udp(number::PORT_GTP_CONTROL)),
    };
    Function::If(
        Box::new(needed),
        Box::new(Function::Pass),
        Box::new(Function::Drop),
    )
}

impl Predicate {
    fn and(self, other: Predicate) -> Predicate {
        Predicate::And(Box::new(self), Box::new(other))
    }

    fn or(self, other: Predicate) -> Predicate {
        Predicate::Or(Box::new(self), Box::new(other))
    }
}
