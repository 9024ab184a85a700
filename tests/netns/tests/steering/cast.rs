//! Named frames, and steering programs that send some of these frames to some members.

use std::collections::BTreeMap;
use std::net::IpAddr;

use anyhow::{Context, Result, bail, ensure};

use crate::frame::{CLIENT, Ends, Frame, Packet, SERVER, Segment};
use crate::frame::{echo, fragments, in_vxlan, ip, sctp, segment, tcp, turned, udp};
use crate::scene::{Outcome, Scene};

/// One of the named frames.
pub(crate) struct Player {
    name: &'static str,
    /// The name of the frame's flow.
    flow: &'static str,
    frame: Frame,
}

/// Some of the frames, and the member that gets them. No member gets a frame that is in none of a
/// case's rows.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Row<'a> {
    /// The member with this number gets the frames.
    At(usize, &'a [&'a [&'a str]]),
    /// One member gets all of the frames. It may be any member.
    Together(&'a [&'a [&'a str]]),
    /// For each flow, one member gets the flow's frames.
    ByFlow(&'a [&'a [&'a str]]),
    /// Any members get the frames.
    Somewhere(&'a [&'a [&'a str]]),
}

/// A steering program, and the member that each frame must reach.
pub(crate) type Case<'a> = (&'a str, &'a [Row<'a>]);

pub(crate) const MEMBERS: usize = 4;

/// The names of the frames, by transport and address family. Each frame's name is in one of these
/// lists.
pub(crate) const TCP4: &[&str] = &["http>", "http<", "old", "vlan10"];
pub(crate) const TCP6: &[&str] = &["https6>", "https6<"];
pub(crate) const UDP4: &[&str] = &[
    "dns>", "dns<", "head", "tail", "sip", "rtp>", "rtp<", "rtcp>", "rtcp<", "dhcp", "vlan42",
    "vxlan",
];
pub(crate) const UDP6: &[&str] = &["dns6>", "dns6<"];
pub(crate) const ICMP4: &[&str] = &["ping>", "ping<", "unreachable"];
pub(crate) const ICMP6: &[&str] = &["ping6>", "ping6<"];
pub(crate) const OTHER4: &[&str] = &["sctp>", "sctp<", "ospf"];
pub(crate) const NO_IP: &[&str] = &["arp"];

/// The frames. `>` in a name marks a frame to the server, which arrives. `<` marks a frame from the
/// server, which leaves.
pub(crate) fn cast() -> Vec<Player> {
    let mut cast = both_ways();
    cast.extend(one_way());
    cast.extend(of_all_kinds());
    cast
}

/// Frames of conversations in both directions.
fn both_ways() -> Vec<Player> {
    // RTP: version 2, a payload type, and the rest of the header. RTCP: a sender's report.
    let (rtp, rtcp) = (
        [0x80, 8, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1],
        [0x80, 200, 0, 1, 0, 0, 0, 1],
    );
    let mut players = Vec::new();
    let mut talk = |names: [&'static str; 3], ends, segments: [Segment; 2]| {
        let [flow, request, reply] = names;
        let there = ip(address(ends), &segments[0]).framed();
        let back = ip(turned(address(ends)), &segments[1]).between((SERVER, CLIENT));
        players.push(player(request, flow, Frame::arriving(there)));
        players.push(player(reply, flow, Frame::leaving(back)));
    };
    let tcps = |ports: Ends<u16>| [tcp(ports, b">"), tcp(turned(ports), b"<")];
    let udps = |ports: Ends<u16>, data: &[u8]| {
        [
            udp(ports, &[data, b">"].concat()),
            udp(turned(ports), &[data, b"<"].concat()),
        ]
    };
    let ports = (40005, 38412);
    let sctps = [sctp(ports, b">"), sctp(turned(ports), b"<")];
    let echoes = |ipv4| [echo(ipv4, false, b"echo"), echo(ipv4, true, b"echo")];
    let far6 = ("2001:db8::2", "2001:db8:5::42");
    talk(
        ["http", "http>", "http<"],
        ("10.0.0.1", "192.168.0.13"),
        tcps((40001, 80)),
    );
    talk(
        ["https6", "https6>", "https6<"],
        ("2001:db8::1", "2001:db8:5::9"),
        tcps((40002, 443)),
    );
    talk(
        ["dns", "dns>", "dns<"],
        ("10.0.0.2", "192.168.0.42"),
        udps((40003, 53), b"dns"),
    );
    talk(["dns6", "dns6>", "dns6<"], far6, udps((40004, 53), b"dns"));
    talk(
        ["sctp", "sctp>", "sctp<"],
        ("10.0.0.3", "192.168.0.13"),
        sctps,
    );
    talk(
        ["rtp", "rtp>", "rtp<"],
        ("10.0.0.5", "192.168.0.20"),
        udps((20000, 30000), &rtp),
    );
    talk(
        ["rtcp", "rtcp>", "rtcp<"],
        ("10.0.0.5", "192.168.0.20"),
        udps((20001, 30001), &rtcp),
    );
    talk(
        ["ping", "ping>", "ping<"],
        ("10.0.0.1", "192.168.0.13"),
        echoes(true),
    );
    talk(
        ["ping6", "ping6>", "ping6<"],
        ("2001:db8::1", "2001:db8:5::9"),
        echoes(false),
    );
    players
}

/// Frames that a server receives or that a router sends.
fn one_way() -> Vec<Player> {
    let request = ip(
        address(("10.0.0.2", "192.168.0.42")),
        &udp((40003, 53), b"dns>"),
    );
    let error = ip(address(("172.16.0.1", "10.0.0.2")), &request.refused());
    let call = ip(
        address(("10.0.0.5", "192.168.0.20")),
        &udp((5060, 5060), b"INVITE"),
    );
    let old = ip(
        address(("10.0.0.7", "192.168.0.13")),
        &tcp((40007, 80), b"old"),
    )
    .with(8, 5);
    let datagram = udp((40006, 4000), &[0x5a; 100]);
    let pieces = fragments(address(("10.0.0.4", "192.168.0.13")), 77, &datagram, 64);
    vec![
        player(
            "unreachable",
            "dns",
            Frame::arriving(error.between((SERVER, CLIENT))),
        ),
        player("sip", "sip", Frame::arriving(call.framed())),
        player("old", "old", Frame::arriving(old.framed())),
        player("head", "fragments", Frame::arriving(pieces[0].framed())),
        player("tail", "fragments", Frame::arriving(pieces[1].framed())),
    ]
}

/// Frames to multicast groups, frames that are not IP, frames with a tag, and frames in a tunnel.
fn of_all_kinds() -> Vec<Player> {
    let everybody = (CLIENT, [0xff; 6]);
    let routers = (CLIENT, [0x01, 0, 0x5e, 0, 0, 5]);
    let arp = Packet::other(0x0806, &[0; 28]);
    let dhcp = ip(
        address(("0.0.0.0", "255.255.255.255")),
        &udp((68, 67), b"discover"),
    );
    let ospf = ip(
        address(("10.0.0.6", "224.0.0.5")),
        &segment(89, &[b"hello"]),
    );
    let web = ip(
        address(("10.0.0.8", "192.168.0.13")),
        &tcp((40008, 80), b"tagged"),
    );
    let name = ip(
        address(("192.168.0.42", "10.0.0.9")),
        &udp((53, 40009), b"tagged"),
    );
    let inside = ip(
        address(("10.8.0.1", "10.8.0.2")),
        &tcp((1234, 80), b"inside"),
    )
    .framed();
    let tunnel = ip(
        address(("172.16.1.1", "172.16.1.2")),
        &in_vxlan(&inside, 50000, 7),
    );
    let (arriving, leaving) = (Frame::arriving, Frame::leaving);
    vec![
        player("arp", "arp", arriving(arp.between(everybody))),
        player("dhcp", "dhcp", arriving(dhcp.between(everybody))),
        player("ospf", "ospf", arriving(ospf.between(routers))),
        player(
            "vlan10",
            "vlan10",
            arriving(web.tagged(0x8100, 10).framed()),
        ),
        player(
            "vlan42",
            "vlan42",
            leaving(name.tagged(0x8100, 42).between((SERVER, CLIENT))),
        ),
        player("vxlan", "vxlan", arriving(tunnel.framed())),
    ]
}

pub(crate) fn player(name: &'static str, flow: &'static str, frame: Frame) -> Player {
    Player { name, flow, frame }
}

fn address((from, to): Ends<&str>) -> Ends<IpAddr> {
    let parse = |text: &str| text.parse().expect("an address");
    (parse(from), parse(to))
}

/// Runs each program on the frames, and compares the members that got the frames with those of the
/// case.
pub(crate) fn check(scene: &Scene<'_>, cases: &[Case<'_>]) -> Result<()> {
    check_on(scene, &cast(), cases)
}

/// Like [`check`], with other frames.
pub(crate) fn check_on(scene: &Scene<'_>, cast: &[Player], cases: &[Case<'_>]) -> Result<()> {
    let frames: Vec<Frame> = cast.iter().map(|player| player.frame.clone()).collect();
    let mut faults = Vec::new();
    for (program, rows) in cases {
        let outcome = scene.share(program, MEMBERS, &frames)?;
        if let Err(fault) = compare(cast, &outcome, rows) {
            faults.push(format!("{program}\n    {fault:#}"));
        }
    }
    ensure!(
        faults.is_empty(),
        "{} programs:\n{}",
        faults.len(),
        faults.join("\n")
    );
    Ok(())
}

fn compare(cast: &[Player], outcome: &Outcome, rows: &[Row<'_>]) -> Result<()> {
    let mut rest: BTreeMap<&str, (&str, Option<usize>)> = BTreeMap::new();
    for (player, owner) in cast.iter().zip(&outcome.owners) {
        rest.insert(player.name, (player.flow, *owner));
    }
    for row in rows {
        let (names, home): (_, fn(&str) -> &str) = match row {
            Row::At(_, names) | Row::Together(names) => (names, |_| "all"),
            Row::ByFlow(names) => (names, |flow| flow),
            Row::Somewhere(names) => (names, |_| ""),
        };
        let mut homes: BTreeMap<&str, usize> = BTreeMap::new();
        for name in names.concat() {
            let (flow, owner) = rest
                .remove(name)
                .with_context(|| format!("{name} occurs twice or is unknown"))?;
            let owner = owner.with_context(|| format!("{name} reached no member"))?;
            let home = home(flow);
            let first = *homes.entry(home).or_insert(owner);
            ensure!(
                home.is_empty() || first == owner,
                "{name} reached member {owner}, other frames of its row member {first}"
            );
            if let Row::At(member, _) = row {
                ensure!(
                    owner == *member,
                    "{name} reached member {owner}, not {member}"
                );
            }
        }
    }
    for (name, (_, owner)) in rest {
        if let Some(owner) = owner {
            bail!("{name} reached member {owner}, but should reach none");
        }
    }
    Ok(())
}
