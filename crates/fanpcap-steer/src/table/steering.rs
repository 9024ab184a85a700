//! Steering functions, which select the member.

use super::build::{function, parameter};
use super::net::{cut, width};
use super::predicates::{gtp_control, gtp_user, sip};
use super::{Built, Described, Engines, Given, Group, Kind, Parameter, Wrong};
use crate::ir::{Field, Flow, Function, Header, Net, Ports, Predicate, Steer};
use std::net::IpAddr;

pub(super) const GROUP: Group = Group {
    title: "STEERING",
    about: "Functions that select the member that gets a packet. They drop a packet that lacks the property by which they select. A later steering \
            function overrides an earlier one; a filter after a steering function still drops.",
    entries: &ENTRIES,
};

const NET: Parameter = parameter("net", Kind::Net);
const HOST: Parameter = parameter("address", Kind::Host);
const PREFIX: Parameter = parameter("prefix", Kind::Number(0, 128));
const SIZE: Parameter = parameter("size", Kind::Number(1, 4));
const OFFSET: Parameter = parameter("offset", Kind::Number(0, 0xffff));
const OFFSET2: Parameter = parameter("offset2", Kind::Number(0, 0xffff));

static ENTRIES: [Described; 25] = [
    function("steer_flow", &[], "By addresses and ports, the same in both directions. An ICMP error goes to the member of the flow that it is about, a later \
        fragment to the member of its datagram. Drops a packet that is not IP.", "steer_flow", |_| flow(Flow::WHOLE)),
    function("steer_flow_5_tuple", &[], "As steer_flow, and by the upper protocol.", "steer_flow_5_tuple", |_| {
        flow(Flow { protocol: true, ..Flow::WHOLE })
    }),
    function("steer_flow_6_tuple", &[], "As steer_flow, and by the upper protocol and the outermost VLAN id.", "steer_flow_6_tuple", |_| {
        flow(Flow { protocol: true, vlan: true, ..Flow::WHOLE })
    }),
    function("steer_flow_tcp_5_tuple", &[], "By addresses and upper protocol; TCP by the ports too.", "steer_flow_tcp_5_tuple", |_| {
        flow(Flow { ports: Ports::Tcp, protocol: true, vlan: false })
    }),
    function("steer_p2p", &[], "By the addresses, the same in both directions. Drops a packet that is not IP.", "ip >-> steer_p2p", |_| flow(Flow::ADDRESSES))
        .or(&["steer_ip"]),
    function("steer_local_ip", &[NET], "By the address of the local side, which is the address in the net. If both addresses are in the net: by both. Drops a packet if neither is.",
        "steer_local_ip \"192.168.1.0/24\"", |given| steer(Steer::LocalIp(given.net()?))),
    function("steer_local_net", &[HOST, PREFIX, parameter("subprefix", Kind::Number(0, 128))],
        "As steer_local_ip, but by the network of the local side: the first subprefix bits of its address.", "steer_local_net \"192.168.0.0\" 16 24", local_net),
    function("steer_link", &[], "By both Ethernet addresses, the same in both directions. Broadcast frames are steered in this way too.", "steer_link", |_| steer(Steer::Link)),
    function("steer_local_link", &[parameter("gateway", Kind::Ethernet)], "By the Ethernet address that is not the gateway's. If neither address is the gateway's: by both.",
        "steer_local_link \"4c:60:de:86:55:46\"", |given| steer(Steer::LocalLink(given.ethernet()?))),
    function("steer_vlan", &[], "By the VLAN id of the outermost tag. Drops an untagged frame.", "steer_vlan", |_| steer(Steer::Vlan)),
    function("steer_rrobin", &[], "To the members in turn. Each CPU counts its own packets.", "ip >-> steer_rrobin", |_| steer(Steer::RoundRobin)),
    function("steer_rnd", &[], "At random.", "steer_rnd", |_| steer(Steer::Random)),
    function("steer_cpu", &[], "By the CPU on which the packet arrived: its number is a rank, as for steer_to.", "steer_cpu", |_| steer(Steer::Cpu)),
    function("steer_rss", &[], "By the hash that the NIC or the kernel gave the packet. A packet without such a hash is steered as by steer_flow; a packet that steer_flow would \
        drop goes to one member.", "ip >-> steer_rss", |_| steer(Steer::Rss)),
    function("steer_to", &[parameter("n", Kind::Number(0, i32::MAX as i128))], "To the member of this rank, from 0, modulo the number of members that have a share. A member keeps its \
        rank. When a member leaves, its rank goes to the next newcomer, or to the last member.",
        "ip >-> steer_to 1", |given| steer(Steer::To(given.number()?))),
    function("steer_key", &[parameter("key", Kind::Key)], "By the fields of the key, as they are: source and destination are not interchangeable. Drops a packet that lacks \
        a field.", "ip >-> steer_key key_5tuple", |given| steer(Steer::Key(given.key()?))),
    function("steer_field", &[OFFSET, SIZE], "By this many bytes at this offset of the frame, counted without the frame's outermost VLAN tag (types \
        0x8100 and 0x88a8), wherever the tag is. Drops a frame that is too short.", "steer_field 14 2", |given| steer(Steer::Field(field(given)?))),
    function("steer_field_symmetric", &[OFFSET, OFFSET2, SIZE], "By two fields as of steer_field, the same if their values are exchanged.",
        "steer_field_symmetric 26 30 4", |given| {
        let (one, other) = fields(given)?;
        steer(Steer::Fields(one, other))
    }),
    function("steer_rtp", &[], "RTP and RTCP by addresses and half of each port number, so that both streams of a session go to one member. Drops other packets.",
        "steer_rtp", |_| steer(Steer::Media)),
    function("steer_voip", &[], "As steer_rtp, and SIP to all members.", "voip >-> steer_voip", |_| Ok(voip().into())).on(Engines::Xdp),
    function("steer_gtp", &[], "GTP's user plane by the addresses of the carried packet, GTP's control plane by the packet's own addresses. Drops other packets.", "steer_gtp", |_| steer(Steer::Gtp)),
    function("steer_gtp_usr", &[HOST, PREFIX], "GTP's user plane by the user's address: the address of the carried packet that is in the net. GTP's control plane \
        to all members. Drops other packets.", "steer_gtp_usr \"192.168.0.0\" 16", gtp_usr).on(Engines::Xdp),
    function("double_steer_ip", &[], "To two members, one for each address.", "double_steer_ip", |_| steer(Steer::DoubleIp)).on(Engines::Xdp),
    function("double_steer_mac", &[], "To two members, one for each Ethernet address.", "double_steer_mac", |_| steer(Steer::DoubleLink))
        .on(Engines::Xdp),
    function("double_steer_field", &[OFFSET, OFFSET2, SIZE], "To two members, one for each field.", "double_steer_field 26 30 4", |given| {
        let (one, other) = fields(given)?;
        steer(Steer::DoubleField(one, other))
    })
    .on(Engines::Xdp),
];

fn steer(by: Steer) -> Result<Built, Wrong> {
    Ok(Function::Steer(by).into())
}

fn flow(flow: Flow) -> Result<Built, Wrong> {
    steer(Steer::Flow(flow))
}

fn field(given: &mut Given<'_>) -> Result<Field, Wrong> {
    let (offset, len) = (given.number()?, given.number()?);
    Ok(Field { offset, len })
}

fn fields(given: &mut Given<'_>) -> Result<(Field, Field), Wrong> {
    let (one, other) = (given.number()?, given.number()?);
    let len = given.number()?;
    let at = |offset| Field { offset, len };
    Ok((at(one), at(other)))
}

/// The net of an address and a prefix length. `argument` is the index of the prefix length.
fn net(address: IpAddr, bits: u8, argument: usize) -> Result<Net, Wrong> {
    let most = width(address);
    if bits > most {
        let message = format!("expected a prefix from 0 to {most}, found {bits}");
        return Err(Wrong::new(argument, message));
    }
    Ok(cut(address, bits))
}

fn local_net(given: &mut Given<'_>) -> Result<Built, Wrong> {
    let (address, bits, part): (_, u8, u8) = (given.host()?, given.number()?, given.number()?);
    let local = net(address, bits, 1)?;
    net(address, part, 2)?;
    if part < bits {
        let message = format!("expected a subprefix of {bits} bits or more, found {part}");
        return Err(Wrong::new(2, message));
    }
    steer(Steer::LocalNet(local, part))
}

/// The function `steer_voip`: SIP goes to all members, RTP and RTCP are steered by session.
fn voip() -> Function {
    Function::If(
        sip().into(),
        Function::Broadcast.into(),
        Function::Steer(Steer::Media).into(),
    )
}

/// The function `steer_gtp_usr`: the control plane goes to all members, and user packets are
/// steered by the user's address.
fn gtp_usr(given: &mut Given<'_>) -> Result<Built, Wrong> {
    let (address, bits) = (given.host()?, given.number()?);
    let user = Function::Steer(Steer::LocalIp(net(address, bits, 1)?));
    let carries = Predicate::And(gtp_user().into(), Predicate::Has(Header::Inner).into());
    let user = Function::If(
        carries.into(),
        Function::Inner(user.into()).into(),
        Function::Drop.into(),
    );
    Ok(Function::If(
        gtp_control().into(),
        Function::Broadcast.into(),
        user.into(),
    )
    .into())
}
