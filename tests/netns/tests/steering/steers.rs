//! The selector of each steering function. Frames with equal selectors reach one member. Frames
//! with different selectors are spread over all members.

mod addresses;
mod links;
mod sessions;
mod turns;

use std::net::{Ipv4Addr, Ipv6Addr};

use anyhow::{Context, Result};

use crate::frame::{CLIENT, Ends, Frame, Mac, Packet, SERVER, Segment, echo, ip, tcp, udp};
use crate::scene::{Outcome, on_scene};

const MEMBERS: usize = 4;
/// The number of selectors. It is large enough that each of four members gets some of the frames.
/// It is not a multiple of four, so a program that gives frames to the members in turn fails the
/// test.
const MANY: u8 = 61;
const PORTS: Ends<u16> = (40000, 80);

/// A frame with its selector. A frame without a selector must reach no member.
type Keyed = (Frame, Option<u64>);

/// Makes frames for each number. The frames are ordered so that neighbours have different numbers.
fn each(frames: impl Fn(u8) -> Vec<Keyed>) -> Vec<Keyed> {
    let mut all: Vec<_> = (0..MANY)
        .flat_map(|n| frames(n).into_iter().enumerate())
        .collect();
    all.sort_by_key(|(place, _)| *place);
    all.into_iter().map(|(_, keyed)| keyed).collect()
}

fn steered(program: &str, frames: &[Keyed]) -> Result<Outcome> {
    let keys: Vec<Option<u64>> = frames.iter().map(|(_, key)| *key).collect();
    let outcome = outcome_of(program, frames)?;
    outcome
        .ensure_steered_by(&keys)
        .with_context(|| program.to_owned())?;
    Ok(outcome)
}

fn outcome_of(program: &str, keyed: &[Keyed]) -> Result<Outcome> {
    let frames: Vec<Frame> = keyed.iter().map(|(frame, _)| frame.clone()).collect();
    on_scene(1, |scene| scene.share(program, MEMBERS, &frames))
}

/// The number of values `n` for which the frames of key `n` and of key `n + plus` reach different
/// members.
fn apart(frames: &[Keyed], outcome: &Outcome, plus: u64) -> usize {
    let owner = |key: u64| {
        let place = frames.iter().position(|(_, known)| *known == Some(key));
        place.and_then(|place| outcome.owners[place])
    };
    let differs = |n: &u64| owner(*n) != owner(n + plus);
    (0..u64::from(MANY)).filter(differs).count()
}

fn arrives(packet: Packet) -> Frame {
    Frame::arriving(packet.framed())
}

fn leaves(packet: Packet) -> Frame {
    Frame::leaving(packet.between((SERVER, CLIENT)))
}

fn mac(n: u8) -> Mac {
    [0x02, 0, 0, 0, 7, n]
}

fn remote(n: u8, place: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, n, 0, place)
}

fn between4(from: Ipv4Addr, to: Ipv4Addr) -> Packet {
    ip((from.into(), to.into()), &tcp(PORTS, b"data"))
}

/// A TCP packet of pair `n` of hosts. `place` distinguishes several packets of a pair.
fn packet4(n: u8, place: u8, ports: Ends<u16>) -> Packet {
    carried4(n, place, &tcp(ports, b"data"))
}

fn carried4(n: u8, place: u8, carried: &Segment) -> Packet {
    ip(
        (remote(n, place).into(), remote(n, 100 + place).into()),
        carried,
    )
}

/// The reply to [`packet4`].
fn back4(n: u8, place: u8, ports: Ends<u16>) -> Packet {
    ip(
        (remote(n, 100 + place).into(), remote(n, place).into()),
        &tcp(ports, b"data"),
    )
}

fn with_udp(n: u8, ports: Ends<u16>) -> Packet {
    carried4(n, 1, &udp(ports, b"data"))
}

fn echo4(n: u8) -> Packet {
    carried4(n, 1, &echo(true, false, b"echo"))
}

fn packet6(n: u8, ports: Ends<u16>) -> Packet {
    let host = |place| Ipv6Addr::new(0xfd00, place, 0, 0, 0, 0, 0, n.into());
    ip((host(1).into(), host(2).into()), &tcp(ports, b"data"))
}
