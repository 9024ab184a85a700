//! The traffic, and which packets of it a member of group 6 gets.

use anyhow::Result;
use fanpcap_testkit::traffic::{self, Frame};
use fanpcap_testkit::{Direction, Transport};

/// How many frames are sent.
pub(crate) const COUNT: u64 = 8000;
/// The number of members of each group.
pub(crate) const MEMBERS: [(u16, usize); 2] = [(5, 4), (6, 2)];

const SEED: u64 = 33;
const DNS: u16 = 53;

/// Frames of TCP and UDP flows over IPv4 and IPv6, always the same ones. One flow of nine has
/// the port of DNS.
pub(crate) fn frames() -> Result<Vec<Frame>> {
    let mut flows = traffic::flows(SEED, 200);
    for flow in flows.iter_mut().step_by(9) {
        flow.server.set_port(DNS);
    }
    traffic::frames(SEED, &flows, 0..COUNT)
}

/// The member of group 6 that has to get a frame: DNS goes to the first one, other TCP to the
/// second one, and no member gets other UDP. The flow's ports and transport say so, no code of
/// steering programs does.
pub(crate) fn member(frame: &Frame) -> Option<usize> {
    let (source, destination) = frame.flow.ends(Direction::Request);
    let is_dns = [source.port(), destination.port()].contains(&DNS);
    match frame.flow.transport {
        _ if is_dns => Some(0),
        Transport::Tcp => Some(1),
        Transport::Udp => None,
    }
}

/// How many of these frames no member of group 6 gets.
pub(crate) fn dropped(frames: &[Frame]) -> u64 {
    frames
        .iter()
        .map(|it| u64::from(member(it).is_none()))
        .sum()
}
