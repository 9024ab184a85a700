//! Fragments. Under `flow` a datagram is never split, and it reaches its flow's member if its first
//! fragment came first. For comparison, the test prints the result of the kernel's `hash` on the
//! same frames.

use anyhow::{Result, ensure};
use rand_pcg::Pcg64Mcg;

use crate::conversation::{AT_ONCE, Part, Speaker, data, interleaved};
use crate::frame::{Frame, fragments, in_vxlan};
use crate::scene::on_scene;
use crate::talk::{Talk, Transport, Wrap, plain, qinq, vlan, vxlan};
use crate::together::{
    MEMBERS, beside, both_modes, datagrams, datagrams_split, flows, flows_split, late_datagrams,
};

/// Number of flows for each encapsulation.
const FLOWS: usize = 120;

#[test]
#[ignore = "needs root: run by make test"]
fn fragments_stay_with_their_datagram_and_its_flow() -> Result<()> {
    on_scene(1, |scene| {
        let parts = interleaved(4, AT_ONCE, fragmented_conversations(3, &WAYS, FLOWS));
        let (flow, hash) = both_modes(scene, &parts)?;
        let torn = [&flow, &hash].map(|outcome| datagrams_split(&parts, outcome));
        println!(
            "{}",
            beside("datagrams", &datagrams(&parts), &torn[0], &torn[1])
        );
        let split = [&flow, &hash].map(|outcome| flows_split(&parts, outcome));
        let what = "flows, without late datagrams";
        println!("{}", beside(what, &flows(&parts), &split[0], &split[1]));
        let (late, astray) = late_datagrams(&parts, &flow);
        println!(
            "datagrams whose first fragment came last: {late}, away from their flow: {astray}"
        );
        ensure!(torn[0].is_empty(), "{} datagrams split", torn[0].len());
        ensure!(split[0].is_empty(), "{} flows split", split[0].len());
        let counted = flow.told.get("late").copied();
        ensure!(
            counted == i64::try_from(late).ok(),
            "{counted:?} datagrams counted as late, of {late}"
        );
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn fragments_of_a_tunnels_own_packets_stay_together() -> Result<()> {
    on_scene(1, |scene| {
        let parts = interleaved(6, AT_ONCE, conversations_cut_outside(5));
        let (flow, hash) = both_modes(scene, &parts)?;
        let torn = [&flow, &hash].map(|outcome| datagrams_split(&parts, outcome));
        println!(
            "{}",
            beside("datagrams", &datagrams(&parts), &torn[0], &torn[1])
        );
        let split = [&flow, &hash].map(|outcome| flows_split(&parts, outcome));
        println!("{}", beside("flows", &flows(&parts), &split[0], &split[1]));
        ensure!(torn[0].is_empty(), "{} datagrams split", torn[0].len());
        ensure!(split[0].is_empty(), "{} flows split", split[0].len());
        Ok(())
    })
}

/// The kernel's map of datagrams removes roughly the least recently used entries. In this test,
/// datagrams of some hundred flows are incomplete at the same time, and more datagrams pass than
/// the map can hold. Nevertheless the map must keep the entries of incomplete datagrams.
#[test]
#[ignore = "needs root: run by make test"]
fn a_datagram_in_flight_is_not_forgotten_for_those_that_are_complete() -> Result<()> {
    on_scene(1, |scene| {
        let conversations = fragmented_conversations(7, &WAYS[..1], 5000);
        let parts = interleaved(8, 500, conversations);
        let frames: Vec<Frame> = parts.iter().map(|part| part.frame.clone()).collect();
        let outcome = scene.share("flow", MEMBERS, &frames)?;
        outcome.ensure_all_came()?;
        let (all, torn) = (
            datagrams(&parts).len(),
            datagrams_split(&parts, &outcome).len(),
        );
        println!("{torn} of {all} datagrams split");
        ensure!(all > 16384, "{all} datagrams are too few to fill the table");
        ensure!(torn == 0, "{torn} of {all} datagrams split");
        Ok(())
    })
}

/// The name of an encapsulation, the function that applies it, and whether the first fragment has
/// IPv6 options before the ports.
type Pieces = (&'static str, Wrap, bool);

const WAYS: [Pieces; 5] = [
    ("plain", plain, false),
    ("VLAN", vlan, false),
    ("QinQ", qinq, false),
    ("in VXLAN", vxlan, false),
    ("options", plain, true),
];

/// Datagrams, some of them in fragments. In every fourth flow, the first fragment of the last
/// datagram comes last.
fn fragmented_conversations(seed: u64, ways: &[Pieces], flows: usize) -> Vec<Vec<Part>> {
    let mut random = Pcg64Mcg::new(seed.into());
    let mut conversations = Vec::new();
    for &(kind, wrap, options) in ways {
        for number in 0..flows {
            let flow = conversations.len();
            let ipv4 = number % 2 == 0 && !options;
            let talk = Talk::draw(&mut random, Transport::Udp, ipv4, flow);
            let mut speaker = Speaker::new(&mut random, kind, wrap, flow);
            speaker.say(&talk.packet(false, &data(flow, 0, 20)), false);
            for datagram in 1..5 {
                let reply = datagram % 2 == 0;
                let late = datagram == 4 && number / 2 % 4 == 0;
                let mut carried = talk.segment(reply, &data(flow, datagram, 600));
                if options {
                    carried = carried.behind_options();
                }
                let identification = u16::try_from(datagram).unwrap_or(0);
                speaker.in_fragments(datagram, late, |speaker| {
                    for piece in fragments(talk.ends(reply), identification, &carried, 256) {
                        speaker.say(&piece, reply);
                    }
                });
            }
            speaker.complain(&talk);
            conversations.push(speaker.parts);
        }
    }
    conversations
}

/// Packets in VXLAN whose outer packets are fragmented.
fn conversations_cut_outside(seed: u64) -> Vec<Vec<Part>> {
    let mut random = Pcg64Mcg::new(seed.into());
    let mut conversations = Vec::new();
    for flow in 0..FLOWS {
        let talk = Talk::draw(&mut random, Transport::Tcp, flow % 2 == 0, flow);
        let mut speaker = Speaker::new(&mut random, "VXLAN cut outside", vxlan, flow);
        for datagram in 0..4 {
            let reply = datagram % 2 == 1;
            let way = speaker.way(reply);
            let packet = talk.packet(reply, &data(flow, datagram, 600));
            let carried = in_vxlan(&packet.between(way.inner_macs()), way.port(), 7);
            let identification = u16::try_from(flow * 4 + datagram).unwrap_or(0);
            speaker.in_fragments(datagram, false, |speaker| {
                for piece in fragments(way.tunnel_ends(), identification, &carried, 256) {
                    speaker.put(plain(&piece, way), reply);
                }
            });
        }
        conversations.push(speaker.parts);
    }
    conversations
}
