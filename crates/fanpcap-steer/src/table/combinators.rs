//! Functions made of predicates and functions.

use super::build::{function, parameter};
use super::{Built, Described, Given, Group, Kind, Parameter, Wrong};
use crate::ir::{Function, NodeMut, Predicate, Side};

pub(super) const GROUP: Group = Group {
    title: "COMBINATORS",
    about: "Functions made of other functions. f >-> g runs f, then g, unless f drops. A do block joins its lines in the same way, one function a line.",
    entries: &ENTRIES,
};

const P: Parameter = parameter("p", Kind::Predicate);
const F: Parameter = parameter("f", Kind::Function);
const G: Parameter = parameter("g", Kind::Function);
const H: Parameter = parameter("h", Kind::Function);
const SAMPLE: [Parameter; 2] = [
    parameter("n", Kind::Number(1, u32::MAX as i128)),
    parameter("m", Kind::Number(1, u32::MAX as i128)),
];

static ENTRIES: [Described; 18] = [
    function("filter", &[P], "Keeps the packet if p is true, else drops it.", "filter (has_port 80) >-> steer_flow", |given| {
        Ok(filter(given.predicate()?).into())
    }),
    function("unit", &[], "Goes on.", "main = unit", |_| Ok(Function::Pass.into())),
    function("when", &[P, F], "Runs f if p is true; else does nothing.", "when (ip_ttl .< 64) drop", |given| {
        Ok(choice(given.predicate()?, given.function()?, Function::Pass))
    }),
    function("unless", &[P, F], "Runs f if p is false; else does nothing.", "unless is_frag (inc 0)", |given| {
        Ok(choice(given.predicate()?, Function::Pass, given.function()?))
    }),
    function("conditional", &[P, F, G], "Runs f if p is true, else g; written if p then f else g.", "if is_udp then steer_p2p else steer_flow",
        |given| Ok(choice(given.predicate()?, given.function()?, given.function()?))),
    function("par", &[F, G], "Runs the functions in order until one does not drop. The effects of the functions that drop are undone, except for counters.",
        "par udp icmp >-> steer_p2p", first),
    function("par3", &[F, G, H], "As par, with three functions.", "par3 steer_flow steer_link (steer_to 0)", first),
    function("par4", &[F, G, H, F], "As par, with four functions.", "par4 tcp udp sctp icmp", first),
    function("par5", &[F, G, H, F, F], "As par, with five functions.", "par5 tcp udp sctp dccp icmp", first),
    function("par6", &[F, G, H, F, F, F], "As par, with six functions.", "par6 tcp udp sctp dccp icmp vlan", first),
    function("par7", &[F, G, H, F, F, F, F], "As par, with seven functions.", "par7 tcp udp sctp dccp icmp vlan (l4_proto 89)", first),
    function("par8", &[F, G, H, F, F, F, F, F], "As par, with eight functions.", "par8 tcp udp sctp dccp icmp vlan (l4_proto 89) (l3_proto 0x0806)", first),
    function("inv", &[F], "Drops the packet if f keeps it, and keeps the packet if f drops it.", "inv ip >-> steer_link", |given| {
        Ok(Function::Inverse(given.function()?.into()).into())
    }),
    function("inner", &[F], "Runs f on the packet that this packet carries, or on this packet if it carries none. Carried packets are read in IP, GRE, ERSPAN, VXLAN, VXLAN-GPE, Geneve, GTP-U, \
        L2TP, TZSP, CAPWAP, and as an Ethernet frame behind MPLS labels or NSH. Tags, MPLS, NSH and PPPoE are skipped without inner too. \
        A packet within the carried packet is not read. docs/steering.md has the whole list.", "inner steer_flow", |given| {
        Ok(Function::Inner(given.function()?.into()).into())
    })
    .or(&["shift"]),
    function("src", &[F], "Runs f; in f, addresses and ports of either side mean those of the source.", "src (addr \"10.0.0.0/8\" >-> port 53)",
        |given| side(given, Side::Source)),
    function("dst", &[F], "Runs f; in f, addresses and ports of either side mean those of the destination.", "dst $ addr \"10.0.0.0/8\"",
        |given| side(given, Side::Destination)),
    function("sample", &SAMPLE, "Keeps the first n of every m packets that reach it on a CPU, and drops the others. At most 16 in a steering program.",
        "filter \"tcp port 443 or udp port 443\" >-> sample 1 10 >-> inner steer_flow", sample),
    function("put_state", &[parameter("value", Kind::Number(0, 0xffff_ffff))], "Sets the packet's state, which is 0 at first.",
        "if is_tcp then put_state 1 else put_state 2", |given| Ok(Function::SetState(given.number()?).into())),
];

/// A predicate as a function.
pub(super) fn filter(predicate: Predicate) -> Function {
    Function::If(
        predicate.into(),
        Function::Pass.into(),
        Function::Drop.into(),
    )
}

fn choice(question: Predicate, then: Function, otherwise: Function) -> Built {
    Function::If(question.into(), then.into(), otherwise.into()).into()
}

fn first(given: &mut Given<'_>) -> Result<Built, Wrong> {
    Ok(Function::First(given.functions()?).into())
}

/// Makes `src f` and `dst f`: a predicate in `f` that tests both sides now tests only `side`.
/// A `src` or `dst` within `f` has already restricted its own predicates.
fn side(given: &mut Given<'_>, side: Side) -> Result<Built, Wrong> {
    let mut function = given.function()?;
    function.walk_mut(&mut |node| {
        if let NodeMut::Predicate(
            Predicate::Address(of @ Side::Either, _)
            | Predicate::AddressIn {
                side: of @ Side::Either,
                ..
            }
            | Predicate::Port(of @ Side::Either, _),
        ) = node
        {
            *of = side;
        }
    });
    Ok(function.into())
}

fn sample(given: &mut Given<'_>) -> Result<Built, Wrong> {
    let (keep, of) = (given.number()?, given.number()?);
    if keep > of {
        let message = format!("expected to keep at most {of} of {of} packets, found {keep}");
        return Err(Wrong::new(0, message));
    }
    // The checker numbers samplers at the end.
    Ok(Function::Sample { keep, of, index: 0 }.into())
}
