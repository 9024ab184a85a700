//! Forwarding to the host, counters, and classes.

use super::build::{function, parameter};
use super::{Built, Described, Engines, Given, Group, Kind, Parameter, Wrong};
use crate::ir::{COUNTERS, Function};

pub(super) const GROUP: Group = Group {
    title: "COUNTING, COPYING, CLASSES",
    about: "Without a steering function each member of the default class gets each packet. Only the XDP engine can do this.",
    entries: &ENTRIES,
};

const COUNTER: Parameter = parameter("counter", Kind::Number(0, COUNTERS as i128 - 1));
const P: Parameter = parameter("p", Kind::Predicate);

static ENTRIES: [Described; 10] = [
    function(
        "drop",
        &[],
        "Drops the packet: no member gets it.",
        "when is_tcp drop",
        |_| Ok(Function::Drop.into()),
    ),
    function(
        "inc",
        &[COUNTER],
        "Adds 1 to a counter, 0 to 63.",
        "tcp >-> inc 10",
        |given| count(given, 1),
    ),
    function(
        "dec",
        &[COUNTER],
        "Subtracts 1 from a counter.",
        "tcp >-> dec 10",
        |given| count(given, -1),
    ),
    function(
        "broadcast",
        &[],
        "To all members of all classes except 63.",
        "when is_broadcast broadcast",
        |_| Ok(Function::Broadcast.into()),
    )
    .on(Engines::Xdp),
    function(
        "classify",
        &[parameter("class", Kind::Number(1, 63))],
        "To all members of this class only (option +class=N); with a steering function, to one of them. Members without the option have the default class, 0.",
        "when (has_port 53) (classify 2) >-> steer_flow",
        |given| Ok(Function::Classify(given.number()?).into()),
    )
    .on(Engines::Xdp),
    function(
        "mark",
        &[parameter("value", Kind::Number(0, 0xffff_ffff))],
        "Sets the packet's mark. Consider put_state, whose number only the steering program reads.",
        "mark 42",
        |given| Ok(Function::Mark(given.number()?).into()),
    )
    .on(Engines::Xdp),
    function(
        "kernel",
        &[],
        "The host gets the packet too, even if it is dropped later.",
        "when is_icmp kernel >-> steer_p2p",
        |_| Ok(Function::Host(false).into()),
    )
    .on(Engines::Xdp),
    function(
        "detour",
        &[],
        "Only the host gets the packet; no member gets it.",
        "when is_eth_arp detour >-> steer_flow",
        |_| Ok(Function::Host(true).into()),
    )
    .on(Engines::Xdp),
    function(
        "kernel_if",
        &[P],
        "The same as: when p kernel.",
        "kernel_if is_tcp",
        |given| host_if(given, false),
    )
    .on(Engines::Xdp),
    function(
        "detour_if",
        &[P],
        "The same as: when p detour.",
        "detour_if is_tcp",
        |given| host_if(given, true),
    )
    .on(Engines::Xdp),
];

fn count(given: &mut Given<'_>, by: i64) -> Result<Built, Wrong> {
    Ok(Function::Count(given.number()?, by).into())
}

fn host_if(given: &mut Given<'_>, alone: bool) -> Result<Built, Wrong> {
    let question = given.predicate()?;
    let then = Function::Host(alone);
    Ok(Function::If(question.into(), then.into(), Function::Pass.into()).into())
}
